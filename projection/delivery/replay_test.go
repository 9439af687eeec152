package delivery_test

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
)

// leads appends new leads in batches.
func leads(t testing.TB, w *projectiontest.World, account string, n int) {
	t.Helper()
	const most = 200
	for n > 0 {
		var writes []eventstore.Write
		for range min(n, most) {
			at := w.NewEvent()
			name, data, err := event.Encode(deliverytest.NewLead("Ann"))
			require.NoError(t, err)
			at.Type, at.Data, at.Metadata.Account = name, data, account
			writes = append(writes, eventstore.Write{
				Stream: event.LeadStream(at.ID.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{at},
			})
		}
		storetest.Append(t, w.Store, writes...)
		n -= min(n, most)
	}
}

// generations counts an endpoint's deliveries by generation.
func generations(t *testing.T, w *projectiontest.World, webhookID string) map[int]int {
	t.Helper()
	rows, err := w.Pool.Query(t.Context(),
		`SELECT generation, count(*) FROM delivery.delivery WHERE webhook_id = $1 GROUP BY 1`, webhookID)
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

func TestReplay_Span(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	lead, other := event.LeadStream(w.NewID()), event.LeadStream(w.NewID())
	w.Append(t, "acme", lead, deliverytest.NewLead("Before there was an endpoint"))
	id := deliverytest.Register(t, w, "acme", "https://a.example", "lead.merged")
	all := deliverytest.Register(t, w, "acme", "https://b.example", "*")
	w.Append(t, "acme", lead, event.LeadMerged{Source: "whatsapp"})
	since := w.NewEvent().At
	w.Append(t, "acme", lead, event.LeadMerged{Source: "website"}, event.LeadUpdated{
		LeadFields: event.LeadFields{Name: "A"},
	})
	w.Append(t, "globex", other, deliverytest.NewLead("Theirs"), event.LeadMerged{Source: "website"})
	until := w.NewEvent().At
	w.Append(t, "acme", lead, event.LeadMerged{Source: "chatbot"})
	span := event.WebhookReplayed{Since: since, Until: until, Generation: 1}
	w.Append(t, "acme", event.WebhookStream(id), span, event.WebhookUpdated{
		WebhookSettings: event.WebhookSettings{URL: "https://a.example", Events: []string{"token.created"}},
		Changed:         []string{"events"},
	})
	w.Append(t, "acme", event.WebhookStream(all), span)
	w.Append(t, "acme", lead, event.LeadMerged{Source: "landing"})
	deliverytest.CatchUp(t, w)
	sent(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 3, 1: 1}, generations(t, w, id), "what it asked for when the replay was asked for")
	require.Equal(t, map[int]int{0: 5, 1: 2}, generations(t, w, all))

	w.Append(t, "acme", event.WebhookStream(all), event.WebhookReplayed{
		Since: projectiontest.Start, Until: projectiontest.Start.Add(time.Hour), Generation: 2,
	})
	deliverytest.CatchUp(t, w)
	sent(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 5, 1: 2, 2: 6}, generations(t, w, all),
		"the next generation, with what was before the endpoint")
	sent(t, w)
	replay(t, w)
	finished := pgtest.Value[int](t, w.Pool,
		`SELECT count(*) FROM delivery.replay WHERE finished_at IS NOT NULL AND queued IN (1, 2, 6)`)
	require.Equal(t, 3, finished)
}

// An event may be appended after later ones: another process stamped it and appended it with a delay.
func TestReplay_SinceDisabledAt(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	late := w.NewEvent()
	name, data, err := event.Encode(deliverytest.NewLead("Late"))
	require.NoError(t, err)
	late.Type, late.Data, late.Metadata.Account = name, data, "acme"
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Before"))
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookDisabled{Reason: "owner"})
	disabledAt := at(t, w, event.WebhookStream(id))
	storetest.Append(t, w.Store, eventstore.Write{
		Stream: event.LeadStream(late.ID.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{late},
	})
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("During"))
	enabling := w.NewEvent()
	early := w.NewEvent() // by a clock that is ahead
	early.Type, early.Data, early.Metadata.Account = name, data, "acme"
	early.At = early.At.Add(time.Hour)
	storetest.Append(t, w.Store, eventstore.Write{
		Stream: event.LeadStream(early.ID.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{early},
	})
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookEnabled{})
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("After"))
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookReplayed{
		Since: disabledAt, Until: enabling.At, Generation: 1,
	})
	deliverytest.CatchUp(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 2, 1: 3}, generations(t, w, id), "all that was not queued: late, during, and early")
}

