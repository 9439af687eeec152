package courier

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// claimed inserts claimed rows into the queue.
func claimed(t *testing.T, w *projectiontest.World, attempts, n int) (rows []row) {
	t.Helper()
	for range n {
		id := ulid.Make()
		pgtest.Exec(t, w.Pool, `
			INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer, attempts,
			  lease)
			VALUES ($1, 'w', 'lead.created', 'lead-1', 0, 1, 1, $2, 1)`, id.String(), attempts)
		pgtest.Exec(t, w.Pool, `SELECT delivery.open_day($1)`, id.Timestamp().UTC())
		rows = append(rows, row{id: id.String(), webhookID: "w", attempts: attempts})
	}
	return rows
}

func TestResults_RejectedByDatabase(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	var batch []result
	for i, r := range claimed(t, w, 1, 5) {
		done := succeeded(r)
		if done.outcome.at = time.Now(); i == 3 {
			done = hasFailed(r)
			done.outcome.at, done.outcome.response, done.wait = time.Now(), "\x00", time.Hour
		}
		batch = append(batch, done)
	}
	ctx, cancel := context.WithTimeout(t.Context(), projectiontest.Soon)
	defer cancel()
	var disabling sync.WaitGroup
	courier.saveWithRetry(ctx, batch, &disabling)
	var left string
	var attempts, free, saved int
	require.NoError(t,
		w.Pool.QueryRow(t.Context(),
			`SELECT delivery_id, attempts, count(*) FILTER (WHERE lease IS NULL) OVER ()
				FROM delivery.queue`).Scan(&left, &attempts, &free))
	require.Equal(t, batch[3].id, left, "the others are finished")
	require.Equal(t, 2, attempts, "and this one goes on with the schedule")
	require.Equal(t, 1, free)
	require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt`).Scan(&saved))
	require.Equal(t, 4, saved)
}

// If a connection is lost during a commit, it is unknown whether the results were saved.
func TestResults_SavedTwice(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	bad := result{row: claimed(t, w, 3, 1)[0], state: queued, attempted: true, wait: time.Hour,
		outcome: outcome{at: time.Now(), status: 500}}
	for range 2 {
		_, err := courier.save(t.Context(), []result{bad})
		require.NoError(t, err)
	}
	attempts := pgtest.Value[int](t, w.Pool, `SELECT attempts FROM delivery.queue`)
	require.Equal(t, 4, attempts)
}

func TestResults_RetriedSinceClaim(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	rows := claimed(t, w, 3, 3)
	pgtest.Exec(t, w.Pool, `UPDATE delivery.queue SET retried = 9, due_at = now() - interval '1 minute'`)
	for range 2 { // the response to a commit may be lost
		results := []result{
			{row: rows[0], state: failed, attempted: true, outcome: outcome{at: time.Now(), status: 500}},
			{
				row: rows[1], state: queued, attempted: true, wait: time.Hour,
				outcome: outcome{at: time.Now(), status: 500},
			},
			{row: rows[2], state: cancelled},
		}
		_, err := courier.save(t.Context(), results)
		require.NoError(t, err)
		require.Equal(t, []string{queued, queued, cancelled}, []string{
			results[0].state, results[1].state, results[2].state,
		})
	}
	left := pgtest.Rows[string](t, w.Pool,
		`SELECT attempts || ' ' || (due_at <= now() AND lease IS NULL) FROM delivery.queue ORDER BY attempts`)
	require.Equal(t, []string{"0 true", "4 true"}, left)
}

// A suspended courier gets a response after another courier has finished the delivery and its lead was erased.
func TestResults_LateResponseIsDropped(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	rows := claimed(t, w, 0, 3)
	pgtest.Exec(t, w.Pool, `DELETE FROM delivery.queue WHERE delivery_id = $1`, rows[0].id)
	var results []result
	for _, r := range rows {
		results = append(results, result{
			row: r, state: queued, attempted: true,
			outcome: outcome{at: time.Now(), status: 500, response: "said", err: errors.New(" and quoted")},
		})
	}
	_, err := courier.save(t.Context(), results)
	require.NoError(t, err)
	kept := func(r row) string {
		t.Helper()
		return pgtest.Value[string](t, w.Pool,
			`SELECT response || error FROM delivery.attempt WHERE delivery_id = $1`, r.id)
	}
	require.Equal(t, []string{"", "said and quoted", "said and quoted"},
		[]string{kept(rows[0]), kept(rows[1]), kept(rows[2])})

	// The lead of a retried delivery turns out to be erased.
	_, err = courier.save(t.Context(), []result{{row: rows[1], state: cancelled, forgotten: true}})
	require.NoError(t, err)
	require.Equal(t, []string{"", "said and quoted"}, []string{kept(rows[1]), kept(rows[2])})
}

func TestResults_WatcherSeesFinished(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	rows := claimed(t, w, 0, 3)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.delivery (delivery_id, webhook_id, event_id, generation, type, stream, revision, position,
		  renderer)
		SELECT delivery_id, webhook_id, delivery_id, 0, type, stream, revision, position, renderer FROM delivery.queue`)
	_, err := courier.save(t.Context(), []result{succeeded(rows[0]), {row: rows[2], state: cancelled}})
	require.NoError(t, err)
	states := pgtest.Value[[]string](t, w.Pool, `SELECT array_agg(state ORDER BY delivery_id) FROM delivery.delivery`)
	require.Equal(t, []string{"delivered", "queued", "cancelled"}, states)
}

