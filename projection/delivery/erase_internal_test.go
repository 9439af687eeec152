package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// It blocks the deliveries of all accounts.
func TestEraseDeliveries_UsesIndex(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	const others = 3000
	pgtest.Exec(t, w.Pool, `SELECT delivery.open_day($1)`, time.Now().UTC())
	mine := ""
	rows := &pgx.Batch{}
	for i := range others + 1 {
		id, stream := ulid.Make().String(), fmt.Sprintf("lead-%d", i)
		if stream == "lead-1" {
			mine = id
		}
		rows.Queue(`INSERT INTO delivery.delivery (delivery_id, webhook_id, event_id, generation, type, stream,
			revision, position, renderer)
			VALUES ($1, 'w', $1, 0, 'lead.created', $2, 0, 1, 1)`, id, stream)
		rows.Queue(`INSERT INTO delivery.queue (delivery_id, webhook_id, type, stream, revision, position, renderer)
			VALUES ($1, 'w', 'lead.created', $2, 0, 1, 1)`, id, stream)
		rows.Queue(
			`INSERT INTO delivery.attempt (delivery_id, at, status, duration_ms, response, error)
				VALUES ($1, now(), 500, 1, 'said', 'quoted')`, id,
		)
	}
	require.NoError(t, w.Pool.SendBatch(t.Context(), rows).Close())

	var read, queue, said int
	var state string
	require.NoError(t, pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL search_path = delivery`); err != nil {
			return err
		}
		if err := eraseDeliveries(t.Context(), tx, []string{"lead-1"}, nil); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), `SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)
			FROM pg_stat_xact_all_tables WHERE schemaname = 'delivery'`).Scan(&read)
	}))
	require.Less(t, read, 100)
	require.NoError(t, w.Pool.QueryRow(t.Context(), `
		SELECT (SELECT state FROM delivery.delivery WHERE delivery_id = $1), (SELECT count(*) FROM delivery.queue),
		       (SELECT count(*) FROM delivery.attempt WHERE response <> ''
		         AND error <> '')`, mine).Scan(&state, &queue, &said))
	require.Equal(t, "cancelled", state)
	require.Equal(t, others, queue)
	require.Equal(t, others, said)
}