// at is the time of a stream's last event.
func at(t *testing.T, w *projectiontest.World, stream string) (last time.Time) {
	t.Helper()
	for recorded, err := range w.Store.Read(t.Context(), stream, 0) {
		require.NoError(t, err)
		last = recorded.At
	}
	return last
}

func TestReplay_SkipsQueued(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	leads(t, w, "acme", 3)
	deliverytest.CatchUp(t, w)
	pgtest.Exec(t, w.Pool, `UPDATE delivery.queue SET due_at = now() + interval '1 hour'`)
	leads(t, w, "acme", 2)
	w.Append(t, "acme", event.WebhookStream(id), replayAll())
	deliverytest.CatchUp(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 5}, generations(t, w, id))
	require.Zero(t, pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM delivery.queue WHERE due_at > now()`),
		"what waits for a later attempt is due")
	sent(t, w)
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookReplayed{
		Since: projectiontest.Start, Until: projectiontest.Start.Add(time.Hour), Generation: 2,
	})
	deliverytest.CatchUp(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 5, 2: 5}, generations(t, w, id))
}

func TestReplay_EndsAfterFirstAttempts(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	leads(t, w, "acme", 2)
	deliverytest.CatchUp(t, w)
	sent(t, w)
	w.Append(t, "acme", event.WebhookStream(id), replayAll())
	deliverytest.CatchUp(t, w)
	var ended []delivery.EndedReplay
	r := replayer(t, w)
	r.End = func(_ context.Context, e delivery.EndedReplay) error { ended = append(ended, e); return nil }
	runOnce := func() { t.Helper(); _, err := r.RunOnce(t.Context()); require.NoError(t, err) }
	runOnce()
	runOnce()
	require.Empty(t, ended, "nothing was attempted")
	pgtest.Exec(t, w.Pool,
		`UPDATE delivery.queue SET attempts = 1 WHERE delivery_id = (SELECT min(delivery_id) FROM delivery.queue)`)
	runOnce()
	require.Empty(t, ended, "one was not")
	pgtest.Exec(t, w.Pool, `UPDATE delivery.queue SET attempts = 1`)
	runOnce()
	require.Equal(t, []delivery.EndedReplay{{WebhookID: id, Generation: 1}}, ended)
	runOnce()
	require.Len(t, ended, 1)
}

func TestReplay_BeforeDeliveriesBegan(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	ended, open := deliverytest.Register(t, w, "acme", "https://a.example", "*"),
		deliverytest.Register(t, w, "acme", "https://b.example", "*")
	leads(t, w, "acme", 1)
	w.Append(t, "acme", event.WebhookStream(ended), replayAll(), event.WebhookReplayEnded{Generation: 1})
	w.Append(t, "acme", event.WebhookStream(open), replayAll())
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	deliverytest.CatchUp(t, w)
	var reported []delivery.EndedReplay
	r := replayer(t, w)
	r.End = func(_ context.Context, e delivery.EndedReplay) error { reported = append(reported, e); return nil }
	for range 2 {
		_, err := r.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t,
		[]delivery.EndedReplay{{WebhookID: open, Generation: 1, Failure: "deliveries began after it was asked for"}},
		reported)
	require.Empty(t, generations(t, w, open))
}

func TestReplay_Budget(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	leads(t, w, "acme", 25)
	deliverytest.CatchUp(t, w)
	sent(t, w)
	w.Append(t, "acme", event.WebhookStream(id), replayAll())
	deliverytest.CatchUp(t, w)
	r := replayer(t, w)
	var wanted []int
	r.Budget = func(_ context.Context, account string, n int) (int, time.Duration, error) {
		require.Equal(t, "acme", account)
		require.Zero(t, pgtest.Value[int](t, w.Pool, `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND state = 'idle in transaction'`), "no lock is held meanwhile")
		wanted = append(wanted, n)
		return min(n, 10), time.Hour, nil
	}
	for i := range 4 {
		_, err := r.RunOnce(t.Context())
		require.NoError(t, err)
		moved, err := r.RunOnce(t.Context())
		require.NoError(t, err)
		require.False(t, moved, "it waits for the budget, or for attempts")
		require.Equal(t, map[int]int{0: 25, 1: min(25, 10*(i+1))}, generations(t, w, id))
		pgtest.Exec(t, w.Pool, `UPDATE delivery.replay SET due_at = now()`)
	}
	require.Equal(t, []int{25, 15, 5}, wanted)
}

// The position before a queued event was saved: a budget of one delivery queued the same one for ever, and counted it
// each time.
func TestReplay_SmallestBudget(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	leads(t, w, "acme", 3)
	deliverytest.CatchUp(t, w)
	sent(t, w)
	w.Append(t, "acme", event.WebhookStream(id), replayAll())
	deliverytest.CatchUp(t, w)
	r := replayer(t, w)
	r.Budget = func(context.Context, string, int) (int, time.Duration, error) { return 1, 0, nil }
	for n := range 3 {
		_, err := r.RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[int]int{0: 3, 1: n + 1}, generations(t, w, id))
		sent(t, w) // so that the queue does not show that it was queued
	}
	for range 2 { // to the end of the log, and the end of the replay
		_, err := r.RunOnce(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []string{"3 t"},
		pgtest.Rows[string](t, w.Pool, `SELECT concat(queued, ' ', finished_at IS NOT NULL) FROM delivery.replay`))
}

func TestReplay_StartsAtPosition(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	for hours := range 5 {
		appendAt(t, w, projectiontest.Start.Add(time.Duration(hours)*time.Hour))
	}
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookReplayed{
		Since: projectiontest.Start.Add(3 * time.Hour), Until: projectiontest.Start.Add(24 * time.Hour), Generation: 1,
	})
	w.Project(t)
	deliverytest.CatchUp(t, w)
	sent(t, w)
	started := &startingPoints{Store: w.Store}
	r := replayer(t, w)
	r.Store = started
	_, err := r.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[int]int{0: 5, 1: 2}, generations(t, w, id))
	known := pgtest.Rows[int64](t, w.Pool, `SELECT position FROM views.time_index`)
	require.Len(t, started.after, 1)
	require.Contains(t, known, int64(started.after[0]), "a position that the log gave")
}

// EventStoreDB subscribes only from positions of its records.
func TestReplay_OnEventStoreDB(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	store, err := esdb.Open(t.Context(), esdb.Options{URL: esdbtest.Empty(t), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	w.Store = store
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	for hours := range 6 {
		appendAt(t, w, projectiontest.Start.Add(time.Duration(hours)*time.Hour))
	}
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookReplayed{
		Since: projectiontest.Start.Add(4 * time.Hour), Until: projectiontest.Start.Add(24 * time.Hour), Generation: 1,
	})
	w.Project(t)
	deliverytest.CatchUp(t, w)
	sent(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 6, 1: 2}, generations(t, w, id))
}

// startingPoints is a store that records where subscriptions start.
type startingPoints struct {
	eventstore.Store
	after []eventstore.Position
}

func (s *startingPoints) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	s.after = append(s.after, after)
	return s.Store.Subscribe(ctx, after, filter)
}

func TestReplay_FailureDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	require.NoError(t, delivery.Begin(t.Context(), w.Pool, w.Store))
	broken, sound := deliverytest.Register(t, w, "acme", "https://a.example", "*"),
		deliverytest.Register(t, w, "globex", "https://b.example", "*")
	unreadable := w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	w.Append(t, "globex", event.LeadStream(w.NewID()), deliverytest.NewLead("Ben"))
	span := event.WebhookReplayed{
		Since: projectiontest.Start, Until: projectiontest.Start.Add(time.Hour), Generation: 1,
	}
	w.Append(t, "acme", event.WebhookStream(broken), span) // first in the queue
	w.Append(t, "globex", event.WebhookStream(sound), span)
	deliverytest.CatchUp(t, w)
	pgtest.Exec(t, w.Pool, `ALTER TABLE log.event DISABLE TRIGGER ALL`)
	pgtest.Exec(t, w.Pool, `UPDATE log.event SET type = 'lead.invented.v1' WHERE position = $1`, int64(unreadable))
	sent(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1, 1: 1}, generations(t, w, sound))
	require.Equal(t, map[int]int{0: 1}, generations(t, w, broken))
	failure := pgtest.Value[string](t, w.Pool, `SELECT error FROM delivery.replay WHERE finished_at IS NOT NULL`)
	require.Equal(t, "an event cannot be read by this version of the service", failure,
		"its owner is shown why it ended")
}

// Replays do not fill the queue, and a long queue of one endpoint does not delay another.
func TestReplay_LongQueue(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	behind, other := deliverytest.Register(t, w, "acme", "https://a.example", "*"),
		deliverytest.Register(t, w, "acme", "https://b.example", "*")
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	for _, id := range []string{behind, other} {
		w.Append(t, "acme", event.WebhookStream(id), replayAll())
	}
	deliverytest.CatchUp(t, w)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer)
		SELECT 'waits-' || n, $1, 'lead.created', 'lead-1', 0, 1, 1 FROM generate_series(0, 150000) AS n`, behind)
	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.queue WHERE delivery_id NOT LIKE 'waits-%'`)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1}, generations(t, w, behind))
	require.Equal(t, map[int]int{0: 1, 1: 1}, generations(t, w, other))
	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.queue WHERE delivery_id LIKE 'waits-%'`)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1, 1: 1}, generations(t, w, behind))
}

