package esdb

import (
	"context"
	"iter"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func openForm(t testing.TB, server *esdbtest.Server, locksOnly bool) *Store {
	t.Helper()
	store, err := Open(context.Background(), Options{
		URL: server.URL(), Namespace: "test/", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Poll: 20 * time.Millisecond, Timeout: 3 * time.Minute,
	})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	store.locksOnly = locksOnly
	_, err = store.Epoch(t.Context()) // connects, which decides the form
	require.NoError(t, err)
	return store
}

func TestStore_ConformanceWithAppendRecords(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) eventstore.Store {
		server := esdbtest.Start(t)
		server.Upgrade()
		server.NoiseAfterAppends("another/s")
		return openForm(t, server, false)
	}, storetest.Capabilities{Events: 2_000})
}

// TestStore_ConformanceOfBothForms runs the suite on a log to which two processes append at once: one by AppendRecords,
// the other by locks.
func TestStore_ConformanceOfBothForms(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) eventstore.Store {
		server := esdbtest.Start(t)
		server.Upgrade()
		return either{openForm(t, server, false), openForm(t, server, true)}
	}, storetest.Capabilities{Events: 2_000})
}

// either is two stores with one log. Each call is that of either.
type either [2]*Store

func (e either) one() *Store { return e[rand.N(2)] }

func (e either) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	return e.one().Append(ctx, writes...)
}

func (e either) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	return e.one().Read(ctx, stream, from)
}

func (e either) Last(ctx context.Context, stream string) (eventstore.Recorded, error) {
	return e.one().Last(ctx, stream)
}

func (e either) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	return e.one().Subscribe(ctx, after, filter)
}

func (e either) Head(ctx context.Context) (eventstore.Position, error) { return e.one().Head(ctx) }

func (e either) Epoch(ctx context.Context) (string, error) { return e.one().Epoch(ctx) }
