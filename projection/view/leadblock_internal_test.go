package view

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// maintainOnce does a part of what there is to do on blocks, on a connection of its own.
func maintainOnce(t *testing.T, conn *pgx.Conn, l *leadBlocks) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return l.Run(t.Context(), tx) }))
}

// emptyViews opens views that hold nothing.
func emptyViews(t *testing.T) *pgx.Conn {
	t.Helper()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	pgtest.Exec(t, conn, `SET search_path = views`)
	return conn
}

// In a crowd an account has enough new leads for a block many times a second, and none of them is old enough.
func TestLeadBlock_ScanInterval(t *testing.T) {
	t.Parallel()
	conn := emptyViews(t)
	l := Lead{}.Maintenance().(*leadBlocks)
	for l.Due() { // at what is there already
		maintainOnce(t, conn, l)
	}
	created := make([]projection.Event, 3*blockLeads)
	for i := range created {
		created[i].Recorded = &eventstore.Recorded{Event: eventstore.Event{Metadata: event.Metadata{Account: "acme"}}}
	}
	l.Note(created)
	require.Equal(t, []string{"acme"}, l.full)
	require.True(t, l.Due())

	began := time.Now()
	maintainOnce(t, conn, l)
	require.Empty(t, l.full)
	require.True(t, l.rests.After(began), "there was nothing to do")

	l.Note(created)
	l.cleared, l.rests = false, time.Now().Add(time.Hour)
	require.False(t, l.Due())
	require.True(t, l.Pending(), "there will be")

	pgtest.Exec(t, conn, `
		INSERT INTO lead SELECT n, 'busy', now() + n * interval '1 s', 'new', 'warm', 'api', '', '', '', '{}' FROM generate_series(1, $1) AS n`, 2*blockLeads)
	l.full, l.rests = []string{"acme", "busy"}, time.Time{}
	maintainOnce(t, conn, l)
	require.Equal(t, []string{"busy"}, l.full, "there may be more")
	require.True(t, l.Due(), "another account, which needs nothing, delays no account")
}

// They reach the age of ten seconds after the last look.
func TestLeadBlock_IncludesLastLeads(t *testing.T) {
	t.Parallel()
	conn := emptyViews(t)
	pgtest.Exec(t, conn, `
		INSERT INTO lead SELECT n, 'acme', now() - n * interval '1 ms', 'new', 'warm', 'api', '', '', '', '{}' FROM generate_series(1, $1) AS n`, 3*blockLeads)
	made := func() int {
		return pgtest.Value[int](t, conn, `SELECT count(*) FROM lead_block`)
	}
	l := Lead{}.Maintenance().(*leadBlocks)
	for l.Due() {
		maintainOnce(t, conn, l)
	}
	require.Zero(t, made())
	require.True(t, l.Pending(), "they grow older")

	pgtest.Exec(t, conn, `UPDATE lead SET created_at = created_at - interval '1 minute'`)
	l.ripe = time.Now()
	for l.Due() {
		maintainOnce(t, conn, l)
	}
	require.Equal(t, 2, made(), "the last 128 begin no other block")
	require.False(t, l.Pending())
}

// The account that had been taken up was forgotten, until it had 128 leads more.
func TestLeadBlock_RetriesAfterFailure(t *testing.T) {
	t.Parallel()
	conn := emptyViews(t)
	l := Lead{}.Maintenance().(*leadBlocks)
	for l.Due() {
		maintainOnce(t, conn, l)
	}
	pgtest.Exec(t, conn, `
		INSERT INTO lead SELECT n, 'acme', now() - n * interval '1 minute', 'new', 'warm', 'api', '', '', '', '{}' FROM generate_series(1, $1) AS n`, 2*blockLeads)
	l.look("acme")
	pgtest.Exec(t, conn, `ALTER TABLE lead_block RENAME TO away`)
	require.Error(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return l.Run(t.Context(), tx) }))
	pgtest.Exec(t, conn, `ALTER TABLE away RENAME TO lead_block`)
	for l.Due() {
		maintainOnce(t, conn, l)
	}
	blocks := pgtest.Value[int](t, conn, `SELECT count(*) FROM lead_block`)
	require.Equal(t, 1, blocks)
}