func TestReplay_Partition(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	for ago := range 40 {
		appendAt(t, w, time.Now().Add(-time.Duration(60-ago)*day))
	}
	w.Append(t, "acme", event.WebhookStream(id), event.WebhookReplayed{
		Since: time.Now().Add(-90 * day), Until: time.Now(), Generation: 1,
	})
	deliverytest.CatchUp(t, w)
	sent(t, w)
	before := len(dayTables(t, w, "delivery"))
	replay(t, w)
	require.Equal(t, map[int]int{0: 40, 1: 40}, generations(t, w, id))
	require.LessOrEqual(t, len(dayTables(t, w, "delivery")), before+1)
}

func TestReplay_DisabledEndpoint(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	disabled, deleted := deliverytest.Register(t, w, "acme", "https://a.example", "*"),
		deliverytest.Register(t, w, "acme", "https://b.example", "*")
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	w.Append(t, "acme", event.WebhookStream(disabled), replayAll(), event.WebhookDisabled{Reason: "owner"},
		event.WebhookEnabled{}, event.WebhookDisabled{Reason: "owner"})
	w.Append(t, "acme", event.WebhookStream(deleted), replayAll(), event.WebhookDeleted{})
	deliverytest.CatchUp(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1}, generations(t, w, disabled))
	require.Equal(t, map[int]int{0: 1}, generations(t, w, deleted))
	w.Append(t, "acme", event.WebhookStream(disabled), event.WebhookEnabled{})
	deliverytest.CatchUp(t, w)
	replay(t, w)
	require.Equal(t, map[int]int{0: 1}, generations(t, w, disabled), "it is requested again, or not carried out")
}

