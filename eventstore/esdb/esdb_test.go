package esdb_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// testTimeout bounds every wait of these tests. Only a broken store reaches it.
const testTimeout = 3 * time.Minute

func open(t testing.TB, options esdb.Options) *esdb.Store {
	t.Helper()
	options.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	if options.Poll == 0 {
		options.Poll = 20 * time.Millisecond
	}
	if options.Timeout == 0 {
		options.Timeout = testTimeout
	}
	store, err := esdb.Open(context.Background(), options)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func fact(data string) eventstore.Event {
	return eventstore.Event{
		ID: ulid.Make(), Type: "test.happened.v1", At: time.Now().UTC().Truncate(time.Millisecond), Data: []byte(data),
	}
}

func start(stream string, events ...eventstore.Event) eventstore.Write {
	return eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: events}
}

// Many writers append fewer events here, where the race detector makes ten thousand take minutes; TestStore_ConformanceOnSharedServer
// appends them all.
func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	servers := map[string]func(testing.TB) esdb.Options{
		"a server of its own": func(t testing.TB) esdb.Options { return esdb.Options{URL: esdbtest.Empty(t)} },
	}
	if address := os.Getenv(esdbtest.URLVariable); address != "" {
		servers["the server at "+esdbtest.URLVariable] = func(testing.TB) esdb.Options { return namespaced(address) }
	}
	for name, options := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) eventstore.Store { return open(t, options(t)) }, storetest.Capabilities{Events: 2_000})
		})
	}
}

func namespaced(address string) esdb.Options {
	return esdb.Options{URL: address, Namespace: "test-" + ulid.Make().String() + "/"}
}
