package postgres_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func TestMigrateTwiceKeepsTheLog(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, postgres.Migrate(t.Context(), url))
	store := open(t, postgres.Options{URL: url})
	require.NoError(t, store.Current(t.Context()))
	epoch, err := store.Epoch(t.Context())
	require.NoError(t, err)
	storetest.Append(t, store, start("a", fact(`{}`)))

	require.NoError(t, postgres.Migrate(t.Context(), url))
	require.NoError(t, store.Current(t.Context()))
	again, err := store.Epoch(t.Context())
	require.NoError(t, err)
	require.Equal(t, epoch, again)
	head := storetest.Head(t, store)
	require.EqualValues(t, 1, head)
}

func TestManyProcessesMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	errs := make([]error, 4)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = postgres.Migrate(t.Context(), url) })
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, open(t, postgres.Options{URL: url}).Current(t.Context()))
}

func TestEachLogHasAnEpochOfItsOwn(t *testing.T) {
	t.Parallel()
	var epochs []string
	for range 2 {
		url := pgtest.Database(t) // not a copy of one that is migrated, whose epoch would be copied too
		require.NoError(t, postgres.Migrate(t.Context(), url))
		epoch, err := open(t, postgres.Options{URL: url}).Epoch(t.Context())
		require.NoError(t, err)
		epochs = append(epochs, epoch)
	}
	require.NotEqual(t, epochs[0], epochs[1])
}

func TestASchemaOfAnotherVersionIsToldApart(t *testing.T) {
	t.Parallel()
	empty := open(t, postgres.Options{URL: pgtest.Database(t), Patience: forever}) // it does not wait for a schema to come
	require.ErrorIs(t, empty.Current(t.Context()), migration.ErrOld)
	_, err := empty.Append(t.Context(), start("a", fact(`{}`)))
	require.ErrorIs(t, err, eventstore.ErrUnavailable)

	url := database(t)
	store := open(t, postgres.Options{URL: url})
	require.NoError(t, store.Current(t.Context()))
	execute(t, url, `INSERT INTO log.migration (version_id, is_applied) VALUES (999, true)`)
	require.ErrorIs(t, store.Current(t.Context()), migration.ErrNew)
	execute(t, url, `DELETE FROM log.migration WHERE version_id > 0`)
	require.ErrorIs(t, store.Current(t.Context()), migration.ErrOld)
}

func TestOperatorsReadPayloadsAsJSON(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url})
	e := fact(`{"name": "Zoë"}`)
	e.Metadata.Account = "acme"
	storetest.Append(t, store, start("a", e, fact(`{"nul": "\u0000"}`), fact("\xff")))
	require.EqualValues(t, 1, execute(t, url, `SELECT FROM log.event_readable WHERE data ->> 'name' = 'Zoë' AND metadata ->> 'account' = 'acme'`))
	require.EqualValues(t, 3, execute(t, url, `SELECT data FROM log.event_readable`), "also what jsonb cannot hold")
}
