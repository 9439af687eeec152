package move

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
)

func TestMove_TranslatesEveryPosition(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.Database(t))
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		all, err := newPairs(t.Context(), tx)
		require.NoError(t, err)
		const end = eventstore.Position(2*rowsAtOnce + 1)
		for at := eventstore.Position(1); at <= end; at++ {
			require.NoError(t, all.add(t.Context(), at, 10*at))
		}
		require.NoError(t, all.end(t.Context()))
		require.Equal(t, end, all.last)
		require.EqualValues(t, end,
			pgtest.Value[int](t, tx, `SELECT count(*) FROM pg_temp.pair WHERE target = 10 * source`))
		return nil
	}))
}
