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

// One process remembers a key that another destroys, and has not heard of that yet.
func TestAppend_DestroyedKey(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		near, far, stream := p.open(), p.open(), event.VisitorStream("acme", "aa")
		act := func() error {
			_, err := far.Append(t.Context(), write(stream, eventstore.Any, fact(t, event.VisitorActed{VisitorID: "v", Kind: "click"})))
			return err
		}
		require.NoError(t, act())
		require.NoError(t, act())
		require.NoError(t, near.Destroy(t.Context(), stream))
		conflict := eventstore.Conflict(act())
		require.NotNil(t, conflict)
		require.Equal(t, stream, conflict.Stream)
		require.NoError(t, act())
		all := read(t, near, stream)
		require.False(t, all[len(all)-1].Erased)
	})
}

// hasty is a store before whose appends something happens.
type hasty struct {
	eventstore.Store
	before func()
}

func (s hasty) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	s.before()
	return s.Store.Append(ctx, writes...)
}

// Where the log is not beside the keys, a new key is there before anything is sealed with it, and may be gone by then.
func TestAppend_DestroyedNewKey(t *testing.T) {
	t.Parallel()
	p := newPlace(t, esdbtest.Empty(t))
	near, stream := p.open(), event.VisitorStream("acme", "aa")
	forget := sync.OnceFunc(func() { require.NoError(t, near.Destroy(t.Context(), stream)) })
	store := sealed.Wrap(hasty{p.below(), forget}, p.vault(sealKey), false, slog.New(slog.DiscardHandler))
	acted := event.VisitorActed{VisitorID: "v", Kind: "click"}
	_, err := store.Append(t.Context(), write(stream, eventstore.Any, fact(t, acted)))
	require.NotNil(t, eventstore.Conflict(err))
	storetest.Append(t, store, write(stream, eventstore.Any, fact(t, acted)))
	all := read(t, near, stream)
	require.False(t, all[len(all)-1].Erased)
}

// The last event of a stream shows whether the stream was erased.
func TestLast_AfterDestruction(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		near, far, stream := p.open(), p.open(), event.VisitorStream("acme", "aa")
		storetest.Append(t, near, write(stream, eventstore.NoStream, fact(t, event.VisitorActed{VisitorID: "v", Kind: "click"})))
		last, err := far.Last(t.Context(), stream)
		require.NoError(t, err)
		require.False(t, last.Erased)
		require.Equal(t, read(t, near, stream)[0].Data, last.Data)
		require.NoError(t, near.Destroy(t.Context(), stream))
		last, err = near.Last(t.Context(), stream)
		require.NoError(t, err)
		require.True(t, last.Erased)
	})
}
