package projection

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// In a crowd an account has enough new leads for a block many times a second, and none of them is old enough.
func TestAnAccountWithManyNewLeadsIsLookedAtOnceInAWhile(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `SET search_path = views`)
	require.NoError(t, err)

	l := LeadView{}.filling().(*leadBlocks)
	for l.due() { // at what is there already
		require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return l.fill(t.Context(), tx) }))
	}
	births := make([]Event, 3*blockLeads)
	for i := range births {
		births[i].Recorded = eventstore.Recorded{Event: eventstore.Event{Metadata: event.Metadata{Account: "acme"}}}
	}
	l.note(births)
	require.Equal(t, []string{"acme"}, l.full)
	require.True(t, l.due())

	began := time.Now()
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return l.fill(t.Context(), tx) }))
	require.Empty(t, l.full)
	require.True(t, l.rests.After(began), "there was nothing to do")

	l.note(births)
	l.blurred, l.rests = false, time.Now().Add(time.Hour)
	require.False(t, l.due())
	require.True(t, l.pending(), "there will be")

	_, err = conn.Exec(t.Context(), `
		INSERT INTO lead SELECT n, 'busy', now() + n * interval '1 s', 'new', 'warm', 'api', '', '', '', '{}' FROM generate_series(1, $1) AS n`, 2*blockLeads)
	require.NoError(t, err)
	l.full, l.rests = []string{"acme", "busy"}, time.Time{}
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return l.fill(t.Context(), tx) }))
	require.Equal(t, []string{"busy"}, l.full, "there may be more")
	require.True(t, l.due(), "another account, which needs nothing, holds nobody up")
}
