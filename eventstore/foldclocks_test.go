package eventstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

// Processes whose clocks differ append to one stream. What it was is then what stood there before anything later did, however
// often it is asked for: an event was left out, and remembered as left out of what the stream is now.
func TestAMomentOfAStreamWhoseTimesGoBackHoldsWhatStoodBeforeAnythingLater(t *testing.T) {
	t.Parallel()
	folds, h := eventstore.NewFolds(count), rotated(t, make([]string, 200)...)
	for i := range h.events {
		h.events[i].At = second(i)
	}
	h.events[100].At, h.events[199].At = second(500), second(150)
	at := func(n int) int {
		t.Helper()
		counted, end, err := folds.LoadAt(t.Context(), h, "token-1", second(n))
		require.NoError(t, err)
		require.Equal(t, h.events[199].ID, end.ID)
		return counted
	}
	now := func() int {
		t.Helper()
		counted, _, err := folds.Load(t.Context(), h, "token-1")
		require.NoError(t, err)
		return counted
	}
	require.Equal(t, 100, at(300))
	require.Equal(t, 200, now())

	folds = eventstore.NewFolds(count)
	grew := h
	grew.events = h.events[:150]
	_, _, err := folds.Load(t.Context(), grew, "token-1")
	require.NoError(t, err)
	require.Equal(t, 200, now(), "read on from there")
	require.Equal(t, []int{100, 100, 51, 200, 100}, []int{at(300), at(150), at(50), at(500), at(499)})
	require.Equal(t, 200, now())
}
