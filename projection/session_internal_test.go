package projection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEventsThatComeInCrowdsShareMoreOfATransactionButAreNotKeptForLong(t *testing.T) {
	t.Parallel()
	const rest = 20 * time.Millisecond
	for events, want := range map[int]time.Duration{0: rest, 1: rest, 19: rest, 20: 2 * rest, 60: 4 * rest, 80: 5 * rest, 100_000: 5 * rest} {
		require.Equal(t, want, crowded(rest, events), "%d events", events)
	}
}
