package courier

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// A lost session is reopened while results are saved. Rows that were returned to the queue must not get the new
// session's lease: they would stay claimed until the process ends.
func TestSession_ReopenKeepsReturnedRows(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	for id, lease := range map[string]int{"back": -1, "held": -1, "another's": -2} {
		pgtest.Exec(t, w.Pool, `
			INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer, lease)
			VALUES ($1, 'w', 'lead.created', 'lead-1', 0, 1, 1, $2)`, id, lease)
	}
	back := row{id: "back", webhookID: "w"}
	require.Len(t, courier.windows.add([]row{back, {id: "held", webhookID: "w"}}), 2)
	given := result{row: back, state: queued, wait: time.Hour}
	courier.windows.done(given)
	_, err := courier.save(t.Context(), []result{given})
	require.NoError(t, err)
	s, err := courier.open(t.Context())
	require.NoError(t, err)
	defer s.close(t.Context())
	again, _ := courier.windows.saved([]result{given})
	require.Empty(t, again)
	require.Equal(t, map[string]int32{"back": 0, "held": s.id, "another's": -2}, leases(t, w))
}

// leases returns the lease of each row of the queue, 0 for an unclaimed row.
func leases(t *testing.T, w *projectiontest.World) map[string]int32 {
	t.Helper()
	found := map[string]int32{}
	var id string
	var lease int32
	rows, err := w.Pool.Query(t.Context(), `SELECT delivery_id, coalesce(lease, 0) FROM delivery.queue`)
	require.NoError(t, err)
	_, err = pgx.ForEachRow(rows, []any{&id, &lease}, func() error {
		found[id] = lease
		return nil
	})
	require.NoError(t, err)
	return found
}

func TestClaim_DueRowsWithoutLease(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	open := func() *session {
		s, err := courier.open(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { s.close(context.Background()) })
		return s
	}
	s, another := open(), open()
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.endpoint (webhook_id, account, url, events, deleted, disabled)
		SELECT id, 'acme', 'https://example.com/' || id, '{*}', false, false FROM unnest(ARRAY['many', 'one']) AS id;
		INSERT INTO delivery.origin (epoch, position) VALUES ('log', 0);
		INSERT INTO delivery.checkpoint (projector, version, epoch, position, updated_at)
		VALUES ('fanout', 1, 'log', 0, now());
		INSERT INTO lease.session (name, pid, role) VALUES ('courier -3', 0, 0)`)
	put := func(id, webhookID string, position int, lease *int32, wait time.Duration) {
		pgtest.Exec(t, w.Pool, `
			INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer, lease,
			  due_at)
			VALUES ($1, $2, 'lead.created', 'lead-1', 0, $3, 1, $4,
			  now() + $5::interval)`, id, webhookID, position, lease, wait)
	}
	gone := int32(-3)
	put("another's", "many", 0, &another.id, 0)
	put("of one who is gone", "many", 0, &gone, -time.Hour)
	put("later", "many", 0, nil, time.Hour)
	put("about to be taken", "many", 0, nil, -time.Minute)
	for n := range firstSlots + 1 {
		put(fmt.Sprint(n), "many", n, nil, -time.Second)
	}
	put("one", "one", 99, nil, 0)
	tx, err := w.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	pgtest.Exec(t, tx, `SELECT FROM delivery.queue WHERE delivery_id = 'about to be taken' FOR UPDATE`)

	ctx, cancel := context.WithTimeout(t.Context(), projectiontest.Soon)
	defer cancel()
	claim := func() (ids []string) {
		rows, err := s.claim(ctx, courier.windows)
		require.NoError(t, err)
		for _, r := range rows {
			require.Equal(t, "https://example.com/"+r.webhookID, r.url)
			ids = append(ids, r.id)
		}
		return ids
	}
	require.ElementsMatch(t, []string{"0", "1", "2", "3", "one"}, claim(),
		"of each endpoint as many as its window has free")
	require.NoError(t, s.reclaim(ctx))
	require.Equal(t, map[string]int32{
		"another's": another.id, "of one who is gone": 0, "later": 0, "about to be taken": 0,
		"0": s.id, "1": s.id, "2": s.id, "3": s.id, "4": 0, "one": s.id,
	}, leases(t, w))
	require.ElementsMatch(t, []string{"of one who is gone", "4"}, claim())
}

func TestClaim_LiveBeforeReplayed(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	s, err := courier.open(t.Context())
	require.NoError(t, err)
	defer s.close(t.Context())
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.endpoint (webhook_id, account, url, events)
		VALUES ('w', 'acme', 'https://example.com', '{*}');
		INSERT INTO delivery.origin (epoch, position) VALUES ('log', 0);
		INSERT INTO delivery.checkpoint (projector, version, epoch, position, updated_at)
		VALUES ('fanout', 1, 'log', 0, now());
		INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer, generation,
		  due_at)
		SELECT CASE WHEN n > 9 THEN 'live ' ELSE 'replayed ' END || n, 'w', 'lead.created', 'lead-1', 0, n, 1,
		       CASE WHEN n > 9 THEN 0 ELSE 1 END, now() - interval '1 hour' + n * interval '1 second'
		  FROM generate_series(1, 11) AS n`)
	rows, err := s.claim(t.Context(), courier.windows)
	require.NoError(t, err)
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.id)
	}
	require.ElementsMatch(t, []string{"live 10", "live 11", "replayed 1", "replayed 2"}, ids)
	require.Equal(t, []int{0, 0, 1, 1}, []int{
		rows[0].generation, rows[1].generation, rows[2].generation, rows[3].generation,
	})
}

// After a restore the fan-out reads the log again, and endpoints have earlier URLs until it has caught up.
func TestClaim_WaitsForFanOut(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	courier := New(Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	s, err := courier.open(t.Context())
	require.NoError(t, err)
	defer s.close(t.Context())
	claimed := func(after string) int {
		pgtest.Exec(t, w.Pool, after)
		rows, err := s.claim(t.Context(), courier.windows)
		require.NoError(t, err)
		return len(rows)
	}
	require.Zero(t, claimed(`
		INSERT INTO delivery.endpoint (webhook_id, account, url, events, deleted, disabled)
		VALUES ('w', 'acme', 'https://old.example', '{*}', false, false);
		INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer)
		VALUES ('d', 'w', 'lead.created', 'lead-1', 0, 1, 1);
		INSERT INTO delivery.origin (epoch, position) VALUES ('other', 1), ('log', 5)`))
	require.Zero(t,
		claimed(
			`INSERT INTO delivery.checkpoint (projector, version, epoch, position, updated_at)
				VALUES ('fanout', 1, 'log', 4, now())`,
		))
	require.Equal(t, 1, claimed(`UPDATE delivery.checkpoint SET position = 5`))
}