// Several couriers save results in any order. The times of the attempts decide.
func TestHealth_FailingSince(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	day := ulid.Now() // of all deliveries
	pgtest.Exec(t, w.Pool, `SELECT delivery.open_day($1)`, ulid.Time(day).UTC())
	for name, c := range map[string]struct {
		batches [][]int // of attempts, each as the second in which it was made, negative when it failed
		want    [3]int  // last success, last failure, failing since; 0 for never
	}{
		"it fails":                               {[][]int{{-1}, {-2}}, [3]int{0, 2, 1}},
		"it does well again":                     {[][]int{{-1}, {2}}, [3]int{2, 1, 0}},
		"it fails after it did well":             {[][]int{{1}, {-2}, {-3}}, [3]int{1, 3, 2}},
		"a failure is saved late":                {[][]int{{2}, {-1}}, [3]int{2, 1, 0}},
		"a success is saved late":                {[][]int{{3}, {1}}, [3]int{3, 0, 0}},
		"an earlier failure is saved late":       {[][]int{{-3}, {-1}}, [3]int{0, 3, 3}},
		"saved together, success last":           {[][]int{{-1, 2}}, [3]int{2, 1, 0}},
		"saved together, failure last":           {[][]int{{-1, 2, -3, -4}}, [3]int{2, 4, 3}},
		"the same of one that has failed before": {[][]int{{-1}, {2, -3, -4}}, [3]int{2, 4, 3}},
	} {
		pgtest.Exec(t, w.Pool,
			`INSERT INTO delivery.endpoint (webhook_id, account, url, events)
				VALUES ($1, 'acme', 'https://example.com', '{*}')`, name)
		for _, attempts := range c.batches {
			var batch []result
			for _, at := range attempts {
				done := succeeded(row{
					id: ulid.MustNew(day, ulid.DefaultEntropy()).String(), webhookID: name, url: "https://example.com",
				})
				if at < 0 {
					done = hasFailed(done.row)
					at = -at
				}
				done.outcome.at = time.Unix(int64(at), 0)
				batch = append(batch, done)
			}
			_, err := courier.save(t.Context(), batch)
			require.NoError(t, err)
		}
		var got [3]int
		require.NoError(t, w.Pool.QueryRow(t.Context(), `
			SELECT coalesce(extract(epoch FROM last_success_at), 0)::int,
			  coalesce(extract(epoch FROM last_failure_at), 0)::int,
			       coalesce(extract(epoch FROM failing_since), 0)::int FROM delivery.health
			       WHERE webhook_id = $1`, name).Scan(&got[0], &got[1], &got[2]))
		require.Equal(t, c.want, got, name)
	}
}
