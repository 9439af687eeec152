package service

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGCPercent(t *testing.T) {
	t.Parallel()
	require.Equal(t, 700, gcPercent(0), "before anything is known")
	require.Equal(t, 1500, gcPercent(1<<20), "there is an end to it")
	for live := uint64(leastHeap / 16); live <= leastHeap*2/3; live += 100_000 {
		goal := live * uint64(100+gcPercent(live)) / 100
		require.LessOrEqual(t, goal, uint64(leastHeap), live)
		require.Greater(t, goal, uint64(leastHeap)*6/10, live)
	}
	require.Equal(t, 50, gcPercent(leastHeap*2/3))
	require.Equal(t, 50, gcPercent(100*leastHeap))
}
