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

// testTimeout bounds every wait of these tests, and is only reached by a failing test.
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

// Each store shares its server with another log and with system events. The number of events is reduced, because with
// the race detector ten thousand take minutes.
func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) eventstore.Store {
		server := esdbtest.Start(t)
		server.NoiseAfterAppends("another/s")
		return open(t, namespaced(server.URL()))
	}, storetest.Capabilities{Events: 2_000})
}

// TestStore_ConformanceOnRealServer runs the suite on the server at esdbtest.URLVariable, if it is set.
func TestStore_ConformanceOnRealServer(t *testing.T) {
	t.Parallel()
	if address := os.Getenv(esdbtest.URLVariable); address != "" {
		storetest.Run(t, func(t testing.TB) eventstore.Store {
			return open(t, namespaced(address))
		}, storetest.Capabilities{})
	}
}

func namespaced(address string) esdb.Options {
	return esdb.Options{URL: address, Namespace: "test-" + ulid.Make().String() + "/"}
}
