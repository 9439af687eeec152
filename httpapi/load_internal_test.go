package httpapi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoad_RefusalChargesNothing(t *testing.T) {
	t.Parallel()
	all := newBudget(2, 2)
	ours, theirs := all.of("acme"), all.of("other")
	require.True(t, theirs.take(2))
	for range 3 {
		_, err := ours.enter()
		require.ErrorIs(t, err, errOverloaded)
	}
	theirs.release(2)
	require.True(t, ours.take(2), "nor later")
	require.False(t, ours.take(1))
	ours.release(2)
	require.Empty(t, all.byAccount, "who has nothing takes up nothing")
}
