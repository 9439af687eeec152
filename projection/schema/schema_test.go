package schema_test

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/projection/schema"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

//go:embed snapshot_test.sql
var catalogue string

var update = flag.Bool("update", false, "write schema.sql and the manual's tables as the migrations make them")

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Pool(t, url)
	return pool
}

func TestSchema_SnapshotMatchesMigrations(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	snapshot := "-- What the migrations come to. Written by: go test ./projection/schema " +
		"-update\n\n" + describe(t, open(t, url))
	if *update {
		require.NoError(t, os.WriteFile("schema.sql", []byte(snapshot), 0o644))
	}
	checkedIn, err := os.ReadFile("schema.sql")
	require.NoError(t, err)
	require.Equal(t, string(checkedIn), snapshot)
}

func describe(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	tables := pgtest.Rows[string](t, pool, catalogue)
	require.NotEmpty(t, tables)
	return strings.Join(tables, "\n\n") + "\n"
}

// Readers of the views know them by their comments, which the manual repeats.
func TestSchema_ViewsAreDescribed(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	pool := open(t, url)
	const relations = `
		 FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relnamespace = 'views'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p', 'f')
		  AND c.relname NOT IN ('migration', 'migration_lock') `
	require.Empty(t, pgtest.Rows[string](t, pool, `SELECT DISTINCT c.relname::text `+relations+`
		AND obj_description(c.oid, 'pg_class') IS NULL`), "tables without a comment")
	require.Empty(t, pgtest.Rows[string](t, pool, `SELECT c.relname || '.' || a.attname `+relations+`
		AND col_description(c.oid, a.attnum) IS NULL`), "columns without a comment")

	const file, heading = "../../deploy/docs/analysts.md", "\n## Tables\n"
	manual, err := os.ReadFile(file)
	require.NoError(t, err)
	before, _, found := strings.Cut(string(manual), heading)
	require.True(t, found)
	tables := pgtest.Rows[string](t, pool, `
		SELECT format(E'\n### %s\n\n%s\n\n| column | type | meaning |\n|---|---|---|\n%s\n', c.relname,
		              obj_description(c.oid, 'pg_class'),
		              string_agg(format('| `+"`%s`"+` | %s | %s |', a.attname, format_type(a.atttypid, a.atttypmod),
		                                replace(col_description(c.oid, a.attnum), '|', '\|')), E'\n' ORDER BY a.attnum))
		`+relations+`GROUP BY c.oid, c.relname ORDER BY c.relname COLLATE "C"`)
	want := before + heading + "\nWritten from the comments of the schema `views` by `go test ./projection/schema -update`.\n" +
		strings.Join(tables, "")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(manual))
}

func TestMigrate_Concurrent(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	var group errgroup.Group
	for range 3 {
		group.Go(func() error { return schema.Migrate(t.Context(), url) })
	}
	require.NoError(t, group.Wait())
	require.NoError(t, schema.Current(t.Context(), open(t, url)))
}

func TestSchema_DetectsOtherVersion(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := open(t, url)
	require.ErrorIs(t, schema.Current(t.Context(), pool), migration.ErrOld, "an empty database")

	require.NoError(t, schema.Migrate(t.Context(), url))
	require.NoError(t, schema.Current(t.Context(), pool))

	pgtest.Exec(t, pool, `INSERT INTO views.migration (version_id, is_applied) VALUES (9999, true)`)
	require.ErrorIs(t, schema.Current(t.Context(), pool), migration.ErrNew)

	pgtest.Exec(t, pool, `DELETE FROM views.migration WHERE version_id > 0`)
	require.ErrorIs(t, schema.Current(t.Context(), pool), migration.ErrOld)
}

func TestSchema_MigrateRestoresDroppedViews(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := open(t, url)
	require.NoError(t, schema.Migrate(t.Context(), url))
	before := describe(t, pool)
	pgtest.Exec(t, pool, `
		INSERT INTO secret.webhook (webhook_id, key_id, sealed) VALUES ('w', 'k', 's');
		DROP SCHEMA views CASCADE`)

	require.NoError(t, schema.Migrate(t.Context(), url))
	require.Equal(t, before, describe(t, pool))
	kept := pgtest.Value[int](t, pool, `SELECT count(*) FROM secret.webhook`)
	require.Equal(t, 1, kept)
}

