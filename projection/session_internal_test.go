package projection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCrowded_RestsLongerUpToALimit(t *testing.T) {
	t.Parallel()
	const rest = 20 * time.Millisecond
	for events, want := range map[int]time.Duration{0: rest, 1: rest, 19: rest, 20: 2 * rest, 60: 4 * rest, 80: 5 * rest, 100_000: 5 * rest} {
		require.Equal(t, want, crowded(rest, 5*rest, events), "%d events", events)
	}
}

// The trigram index costs more than the other views of a capture together.
func TestRunner_LeadSearchRestsLongest(t *testing.T) {
	t.Parallel()
	runner, err := New(Options{URL: "postgres://localhost/leadlog", Projectors: All()})
	require.NoError(t, err)
	for _, w := range runner.workers {
		want := 100 * time.Millisecond
		if w.projector == (LeadSearch{}) {
			want = 300 * time.Millisecond
		}
		require.Equal(t, 20*time.Millisecond, w.pace.rest, w.projector.Name())
		require.Equal(t, want, w.pace.longestRest, w.projector.Name())
	}
}
