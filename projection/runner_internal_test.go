package projection

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Readiness is polled rarely. A view that was up to date at the last poll and lags by a recent event is not stalled.
func TestRunner_StalledAfterQuietTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worker{pace: pace{stall: time.Minute}}
		upToDate, behind := Status{Position: 5}, Status{Position: 5, Lag: 1}
		require.False(t, w.stalled(upToDate))
		time.Sleep(time.Hour)
		require.False(t, w.stalled(behind))
		time.Sleep(time.Minute)
		require.True(t, w.stalled(behind))
		require.False(t, w.stalled(Status{Position: 6, Lag: 1}))
		require.False(t, w.stalled(Status{Position: 6}))
	})
}

func TestCrowded_RestUpToALimit(t *testing.T) {
	t.Parallel()
	const rest = 20 * time.Millisecond
	for events, want := range map[int]time.Duration{0: rest, 1: rest, 19: rest, 20: 2 * rest, 60: 4 * rest, 80: 5 * rest, 100_000: 5 * rest} {
		require.Equal(t, want, pauseAfter(rest, events), "%d events", events)
	}
}
