package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func tables(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	var count int
	require.NoError(t,
		conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`).Scan(&count))
	return count
}

func TestDatabase_Empty(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pgtest.Database(t))
			require.Zero(t, tables(t, conn))
			_, err := conn.Exec(t.Context(), `CREATE TABLE lead (id text)`)
			require.NoError(t, err)
		})
	}
}

func TestDatabase_DroppedWithSessions(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("uses it", func(t *testing.T) {
		url = pgtest.Database(t)
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		require.NoError(t, conn.Ping(t.Context()))
	})
	_, err := pgx.Connect(t.Context(), url)
	require.ErrorContains(t, err, "does not exist")
}

func TestDatabaseFrom_PreparesTemplateOnce(t *testing.T) {
	t.Parallel()
	var prepared atomic.Int32
	prepare := func(ctx context.Context, url string) error {
		prepared.Add(1)
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, `CREATE TABLE lead (id text)`)
		return errors.Join(err, conn.Close(ctx))
	}
	t.Run("copies", func(t *testing.T) {
		for i := range 4 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				conn := connect(t, pgtest.DatabaseFrom(t, "one table", prepare))
				require.Equal(t, 1, tables(t, conn))
				_, err := conn.Exec(t.Context(), `CREATE TABLE mine (id text)`)
				require.NoError(t, err)
			})
		}
	})
	require.EqualValues(t, 1, prepared.Load())
}
