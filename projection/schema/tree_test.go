package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/schema"
)

// PostgreSQL read all tiles to join them with those that were wanted.
func TestTrees_ReadOnlyWanted(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	pool := open(t, url)
	pgtest.Exec(t, pool, `
		INSERT INTO audit.tile (origin, level, number, hashes) SELECT 'log', 0, i, sha256('x')
		FROM generate_series(0, 5000) AS i;
		INSERT INTO views.token_tree (account, level, number, hashes) SELECT 'acme', 0, i, sha256('x')
		FROM generate_series(0, 5000) AS i`)
	wanted := []tlog.Tile{{L: 0, N: 7}, {L: 1, N: 7}}
	for n := range int64(40) {
		wanted = append(wanted, tlog.Tile{L: 0, N: 100 * n}, tlog.Tile{L: 0, N: 7})
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		read := func() (rows int) {
			err := tx.QueryRow(t.Context(), `
				SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables
				WHERE relname IN ('tile', 'token_tree')`).Scan(&rows)
			require.NoError(t, err)
			return rows
		}
		before := read()
		for range 10 { // after some executions PostgreSQL plans a statement for any arguments
			for _, tree := range []schema.Tree{schema.LogTree("log"), schema.TokenTree("acme")} {
				tiles, err := tree.Tiles(t.Context(), tx, wanted)
				require.NoError(t, err)
				require.Len(t, tiles, 41)
			}
		}
		require.Less(t, read()-before, 1000)
		return nil
	}))
}
