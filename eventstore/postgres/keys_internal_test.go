package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// The writer keeps its plans. One that is made when the log is a few rows long, and the server knows it, must serve when
// it is millions long.
func TestKeysAreKeptWithoutALookAtTheWholeLog(t *testing.T) {
	t.Parallel()
	config, err := poolConfig(Options{URL: pgtest.DatabaseFrom(t, "log", Migrate)})
	require.NoError(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	_, err = conn.Exec(t.Context(), `
		INSERT INTO log.event (position, recorded_at, revision, event_id, stream, type, data, metadata)
		SELECT i, now(), 0, gen_random_uuid(), 'lead-' || i, 't', '', '' FROM generate_series(1, 60) i`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `ANALYZE log.event`)
	require.NoError(t, err)

	_, err = conn.Prepare(t.Context(), "keys", keepKeys)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE keys ('{}', '{}', '{}', '{}', '{}')`, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.Contains(t, plan, "Index Cond: (stream = ", plan)
	require.NotContains(t, plan, "Materialize", plan)
}