// TestReplay_ResumesAfterKill kills the connection twice before the first transaction queues deliveries and once before
// the second one does, and lets two processes continue.
func TestReplay_ResumesAfterKill(t *testing.T) {
	t.Parallel()
	const events = 9000 // two transactions
	const lock = `LOCK TABLE delivery.queue IN SHARE MODE`
	w := deliverytest.New(t)
	leads(t, w, "acme", events)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	w.Append(t, "acme", event.WebhookStream(id), replayAll())
	deliverytest.CatchUp(t, w)
	first, err := pgtest.Connect(t, w.URL).Begin(t.Context())
	require.NoError(t, err)
	second, err := pgtest.Connect(t, w.URL).Begin(t.Context())
	require.NoError(t, err)
	pgtest.Exec(t, first, lock)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 2 {
		r := replayer(t, w)
		running.Go(func() { r.Run(ctx) })
	}
	defer running.Wait()
	defer stop()
	conn := pgtest.Connect(t, w.URL)
	killed := []int32{0}
	waiting := func(mode string) (pid int32) {
		t.Helper()
		require.Eventually(t, func() bool {
			return conn.QueryRow(t.Context(), `
				SELECT pid FROM pg_locks WHERE relation = 'delivery.queue'::regclass AND NOT granted
				   AND mode = $1 AND pid <> ALL ($2) LIMIT 1`, mode, killed).Scan(&pid) == nil
		}, projectiontest.Soon, 10*time.Millisecond)
		return pid
	}
	kill := func() {
		t.Helper()
		pid := waiting("RowExclusiveLock")
		pgtest.Exec(t, conn, `SELECT pg_terminate_backend($1)`, pid)
		killed = append(killed, pid)
	}
	kill()
	kill()
	waiting("RowExclusiveLock")
	locked := make(chan error, 1)
	go func() {
		_, err := second.Exec(t.Context(), lock)
		locked <- err
	}()
	waiting("ShareLock") // behind the first transaction, and before the second
	require.NoError(t, first.Rollback(t.Context()))
	require.NoError(t, <-locked)
	require.True(t, pgtest.Value[bool](t, conn, `SELECT reached < requested FROM delivery.replay`))
	kill()
	require.NoError(t, second.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		var done bool
		err := conn.QueryRow(t.Context(), `SELECT reached = requested FROM delivery.replay`).Scan(&done)
		return err == nil && done
	}, projectiontest.Soon, 10*time.Millisecond)
	require.Equal(t, map[int]int{1: events}, generations(t, w, id))
	queued := pgtest.Value[int](t, conn, `SELECT queued FROM delivery.replay`)
	require.Equal(t, events, queued)
}

