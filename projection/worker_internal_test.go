package projection

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Readiness is asked about seldom. A view that was up to date then, and is behind now by an event of a moment ago, is not stalled.
func TestWorker_StalledAfterQuietTime(t *testing.T) {
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
