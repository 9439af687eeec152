package eventstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore"
)

func TestBackoff_Pauses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := eventstore.Backoff{Shortest: time.Duration(rapid.Int64Range(1, 1e9).Draw(t, "shortest"))}
		b.Longest = b.Shortest * time.Duration(rapid.Int64Range(1, 100).Draw(t, "longest"))
		for range 2 {
			require.False(t, b.Failing())
			for want := b.Shortest; ; want *= 2 {
				want = min(want, b.Longest)
				pause := b.Next()
				require.LessOrEqual(t, pause, want)
				require.GreaterOrEqual(t, pause, want-want/2-1)
				require.True(t, b.Failing())
				if want == b.Longest {
					break
				}
			}
			b.Reset()
		}
	})
}
