package sealed_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// One process has cached a key that another one destroys, and is not notified yet.
func TestAppend_DestroyedKey(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		store, other, stream := p.open(), p.open(), event.VisitorStream("acme", "aa")
		act := func() error {
			_, err := other.Append(t.Context(), write(stream, eventstore.Any, fact(t, event.VisitorActed{VisitorID: "v", Kind: "click"})))
			return err
		}
		require.NoError(t, act())
		require.NoError(t, act())
		require.NoError(t, store.Destroy(t.Context(), stream))
		conflict := eventstore.Conflict(act())
		require.NotNil(t, conflict)
		require.Equal(t, stream, conflict.Stream)
		require.NoError(t, act())
		all := read(t, store, stream)
		require.False(t, all[len(all)-1].Erased)
	})
}

// hookedStore calls before ahead of each append.
type hookedStore struct {
	eventstore.Store
	before func()
}

func (s hookedStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	s.before()
	return s.Store.Append(ctx, writes...)
}

// When log and keys are in different databases, a new key is stored before its first event, and may be destroyed in between.
func TestAppend_DestroyedNewKey(t *testing.T) {
	t.Parallel()
	p := newPlace(t, esdbtest.Empty(t))
	other, stream := p.open(), event.VisitorStream("acme", "aa")
	forget := sync.OnceFunc(func() { require.NoError(t, other.Destroy(t.Context(), stream)) })
	store := sealed.Wrap(hookedStore{p.below(), forget}, p.vault(sealKey), false, slog.New(slog.DiscardHandler))
	acted := event.VisitorActed{VisitorID: "v", Kind: "click"}
	_, err := store.Append(t.Context(), write(stream, eventstore.Any, fact(t, acted)))
	require.NotNil(t, eventstore.Conflict(err))
	storetest.Append(t, store, write(stream, eventstore.Any, fact(t, acted)))
	all := read(t, other, stream)
	require.False(t, all[len(all)-1].Erased)
}

// The last event of a stream is marked as erased.
func TestLast_AfterDestruction(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		store, other, stream := p.open(), p.open(), event.VisitorStream("acme", "aa")
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, event.VisitorActed{VisitorID: "v", Kind: "click"})))
		last, err := other.Last(t.Context(), stream)
		require.NoError(t, err)
		require.False(t, last.Erased)
		require.Equal(t, read(t, store, stream)[0].Data, last.Data)
		require.NoError(t, store.Destroy(t.Context(), stream))
		last, err = store.Last(t.Context(), stream)
		require.NoError(t, err)
		require.True(t, last.Erased)
	})
}
