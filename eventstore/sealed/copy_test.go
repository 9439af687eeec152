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

// A log that is copied into a database of its own has its persons there, and those that were forgotten have not.
func TestCopyKeys(t *testing.T) {
	t.Parallel()
	from, to := newPlace(t, ""), newPlace(t, "")
	store, stays, goes, again := from.open(), newLead(), newLead(), event.VisitorStream("acme", "aa")
	for _, stream := range []string{stays, goes} {
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
	}
	come := func() {
		storetest.Append(t, store, write(again, eventstore.Any, fact(t, event.VisitorActed{VisitorID: "v", Kind: "click"})))
	}
	come()
	require.NoError(t, sealed.CopyKeys(t.Context(), from.pool, from.pool), "to itself")
	require.NoError(t, sealed.CopyKeys(t.Context(), from.pool, to.pool))
	require.NoError(t, store.Destroy(t.Context(), goes, again))
	come()
	require.NoError(t, sealed.CopyKeys(t.Context(), from.pool, to.pool))
	require.Equal(t, 1, to.keys(stays))
	require.Zero(t, to.keys(goes))
	require.Equal(t, 1, to.keys(again), "of what came since")
	require.Contains(t, string(read(t, store, stays)[0].Data), "Asha")
	moved := sealed.Wrap(from.giving(nil), to.vault(sealKey), true, slog.New(slog.DiscardHandler))
	require.Contains(t, string(read(t, moved, stays)[0].Data), "Asha")
	require.True(t, read(t, moved, goes)[0].Erased)
	acts := read(t, moved, again)
	require.True(t, acts[0].Erased)
	require.False(t, acts[1].Erased)
}
