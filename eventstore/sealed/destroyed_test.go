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
	onBoth(t, func(t *testing.T, p fixture) {
		store, other, stream := p.open(), p.open(), event.VisitorStream("acme", "aa")
		acted := event.VisitorActed{VisitorID: "v", Kind: "click"}
		for range 2 {
			storetest.AppendNext(t, other, stream, fact(t, acted))
		}
		require.NoError(t, store.Destroy(t.Context(), stream))
		storetest.AppendNext(t, store, stream, fact(t, event.VisitorForgotten{}))
		_, err := other.Append(t.Context(), write(stream, eventstore.At(1), fact(t, acted)))
		require.NotNil(t, eventstore.Conflict(err))
		storetest.AppendNext(t, other, stream, fact(t, acted))
		all := read(t, store, stream)
		require.Len(t, all, 4)
		require.False(t, all[3].Erased)
	})
}

// A split begins a new key. The keys of before it are destroyed without the later events, which another process may
// append that has cached an earlier key.
func TestDestroyBefore_KeepsLaterEvents(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, other, stream := p.open(), p.open(), event.LeadStream("01KAHQ5V8M3N6R9T2W4Y7Z0B1A")
		named := func(name string) event.LeadMerged {
			return event.LeadMerged{LeadFields: event.LeadFields{Name: name}, Source: "api"}
		}
		for _, name := range []string{"a", "b"} {
			storetest.AppendNext(t, other, stream, fact(t, named(name)))
		}
		for range 5 { // each has a later key
			storetest.AppendNext(t, store, stream, fact(t, event.LeadSplit{Into: "x"}))
		}
		require.Len(t, read(t, other, stream), 7)
		storetest.AppendNext(t, other, stream, fact(t, named("c")))
		before := eventstore.Revision(6)
		held, err := store.HasKeysBefore(t.Context(), stream, before)
		require.NoError(t, err)
		require.True(t, held)
		for range 2 {
			require.NoError(t, store.DestroyBefore(t.Context(), stream, before))
			held, err = store.HasKeysBefore(t.Context(), stream, before)
			require.NoError(t, err)
			require.False(t, held)
		}
		for i, recorded := range read(t, store, stream) {
			require.Equal(t, i < 6, recorded.Erased, "revision %d", i)
		}
	})
}

func TestAppend_SealedWithoutExpectation(t *testing.T) {
	t.Parallel()
	stream := event.VisitorStream("acme", "aa")
	_, err := newFixture(t, "").open().Append(t.Context(), write(stream, eventstore.Any, fact(t, event.VisitorActed{
		VisitorID: "v", Kind: "click",
	})))
	require.ErrorIs(t, err, eventstore.ErrInvalid)
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

// When log and keys are in different databases, a new key is stored before its first event, and may be destroyed in
// between.
func TestAppend_DestroyedNewKey(t *testing.T) {
	t.Parallel()
	p := newFixture(t, esdbtest.Empty(t))
	other, stream := p.open(), event.VisitorStream("acme", "aa")
	acted := event.VisitorActed{VisitorID: "v", Kind: "click"}
	forget := sync.OnceFunc(func() {
		storetest.AppendNext(t, other, stream, fact(t, acted))
		require.NoError(t, other.Destroy(t.Context(), stream))
		storetest.AppendNext(t, other, stream, fact(t, event.VisitorForgotten{}))
	})
	store := sealed.Wrap(hookedStore{p.below(), forget}, p.vault(sealKey), false, slog.New(slog.DiscardHandler))
	_, err := store.Append(t.Context(), write(stream, eventstore.NoStream, fact(t, acted)))
	require.NotNil(t, eventstore.Conflict(err))
	storetest.AppendNext(t, store, stream, fact(t, acted))
	all := read(t, other, stream)
	require.Len(t, all, 3)
	require.False(t, all[2].Erased)
}

// The last event of a stream is marked as erased.
func TestLast_AfterDestruction(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, other, stream := p.open(), p.open(), event.VisitorStream("acme", "aa")
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, event.VisitorActed{
			VisitorID: "v", Kind: "click",
		})))
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
