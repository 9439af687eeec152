package schema_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

func leaseDatabase(t *testing.T) (connect func() *pgx.Conn) {
	t.Helper()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	return func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
}

func takes(t *testing.T, session schema.Querier, name string) bool {
	t.Helper()
	taken, err := schema.AcquireLease(t.Context(), session, name)
	require.NoError(t, err)
	return taken
}

func TestLease_EndsWithSession(t *testing.T) {
	t.Parallel()
	connect := leaseDatabase(t)
	first, second := connect(), connect()
	require.True(t, takes(t, first, "a"))
	require.True(t, takes(t, first, "a"), "again")
	require.False(t, takes(t, second, "a"))
	require.True(t, takes(t, second, "b"), "another lease")

	require.NoError(t, first.Close(t.Context()))
	require.Eventually(t, func() bool { return takes(t, second, "a") }, time.Minute, time.Millisecond)
	require.NoError(t, schema.ReleaseLease(t.Context(), second, "a"))
	require.True(t, takes(t, connect(), "a"))
}

// Process ids are reused: the session that now has one may be a reader's.
func TestLease_ProcessIDReused(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]string{
		"by a later session":   `UPDATE lease.session SET started = started - interval '1 second'`,
		"by another's session": `UPDATE lease.session SET role = 0`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			connect := leaseDatabase(t)
			first, second := connect(), connect()
			require.True(t, takes(t, first, "a"))
			require.False(t, takes(t, second, "a"))
			pgtest.Exec(t, second, change)
			require.True(t, takes(t, second, "a"))
		})
	}
}

// A pooler resets the session of a client that has ended, and gives it to another.
func TestLease_SessionReset(t *testing.T) {
	t.Parallel()
	connect := leaseDatabase(t)
	first, second := connect(), connect()
	require.True(t, takes(t, first, "a"))
	require.True(t, takes(t, first, "b"))
	require.False(t, takes(t, second, "a"))
	require.False(t, takes(t, second, "b"))
	pgtest.Exec(t, first, `RESET ALL`) // DISCARD ALL also ends the prepared statements of the driver
	require.True(t, takes(t, second, "a"))
	require.True(t, takes(t, first, "b"), "by the next client")
	require.False(t, takes(t, second, "b"))
}

// A transaction reads the list of sessions once. A session that started later must not count as ended.
func TestLease_StaleSessionList(t *testing.T) {
	t.Parallel()
	connect := leaseDatabase(t)
	gone := connect()
	require.True(t, takes(t, gone, "a"))
	tx, err := connect().Begin(t.Context())
	require.NoError(t, err)
	pgtest.Exec(t, tx, `SELECT FROM pg_stat_activity`)
	require.NoError(t, gone.Close(t.Context()))
	later := connect()
	require.Eventually(t, func() bool { return takes(t, later, "a") }, time.Minute, time.Millisecond)
	require.False(t, takes(t, tx, "a"))
	require.NoError(t, tx.Rollback(t.Context()))
}

// While a transaction takes a lease, other sessions do not wait for it.
func TestLease_AcquiredInTransaction(t *testing.T) {
	t.Parallel()
	connect := leaseDatabase(t)
	pgtest.Exec(t, connect(), `INSERT INTO lease.session (name, pid, role) VALUES ('a', 0, 0)`)
	tx, err := connect().Begin(t.Context())
	require.NoError(t, err)
	require.True(t, takes(t, tx, "a"))
	other := connect()
	require.False(t, takes(t, other, "a"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.True(t, takes(t, other, "a"))
}

func acquire(t *testing.T, leases *schema.Leases, name string) *schema.Lease {
	t.Helper()
	lease, err := leases.Acquire(t.Context(), name)
	require.NoError(t, err)
	return lease
}

func ends(t *testing.T, lease *schema.Lease) {
	t.Helper()
	select {
	case <-lease.Context.Done():
	case <-time.After(time.Minute):
		require.Fail(t, "the lease has not ended")
	}
}

func newLeases(t *testing.T, conn *pgx.Conn) *schema.Leases {
	t.Helper()
	leases := schema.NewLeases(conn.Config())
	t.Cleanup(leases.Close)
	return leases
}

func TestLeases_EndWithSession(t *testing.T) {
	t.Parallel()
	admin := leaseDatabase(t)()
	first, second := newLeases(t, admin), newLeases(t, admin)
	a, b := acquire(t, first, "a"), acquire(t, first, "b")
	require.NotNil(t, a)
	require.NotNil(t, b)
	require.Nil(t, acquire(t, second, "a"))

	a.Release()
	require.ErrorIs(t, a.Context.Err(), context.Canceled)
	require.NoError(t, b.Context.Err())
	a = acquire(t, second, "a")
	require.NotNil(t, a)

	// The session ends. Another session may take the lease before the holder detects the loss.
	pgtest.Exec(t, admin, `SELECT pg_terminate_backend(pid) FROM lease.session WHERE name = 'b'`)
	require.Eventually(t, func() bool { return acquire(t, second, "b") != nil }, time.Minute, time.Millisecond)
	ends(t, b)
	require.ErrorIs(t, context.Cause(b.Context), eventstore.ErrUnavailable)
	b.Release() // has no effect on another session's lease
	require.Nil(t, acquire(t, first, "b"))
	require.NotNil(t, acquire(t, first, "c"), "there is a new session")

	second.Close()
	ends(t, a)
	require.Eventually(t, func() bool { return acquire(t, first, "a") != nil }, time.Minute, time.Millisecond)
}

// The command that moves the views to another log takes leases in a transaction that lasts minutes.
func TestLeases_WaitsForNoTransaction(t *testing.T) {
	t.Parallel()
	connect := leaseDatabase(t)
	leases := newLeases(t, connect())
	held := acquire(t, leases, "a")
	tx, err := connect().Begin(t.Context())
	require.NoError(t, err)
	require.True(t, takes(t, tx, "b"))
	require.Nil(t, acquire(t, leases, "b"))
	require.NoError(t, held.Context.Err(), "other leases are kept")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NotNil(t, acquire(t, leases, "b"))
}
