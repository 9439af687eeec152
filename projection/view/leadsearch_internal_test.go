package view

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// While events are appended, maintenance does not delay the view.
func TestLeadSearch_RestsWhileBusy(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	pgtest.Exec(t, conn, `SET search_path = views`)
	pgtest.Exec(t, conn, `
		INSERT INTO lead SELECT n, 'acme', now(), 'new', 'warm', 'api', '', '', '', '{}'
		FROM generate_series(1, $1) AS n`, 2*indexedAtOnce)
	work := Lead{}.Maintenance().(*searchIndexing)
	run := func() {
		t.Helper()
		require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return work.Run(t.Context(), tx) }))
	}
	require.True(t, work.Due())
	run()
	require.True(t, work.pausedUntil.IsZero())
	require.True(t, work.Due(), "there are more")
	work.Note([]projection.Event{{Recorded: &eventstore.Recorded{Event: eventstore.Event{}, Revision: 1}}})
	run()
	require.False(t, work.pausedUntil.IsZero())
	require.True(t, work.Pending(), "there may be more")
	run()
	require.False(t, work.Pending())
	work.Note([]projection.Event{{Recorded: &eventstore.Recorded{}}})
	require.True(t, work.Pending(), "a lead was created")
}
