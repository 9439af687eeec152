package courier_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
)

func TestBacklog(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	first, second := target(t, w, "https://a.example"), target(t, w, "https://b.example")
	for range 3 {
		w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	}
	deliverytest.CatchUp(t, w)
	due := func(change string) courier.Backlog {
		pgtest.Exec(t, w.Pool, change)
		courier := courier.New(courier.Options{
			Pool: w.Pool, Store: w.Store, Secrets: secrets(t, w.Pool, key(1)), Log: slog.New(slog.DiscardHandler),
		})
		b, err := courier.Backlog(t.Context())
		require.NoError(t, err)
		return b
	}
	require.Equal(t, courier.Backlog{Queued: 6}, due(`UPDATE delivery.queue SET due_at = now() + interval '1 hour'`))
	b := due(
		`UPDATE delivery.queue SET due_at = now() - interval '1 day' * position WHERE webhook_id = '` + second + `'`,
	)
	require.EqualValues(t, 6, b.Queued)
	require.Greater(t, b.OldestDue, 4*24*time.Hour)
	require.Equal(t, courier.Backlog{Queued: 3}, due(`
		UPDATE delivery.queue SET lease = 1;
		DELETE FROM delivery.queue WHERE webhook_id = '`+first+`'`), "a claimed delivery is not due")
	b = due(`
		INSERT INTO delivery.deferred (event_id, account, type, stream, revision, position, webhook_ids, deferred_at)
		SELECT n, 'acme', 'lead.created', 'lead', 0, n, '{}', now() - interval '1 minute' * n
		FROM generate_series(1, 5) AS n`)
	require.EqualValues(t, 5, b.Deferred)
	require.Greater(t, b.OldestDeferred, 299*time.Second)
}