func TestRequest_OncePerLog(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	id := deliverytest.Register(t, w, "acme", "https://a.example", "*")
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"))
	deliverytest.CatchUp(t, w)
	w.Append(t, "acme", event.WebhookStream(id),
		event.WebhookRetried{DeliveryID: pgtest.Value[string](t, w.Pool, `SELECT delivery_id FROM delivery.delivery`)},
		event.WebhookTested{}, replayAll())
	deliverytest.CatchUp(t, w)
	require.EqualValues(t, 2, sent(t, w), "the lead and the test")
	replay(t, w)
	require.EqualValues(t, 1, sent(t, w), "the lead again")
	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.checkpoint`)
	deliverytest.CatchUp(t, w)
	replay(t, w)
	require.Zero(t, sent(t, w))
}

func replayAll() event.WebhookReplayed {
	return event.WebhookReplayed{Since: projectiontest.Start, Until: projectiontest.Start.Add(time.Hour), Generation: 1}
}

func replayer(t *testing.T, w *projectiontest.World) delivery.Replayer {
	t.Helper()
	leases := schema.NewLeases(w.Pool.Config().ConnConfig)
	t.Cleanup(leases.Close)
	return delivery.Replayer{
		Pool: w.Pool, Leases: leases, Store: w.Store, Log: slog.New(slog.DiscardHandler),
		Filters: delivery.NewFilters(w.Store, nil),
	}
}

// sent marks all queued deliveries as sent, and returns their number.
func sent(t *testing.T, w *projectiontest.World) (n int64) {
	t.Helper()
	done, err := w.Pool.Exec(t.Context(),
		`WITH gone AS (DELETE FROM delivery.queue) UPDATE delivery.delivery SET state = 'delivered'
			WHERE state = 'queued'`)
	require.NoError(t, err)
	return done.RowsAffected()
}

// replay runs the requested replays.
func replay(t *testing.T, w *projectiontest.World) {
	t.Helper()
	for {
		worked, err := replayer(t, w).RunOnce(t.Context())
		require.NoError(t, err)
		if !worked {
			return
		}
	}
}
