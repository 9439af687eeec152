package sealed

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// For a third of a table PostgreSQL would rather read all of it, and a replay asks for as many, page after page.
func TestKeysOfManyAreLookedUpInTheIndex(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.DatabaseFrom(t, "log", postgres.Migrate))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	_, err = conn.Exec(t.Context(), `
		INSERT INTO person.key SELECT 'lead-' || n, n, 'name', repeat('.', 60)::bytea FROM generate_series(1, 6000) AS n;
		ANALYZE person.key`)
	require.NoError(t, err)
	var asked []string
	rows, err := conn.Query(t.Context(), `SELECT stream FROM person.key WHERE id % 3 = 0`)
	require.NoError(t, err)
	asked, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	rows, err = conn.Query(t.Context(), `EXPLAIN `+selectEach, pgx.QueryExecModeCacheDescribe, asked)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "Index Scan using key_id")
}
