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

func TestPauseAfter_GrowsUpToALimit(t *testing.T) {
	t.Parallel()
	const interval = 20 * time.Millisecond
	for events, want := range map[int]time.Duration{
		0: interval, 1: interval, 19: interval, 20: 2 * interval, 60: 4 * interval, 80: 5 * interval, 100_000: 5 * interval,
	} {
		require.Equal(t, want, pauseAfter(interval, events), "%d events", events)
	}
}
