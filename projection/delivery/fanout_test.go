package delivery_test

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
)

// begun returns a world whose deliveries begin at the head of the log.
func begun(t *testing.T) *projectiontest.World {
	t.Helper()
	w := projectiontest.New(t)
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	return w
}

func fanOut(t testing.TB, w *projectiontest.World) *projection.Runner {
	return watchedFanOut(t, w, nil)
}

func watchedFanOut(t testing.TB, w *projectiontest.World, watch func(projection.Applied)) *projection.Runner {
	t.Helper()
	epoch, err := w.Store.Epoch(t.Context())
	require.NoError(t, err)
	runner, err := projection.New(projection.Options{
		URL: w.URL, Store: w.Store, Projectors: []projection.Projector{delivery.FanOut{Epoch: epoch, Filters: delivery.NewFilters(w.Store, nil)}},
		Schema: schema.Deliveries, Watch: watch, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return runner
}

// spread runs the fan-out up to the head of the log.
func spread(t *testing.T, w *projectiontest.World) {
	t.Helper()
	runner := fanOut(t, w)
	projectiontest.CatchUp(t, runner)
}

func register(t *testing.T, w *projectiontest.World, account, url string, events ...string) (id string) {
	t.Helper()
	id = w.NewID()
	w.Append(t, account, event.WebhookStream(id), event.WebhookRegistered{WebhookSettings: event.WebhookSettings{URL: url, Events: events}, Slot: 1})
	return id
}

func newLead(name string) event.LeadCreated {
	return event.LeadCreated{ContactUID: "c", LeadFields: event.LeadFields{Name: name, Email: "a@example.com", Status: "new", Temperature: "warm"}, Source: "website"}
}

// queued returns the rows of an endpoint in order, as type and position.
func queued(t *testing.T, w *projectiontest.World, webhookID string) []string {
	t.Helper()
	rows, err := w.Pool.Query(t.Context(),
		`SELECT concat(type, ' ', stream, ' ', revision) FROM delivery.queue WHERE webhook_id = $1 ORDER BY due_at, position`, webhookID)
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return got
}

func TestFanOut_Subscriptions(t *testing.T) {
	t.Parallel()
	w := begun(t)
	late, deleted := w.NewID(), "" // an endpoint that is registered after the first lead
	lead, tok := event.LeadStream(w.NewID()), event.TokenStream(w.NewID())
	all := register(t, w, "acme", "https://a.example", "*")
	merges := register(t, w, "acme", "https://b.example", "lead.merged")
	other := register(t, w, "globex", "https://c.example", "*")
	deleted = register(t, w, "acme", "https://d.example", "*")

	w.Append(t, "acme", lead, newLead("Ann"))
	w.Append(t, "acme", event.WebhookStream(deleted), event.WebhookDeleted{})
	w.Append(t, "acme", event.WebhookStream(late), event.WebhookRegistered{WebhookSettings: event.WebhookSettings{URL: "https://e.example", Events: []string{"*"}}, Slot: 2})
	w.Append(t, "acme", lead, event.LeadMerged{Source: "whatsapp", NewSource: true})
	w.Append(t, "acme", tok, event.TokenCreated{Name: "CI", Hash: []byte("h")}, event.TokenRotated{Hash: []byte("i")}, event.TokenDeleted{})
	spread(t, w)

	token := []string{"token.created " + tok + " 0", "token.rotated " + tok + " 1", "token.deleted " + tok + " 2"}
	require.Equal(t, append([]string{"lead.created " + lead + " 0", "lead.merged " + lead + " 1"}, token...), queued(t, w, all))
	require.Equal(t, []string{"lead.merged " + lead + " 1"}, queued(t, w, merges))
	require.Equal(t, []string{"lead.created " + lead + " 0"}, queued(t, w, deleted))
	require.Equal(t, append([]string{"lead.merged " + lead + " 1"}, token...), queued(t, w, late))
	require.Empty(t, queued(t, w, other))
}

func TestFanOut_SkipsEventsBeforeOrigin(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := register(t, w, "acme", "https://a.example", "*")
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Before"))
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	after := event.LeadStream(w.NewID())
	w.Append(t, "acme", after, newLead("After"))
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store), "a restart changes nothing")
	spread(t, w)
	require.Equal(t, []string{"lead.created " + after + " 0"}, queued(t, w, id))
}

// A transaction is opened for applied events only, and most events have no endpoint.
func TestFanOut_SkipsAccountsWithoutEndpoint(t *testing.T) {
	t.Parallel()
	w := begun(t)
	applied := func() (streams []string) {
		runner := watchedFanOut(t, w, func(a projection.Applied) {
			for _, e := range a.Events {
				streams = append(streams, e.Stream)
			}
		})
		projectiontest.CatchUp(t, runner)
		return streams
	}
	quiet, early, queued := event.LeadStream(w.NewID()), event.LeadStream(w.NewID()), event.LeadStream(w.NewID())
	w.Append(t, "quiet", quiet, newLead("Ada"))
	w.Append(t, "acme", early, newLead("Ben"))
	endpoint := register(t, w, "acme", "https://example.com", "*")
	w.Append(t, "acme", queued, newLead("Cy"))
	w.Append(t, "quiet", quiet, event.LeadErased{})
	require.Equal(t, []string{event.WebhookStream(endpoint), queued}, applied())

	w.Append(t, "acme", event.WebhookStream(endpoint), event.WebhookDeleted{})
	require.Equal(t, []string{event.WebhookStream(endpoint)}, applied())
	w.Append(t, "quiet", event.LeadStream(w.NewID()), newLead("Dan"))
	w.Append(t, "acme", queued, event.LeadErased{}) // the delivery queued for the endpoint is cancelled
	require.Equal(t, []string{queued}, applied())
}

func TestFanOut_RereadQueuesNothing(t *testing.T) {
	t.Parallel()
	w := begun(t)
	id := register(t, w, "acme", "https://a.example", "*")
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	spread(t, w)
	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.checkpoint`)
	spread(t, w)
	require.Len(t, queued(t, w, id), 1)
	w.Project(t)
	require.Len(t, queued(t, w, id), 1, "nor do the views queue anything")
}

// waits reports whether the transaction that applies the event waits for the disk when it commits.
func waits(t *testing.T, w *projectiontest.World, data event.Data) bool {
	t.Helper()
	epoch, err := w.Store.Epoch(t.Context())
	require.NoError(t, err)
	conn, err := w.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	pgtest.Exec(t, tx, `SET LOCAL synchronous_commit = off; SET LOCAL search_path = `+schema.Deliveries)
	head, err := w.Store.Head(t.Context())
	require.NoError(t, err)
	e := projection.Event{Recorded: &eventstore.Recorded{}, Data: data}
	e.ID, e.Stream, e.Position, e.Metadata.Account = ulid.Make(), event.LeadStream(w.NewID()), head+1, "acme"
	require.NoError(t, delivery.FanOut{Epoch: epoch}.Apply(t.Context(), tx, []projection.Event{e}))
	setting := pgtest.Value[string](t, tx, `SELECT current_setting('synchronous_commit')`)
	return setting == "on"
}

func TestFanOut_SynchronousCommit(t *testing.T) {
	t.Parallel()
	w := begun(t)
	register(t, w, "acme", "https://a.example", "lead.merged")
	spread(t, w)
	require.False(t, waits(t, w, newLead("Ann")), "no endpoint wants it")
	require.True(t, waits(t, w, event.LeadMerged{Source: "api"}), "it may be sent before a crash")
}
