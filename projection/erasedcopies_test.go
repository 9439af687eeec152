package projection_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// A verification may drop its copy at any time.
func TestCopies_DroppedMeanwhile(t *testing.T) {
	t.Parallel()
	gone := projection.Forgotten{Leads: []string{"01KAJ8Q6ZJ0000000000000001"}}
	for name, look := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"delete": func(ctx context.Context, tx pgx.Tx) error { return projection.DeleteFromCopies(ctx, tx, gone) },
		"look": func(ctx context.Context, tx pgx.Tx) error {
			found, err := projection.InCopies(ctx, tx, gone)
			require.False(t, found)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := projectiontest.New(t)
			for _, statement := range []string{
				`CREATE SCHEMA going`, `COMMENT ON SCHEMA going IS 'leadlog copy of views'`,
				`CREATE TABLE going.lead (lead_id text)`,
			} {
				pgtest.Exec(t, w.Pool, statement)
			}
			dropping, err := w.Pool.Begin(t.Context())
			require.NoError(t, err)
			pgtest.Exec(t, dropping, `DROP SCHEMA going CASCADE`)

			looked := make(chan error, 1)
			go func() {
				looked <- pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error { return look(t.Context(), tx) })
			}()
			require.Eventually(t, func() bool {
				var waits bool
				err := w.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits)
				return err == nil && waits
			}, projectiontest.Soon, projectiontest.Soon/10_000)
			require.NoError(t, dropping.Commit(t.Context()))
			require.NoError(t, <-looked)
		})
	}
}
