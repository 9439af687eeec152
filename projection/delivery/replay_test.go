package delivery_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// leads puts new leads on the log, in appends of many.
func leads(t testing.TB, w *projectiontest.World, account string, n int) {
	t.Helper()
	const most = 200
	for n > 0 {
		var writes []eventstore.Write
		for range min(n, most) {
			at := w.NewEvent()
			name, data, err := event.Encode(newLead("Ann"))
			require.NoError(t, err)
			at.Type, at.Data, at.Metadata.Account = name, data, account
			writes = append(writes, eventstore.Write{Stream: event.LeadStream(at.ID.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{at}})
		}
		storetest.Append(t, w.Store, writes...)
		n -= min(n, most)
	}
}

// generations counts an endpoint's deliveries by generation.
func generations(t *testing.T, w *projectiontest.World, webhookID string) map[int]int {
	t.Helper()
	rows, err := w.Pool.Query(t.Context(), `SELECT generation, count(*) FROM delivery.delivery WHERE webhook_id = $1 GROUP BY 1`, webhookID)
	require.NoError(t, err)
	counts := map[int]int{}
	var generation, n int
	_, err = pgx.ForEachRow(rows, []any{&generation, &n}, func() error {
		counts[generation] = n
		return nil
	})
	require.NoError(t, err)
	return counts
}

func TestAReplayQueuesWhatMatchesInItsSpanOfTime(t *testing.T) {
	t.Parallel()
	w := begun(t)
	lead, other := event.LeadStream(w.NewID()), event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, newLead("Before there was an endpoint"))
	id := register(t, w, "acme", "https://a.example", "lead.merged")
	all := register(t, w, "acme", "https://b.example", "*")
	w.Append(t, "acme", lead, event.LeadMerged{Source: "whatsapp"})
	since := w.NewEvent().At
	w.Append(t, "acme", lead, event.LeadMerged{Source: "website"}, event.LeadUpdated{Name: "A"})
	w.Append(t, "globex", other, newLead("Theirs"), event.LeadMerged{Source: "website"})
	until := w.NewEvent().At
	w.Append(t, "acme", lead, event.LeadMerged{Source: "chatbot"})
	span := event.WebhookReplayed{Since: since, Until: until, Generation: 1}
	w.Append(t, "acme", event.WebhookStream(id), span, event.WebhookUpdated{URL: "https://a.example", Events: []string{"token.created"}, Changed: []string{"events"}})
	w.Append(t, "acme", event.WebhookStream(all), span)
	w.Append(t, "acme", lead, event.LeadMerged{Source: "landing"})
	spread(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 3, 1: 1}, generations(t, w, id), "what it asked for when the replay was asked for")
	require.Equal(t, map[int]int{0: 5, 1: 2}, generations(t, w, all))

	w.Append(t, "acme", event.WebhookStream(all), event.WebhookReplayed{Since: projectiontest.Start, Until: projectiontest.Start.Add(time.Hour), Generation: 2})
	spread(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 5, 1: 2, 2: 6}, generations(t, w, all), "the next generation, with what was before the endpoint")
	finished := pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM delivery.replay WHERE finished_at IS NOT NULL AND queued IN (1, 2, 6)`)
	require.Equal(t, 3, finished)
}

func TestAReplayThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := begun(t)
	broken, sound := register(t, w, "acme", "https://a.example", "*"), register(t, w, "globex", "https://b.example", "*")
	unreadable := w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	w.Append(t, "globex", event.LeadStream(w.NewID()), newLead("Ben"))
	span := event.WebhookReplayed{Since: projectiontest.Start, Until: projectiontest.Start.Add(time.Hour), Generation: 1}
	w.Append(t, "acme", event.WebhookStream(broken), span) // first in turn
	w.Append(t, "globex", event.WebhookStream(sound), span)
	spread(t, w)
	pgtest.Exec(t, w.Pool, `ALTER TABLE log.event DISABLE TRIGGER ALL`)
	pgtest.Exec(t, w.Pool, `UPDATE log.event SET type = 'lead.invented.v1' WHERE position = $1`, int64(unreadable))
	_, err := replayer(w).Turn(t.Context())
	require.ErrorContains(t, err, broken)
	require.Equal(t, map[int]int{0: 1, 1: 1}, generations(t, w, sound))
	require.Equal(t, map[int]int{0: 1}, generations(t, w, broken))
}

// Nobody fills the queue by asking for replays, nor waits for another who has much in it.
func TestAReplayWaitsWhileItsEndpointHasMuchInTheQueue(t *testing.T) {
	t.Parallel()
	w := begun(t)
	behind, other := register(t, w, "acme", "https://a.example", "*"), register(t, w, "acme", "https://b.example", "*")
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	for _, id := range []string{behind, other} {
		w.Append(t, "acme", event.WebhookStream(id), replayAll())
	}
	spread(t, w)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer)
		SELECT 'waits-' || n, $1, 'lead.created', 'lead-1', 0, 1, 1 FROM generate_series(1, 150000) AS n`, behind)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1}, generations(t, w, behind))
	require.Equal(t, map[int]int{0: 1, 1: 1}, generations(t, w, other))
	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.queue WHERE delivery_id LIKE 'waits-%'`)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1, 1: 1}, generations(t, w, behind))
}

func TestReplayedDeliveriesAreOfTheDayTheyWereAskedFor(t *testing.T) {
	t.Parallel()
	w := begun(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	for ago := range 40 {
		appendAt(t, w, time.Now().Add(-time.Duration(60-ago)*day))
	}
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookReplayed{Since: time.Now().Add(-90 * day), Until: time.Now(), Generation: 1})
	spread(t, w)
	before := len(dayTables(t, w, "delivery"))
	replay(t, w)
	require.Equal(t, map[int]int{0: 40, 1: 40}, generations(t, w, id))
	require.LessOrEqual(t, len(dayTables(t, w, "delivery")), before+1)
	send(t, w)
	require.Equal(t, map[string]int{"delivered": 80}, states(t, w, id, 80))
}

func TestAReplayOfAnEndpointThatIsSwitchedOffEnds(t *testing.T) {
	t.Parallel()
	w := begun(t)
	disabled, deleted := register(t, w, "acme", "https://a.example", "*"), register(t, w, "acme", "https://b.example", "*")
	w.Append(t, "acme", event.LeadStream(w.NewID()), newLead("Ann"))
	w.Append(t, "acme", event.WebhookStream(disabled), replayAll(), event.WebhookDisabled{Reason: "owner"}, event.WebhookEnabled{}, event.WebhookDisabled{Reason: "owner"})
	w.Append(t, "acme", event.WebhookStream(deleted), replayAll(), event.WebhookDeleted{})
	spread(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1}, generations(t, w, disabled))
	require.Equal(t, map[int]int{0: 1}, generations(t, w, deleted))
	w.Append(t, "acme", event.WebhookStream(disabled), event.WebhookEnabled{})
	spread(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1}, generations(t, w, disabled), "it is asked for anew, or not made")
}

// TestAReplayGoesOnWhereItWasKilled kills the connection of each of five steps that is about to queue, and lets two
// processes go on.
func TestAReplayGoesOnWhereItWasKilled(t *testing.T) {
	t.Parallel()
	const events = 12_000
	w := begun(t)
	leads(t, w, "acme", events)
	id := register(t, w, "acme", "https://a.example", "*")
	w.Append(t, "acme", event.WebhookStream(id), replayAll())
	spread(t, w)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() { replayer(w).Run(ctx) })
	}
	defer running.Wait()
	defer stop()
	conn := pgtest.Connect(t, w.URL)
	for range 5 {
		blocking, err := conn.Begin(t.Context())
		require.NoError(t, err)
		pgtest.Exec(t, blocking, `LOCK TABLE delivery.queue IN SHARE MODE`)
		var done bool
		require.Eventually(t, func() bool {
			var killed int
			err := blocking.QueryRow(t.Context(), `
				SELECT count(pg_terminate_backend(pid)), (SELECT finished_at IS NOT NULL FROM delivery.replay)
				  FROM pg_locks WHERE relation = 'delivery.queue'::regclass AND NOT granted`).Scan(&killed, &done)
			return err == nil && (killed > 0 || done)
		}, projectiontest.Soon, time.Millisecond)
		require.False(t, done, "it was killed before it could queue")
		require.NoError(t, blocking.Rollback(t.Context()))
	}
	require.Eventually(t, func() bool {
		var done bool
		err := conn.QueryRow(t.Context(), `SELECT finished_at IS NOT NULL FROM delivery.replay`).Scan(&done)
		return err == nil && done
	}, projectiontest.Soon, 5*time.Millisecond)
	require.Equal(t, map[int]int{1: events}, generations(t, w, id))
	queued := pgtest.Value[int](t, conn, `SELECT queued FROM delivery.replay`)
	require.Equal(t, events, queued)
}
