package postgres_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// database returns the address of a database with an empty log.
func database(t testing.TB) string {
	t.Helper()
	return pgtest.DatabaseFrom(t, "log", postgres.Migrate)
}

func open(t testing.TB, options postgres.Options) *postgres.Store {
	t.Helper()
	options.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	store, err := postgres.Open(context.Background(), options)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func fact(data string) eventstore.Event {
	return eventstore.Event{
		ID: ulid.Make(), Type: "test.happened.v1", At: time.Now().UTC().Truncate(time.Millisecond), Data: []byte(data),
	}
}

func TestTheStoreHoldsWhatEveryStoreMust(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) eventstore.Store { return open(t, postgres.Options{URL: database(t)}) },
		storetest.Capabilities{GapFree: true})
}
