// Package deliverytest helps tests of webhook deliveries.
package deliverytest

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
)

// New returns a world whose deliveries begin at the head of the log.
func New(t testing.TB) *projectiontest.World {
	t.Helper()
	w := projectiontest.New(t)
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	return w
}

// FanOut returns the fan-out of a world. Watch may be nil.
func FanOut(t testing.TB, w *projectiontest.World, watch func(projection.Applied)) *projection.Runner {
	t.Helper()
	epoch, err := w.Store.Epoch(t.Context())
	require.NoError(t, err)
	runner, err := projection.New(projection.Options{
		URL: w.URL, Store: w.Store,
		Projectors: []projection.Projector{delivery.FanOut{Epoch: epoch, Filters: delivery.NewFilters(w.Store, nil)}},
		Schema:     schema.Deliveries, Watch: watch, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return runner
}

// CatchUp runs the fan-out up to the head of the log.
func CatchUp(t testing.TB, w *projectiontest.World) {
	t.Helper()
	projectiontest.CatchUp(t, FanOut(t, w, nil))
}

// Register registers an endpoint.
func Register(t testing.TB, w *projectiontest.World, account, url string, events ...string) (id string) {
	t.Helper()
	id = w.NewID()
	w.Append(t, account, event.WebhookStream(id), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: url, Events: events}, Slot: 1,
	})
	return id
}

// NewLead returns the event of a new lead.
func NewLead(name string) event.LeadCreated {
	return event.LeadCreated{
		ContactUID: "c",
		LeadFields: event.LeadFields{Name: name, Email: "a@example.com", Status: "new", Temperature: "warm"},
		Source:     "website",
	}
}

// Queued returns the rows of an endpoint in order: their type, stream and revision.
func Queued(t testing.TB, w *projectiontest.World, webhookID string) []string {
	t.Helper()
	rows, err := w.Pool.Query(t.Context(),
		`SELECT concat(type, ' ', stream, ' ', revision) FROM delivery.queue WHERE webhook_id = $1
			ORDER BY due_at, position, part`, webhookID)
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return got
}
