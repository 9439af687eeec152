package migration

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestSetSession_WaitsForLocks(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	other, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer other.Close(t.Context())
	pgtest.Exec(t, other, `CREATE TABLE thing (n int)`)
	pgtest.Exec(t, other,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 1', current_database()); END $$`)
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	pgtest.Exec(t, tx, `LOCK TABLE thing`)

	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	SetSession(config)
	conn, err := Connect(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	waited := make(chan error)
	go func() {
		_, err := conn.Exec(t.Context(), `ALTER TABLE thing ADD COLUMN more int`)
		waited <- err
	}()
	select {
	case err := <-waited:
		t.Fatalf("not waited for: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-waited)
}
