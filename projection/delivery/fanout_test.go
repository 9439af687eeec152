package delivery_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
)

func TestFanOut_Subscriptions(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	late, deleted := w.NewID(), "" // an endpoint that is registered after the first lead
	lead, tok := event.LeadStream(w.NewID()), event.TokenStream(w.NewID())
	all := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	merges := deliverytest.Register(t, w, "acme", "https://b.example", "lead.merged")
	other := deliverytest.Register(t, w, "globex", "https://c.example", "*")
	deleted = deliverytest.Register(t, w, "acme", "https://d.example", "*")

	w.Append(t, "acme", lead, deliverytest.NewLead("Ann"))
	w.Append(t, "acme", event.WebhookStream(deleted), event.WebhookDeleted{})
	w.Append(t, "acme", event.WebhookStream(late), event.WebhookRegistered{
		WebhookSettings: event.WebhookSettings{URL: "https://e.example", Events: []string{"*"}}, Slot: 2,
	})
	w.Append(t, "acme", lead, event.LeadMerged{Source: "whatsapp", NewSource: true})
	w.Append(t, "acme", tok, event.TokenCreated{Name: "CI", Hash: []byte("h")}, event.TokenRotated{Hash: []byte("i")},
		event.TokenDeleted{})
	deliverytest.CatchUp(t, w)

	token := []string{"token.created " + tok + " 0", "token.rotated " + tok + " 1", "token.deleted " + tok + " 2"}
	require.Equal(t, append([]string{"lead.created " + lead + " 0", "lead.merged " + lead + " 1"}, token...),
		deliverytest.Queued(t, w, all))
	require.Equal(t, []string{"lead.merged " + lead + " 1"}, deliverytest.Queued(t, w, merges))
	require.Equal(t, []string{"lead.created " + lead + " 0"}, deliverytest.Queued(t, w, deleted))
	require.Equal(t, append([]string{"lead.merged " + lead + " 1"}, token...), deliverytest.Queued(t, w, late))
	require.Empty(t, deliverytest.Queued(t, w, other))
}

// Each consent that an event changes is a delivery of its own, also in a replay.
func TestFanOut_Consents(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	all := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	consents := deliverytest.Register(t, w, "acme", "https://b.example", "lead.consent")
	lead := event.LeadStream(w.NewID())
	created := deliverytest.NewLead("Ann")
	created.ChangedConsents = []string{"call", "x"}
	w.Append(t, "acme", lead, created, event.LeadConsented{
		Purposes: event.Purposes{ChangedConsents: []string{"mail"}}, Given: jsontext.Value(`{"purpose":"mail"}`),
	})
	deliverytest.CatchUp(t, w)
	want := []string{"lead.consent " + lead + " 0", "lead.consent " + lead + " 0", "lead.consent " + lead + " 1"}
	require.Equal(t, want, deliverytest.Queued(t, w, consents))
	require.Equal(t, append([]string{"lead.created " + lead + " 0"}, want...), deliverytest.Queued(t, w, all))

	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.queue WHERE part <> 2`) // delivered
	w.Append(t, "acme", event.WebhookStream(consents), event.WebhookReplayed{
		Since: projectiontest.Start.Add(-time.Hour), Until: projectiontest.Start.Add(time.Hour), Generation: 1,
	})
	deliverytest.CatchUp(t, w)
	again := replayer(t, w)
	again.Budget = func(context.Context, string, int) (int, time.Duration, error) { return 1, 0, nil }
	for range 3 {
		_, err := again.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"1 0", "1 1", "2 0"}, pgtest.Rows[string](t, w.Pool, `
		SELECT concat(part, ' ', revision) FROM delivery.queue WHERE webhook_id = '`+consents+`'
		 ORDER BY part, revision`), "what waits is not queued again")
}

func TestFanOut_SkipsEventsBeforeOrigin(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Before"))
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	after := event.LeadStream(w.NewID())
	w.Append(t, "acme", after, deliverytest.NewLead("After"))
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store), "a restart changes nothing")
	deliverytest.CatchUp(t, w)
	require.Equal(t, []string{"lead.created " + after + " 0"}, deliverytest.Queued(t, w, id))
}

// A transaction is opened for applied events only, and most events have no endpoint.
func TestFanOut_SkipsAccountsWithoutEndpoint(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	applied := func() (streams []string) {
		runner := deliverytest.FanOut(t, w, func(a projection.Applied) {
			for _, e := range a.Events {
				streams = append(streams, e.Stream)
			}
		})
		projectiontest.CatchUp(t, runner)
		return streams
	}
	quiet, early, queued := event.LeadStream(w.NewID()), event.LeadStream(w.NewID()), event.LeadStream(w.NewID())
	w.Append(t, "quiet", quiet, deliverytest.NewLead("Ada"))
	w.Append(t, "acme", early, deliverytest.NewLead("Ben"))
	endpoint := deliverytest.Register(t, w, "acme", "https://example.com", "*")
	w.Append(t, "acme", queued, deliverytest.NewLead("Cy"))
	w.Append(t, "quiet", quiet, event.LeadErased{})
	require.Equal(t, []string{event.WebhookStream(endpoint), queued}, applied())

	w.Append(t, "acme", event.WebhookStream(endpoint), event.WebhookDeleted{})
	require.Equal(t, []string{event.WebhookStream(endpoint)}, applied())
	w.Append(t, "quiet", event.LeadStream(w.NewID()), deliverytest.NewLead("Dan"))
	w.Append(t, "acme", queued, event.LeadErased{}) // the delivery queued for the endpoint is cancelled
	require.Equal(t, []string{queued}, applied())
}

func TestFanOut_RereadQueuesNothing(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	deliverytest.CatchUp(t, w)
	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.checkpoint`)
	deliverytest.CatchUp(t, w)
	require.Len(t, deliverytest.Queued(t, w, id), 1)
	w.Project(t)
	require.Len(t, deliverytest.Queued(t, w, id), 1, "nor do the views queue anything")
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
	w := deliverytest.New(t)
	deliverytest.Register(t, w, "acme", "https://a.example", "lead.merged")
	deliverytest.CatchUp(t, w)
	require.False(t, waits(t, w, deliverytest.NewLead("Ann")), "no endpoint wants it")
	require.True(t, waits(t, w, event.LeadMerged{Source: "api"}), "it may be sent before a crash")
}