func TestSchema_ViewTablesAreIndependent(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	pool := open(t, url)
	require.NoError(t, schema.Migrate(t.Context(), url))
	pgtest.Exec(t, pool, `CREATE SCHEMA shadow`)
	tables := pgtest.Rows[string](t, pool,
		`SELECT tablename FROM pg_tables WHERE schemaname = 'views' AND tablename NOT LIKE 'migration%'`)
	require.Contains(t, tables, "lead")
	for _, table := range tables {
		pgtest.Exec(t, pool, fmt.Sprintf(`CREATE TABLE shadow.%[1]s (LIKE views.%[1]s INCLUDING ALL)`, table))
	}
	pgtest.Exec(t, pool, `DROP SCHEMA views CASCADE`)
	left := pgtest.Value[int](t, pool, `SELECT count(*) FROM pg_tables WHERE schemaname = 'shadow'`)
	require.Equal(t, len(tables), left)
}

func TestUnavailable_Errors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err         error
		unavailable bool
	}{
		"nothing":                {nil, false},
		"connection lost":        {&pgconn.PgError{Code: "08006"}, true},
		"shutting down":          {&pgconn.PgError{Code: "57P01"}, true},
		"too many connections":   {&pgconn.PgError{Code: "53300"}, true},
		"a standby":              {&pgconn.PgError{Code: "25006"}, true},
		"a deadlock":             {&pgconn.PgError{Code: "40P01"}, true},
		"files unreadable":       {&pgconn.PgError{Code: "58030"}, true},
		"JSON that ends early":   {jsonThatEndsEarly(), false},
		"a bad statement":        {&pgconn.PgError{Code: "42601"}, false},
		"an unreadable value":    {&pgconn.PgError{Code: "22021"}, false},
		"an answer without code": {&pgconn.PgError{}, false},
		"cut off":                {fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true},
		"too slow":               {fmt.Errorf("acquire: %w", context.DeadlineExceeded), true},
		"the caller left":        {fmt.Errorf("acquire: %w", context.Canceled), false},
		"no rows":                {pgx.ErrNoRows, false},
		"something else":         {errors.New("else"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			marked := schema.Unavailable(c.err)
			require.ErrorIs(t, marked, c.err, "the cause stays")
			require.Equal(t, c.unavailable, errors.Is(marked, eventstore.ErrUnavailable))
		})
	}
}

func jsonThatEndsEarly() error {
	var into map[string]int
	return json.Unmarshal([]byte(`{"a"`), &into)
}

func TestAnalyze_GrownTablesOfOwnRole(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	pool := open(t, url)
	pgtest.Exec(t, pool, `
		CREATE SCHEMA many;
		CREATE TABLE many.mine AS SELECT i FROM generate_series(1, 100) AS i;
		CREATE TABLE many.others (LIKE many.mine)`)
	var lines bytes.Buffer
	analyze := func(written int64) (known []float32) {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		require.NoError(t,
			schema.Analyze(t.Context(), conn.Conn(), slog.New(slog.NewTextHandler(&lines, nil)), "many", nil, written))
		return pgtest.Rows[float32](t, pool,
			`SELECT reltuples FROM pg_class WHERE relnamespace = 'many'::regnamespace AND relkind = 'r'
				ORDER BY relname`)
	}
	require.Equal(t, []float32{100, 0}, analyze(100))
	require.Empty(t, lines.String())

	pgtest.Exec(t, pool, `INSERT INTO many.mine SELECT i FROM generate_series(1, 20) AS i`)
	require.Equal(t, []float32{100, 0}, analyze(20), "a table that has grown by less than a quarter")
	superuser, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	superuser.User = "postgres"
	conn, err := pgx.ConnectConfig(t.Context(), superuser)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	pgtest.Exec(t, conn, `ALTER TABLE many.others OWNER TO postgres; INSERT INTO many.others VALUES (1)`)
	require.Equal(t, []float32{120, 0}, analyze(100))
	require.Contains(t, lines.String(), "table=many.others owner=postgres")
}
