package sealed_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// The keys of a log are copied to another database. A destroyed key is removed from the copy.
func TestCopyKeys(t *testing.T) {
	t.Parallel()
	from, to := newFixture(t, ""), newFixture(t, "")
	store, kept, destroyed, returning := from.open(), newLead(), newLead(), event.VisitorStream("acme", "aa")
	for _, stream := range []string{kept, destroyed} {
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
	}
	visit := func() {
		storetest.AppendNext(t, store, returning, fact(t, event.VisitorActed{VisitorID: "v", Kind: "click"}))
	}
	visit()
	arrival, expired := newArrival(), newArrival()
	for _, stream := range []string{arrival, expired} {
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, posted("Asha"))))
	}
	require.NoError(t, sealed.CopyKeys(t.Context(), from.pool, from.pool), "to itself")
	require.NoError(t, sealed.CopyKeys(t.Context(), from.pool, to.pool))
	require.NoError(t, store.Destroy(t.Context(), destroyed, returning, expired))
	visit()
	require.NoError(t, sealed.CopyKeys(t.Context(), from.pool, to.pool))
	require.Equal(t, 1, to.keys(kept))
	require.Zero(t, to.keys(destroyed))
	require.Equal(t, 1, to.keys(returning), "the key of the later activity")
	require.Contains(t, string(read(t, store, kept)[0].Data), "Asha")
	moved := sealed.Wrap(from.below(), to.vault(sealKey), true, slog.New(slog.DiscardHandler))
	require.Contains(t, string(read(t, moved, kept)[0].Data), "Asha")
	require.True(t, read(t, moved, destroyed)[0].Erased)
	require.Equal(t, "Asha", rawOf(t, read(t, moved, arrival)))
	require.Zero(t, to.contents(expired))
	acts := read(t, moved, returning)
	require.True(t, acts[0].Erased)
	require.False(t, acts[1].Erased)
}
