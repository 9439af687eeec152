package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// clock is a manual clock.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func TestLocal_BurstThenRate(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	q := NewLocal(10, c.now)
	for i := range 3 {
		used := q.Take("a", Limit{2, 3})
		require.True(t, used.Allowed)
		require.Equal(t, 2-i, used.Remaining)
		require.Equal(t, time.Duration(i+1)*500*time.Millisecond, used.Full)
	}
	refused := q.Take("a", Limit{2, 3})
	require.False(t, refused.Allowed)
	require.Equal(t, 500*time.Millisecond, refused.RetryAfter)
	require.True(t, q.Take("b", Limit{2, 3}).Allowed, "another key has its own bucket")
	c.at = c.at.Add(refused.RetryAfter / 2)
	require.Equal(t, refused.RetryAfter/2, q.Take("a", Limit{2, 3}).RetryAfter)
	c.at = c.at.Add(refused.RetryAfter / 2)
	require.True(t, q.Take("a", Limit{2, 3}).Allowed, "accepted after RetryAfter")
	require.False(t, q.Take("a", Limit{2, 3}).Allowed)
}

func TestLocal_ChangedLimit(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	q := NewLocal(10, c.now)
	require.True(t, q.Take("a", Limit{0.001, 1}).Allowed)
	require.False(t, q.Take("a", Limit{0.001, 1}).Allowed)
	c.at = c.at.Add(time.Second)
	require.False(t, q.Take("a", Limit{10, 5}).Allowed, "the bucket was refilled at the old rate before the change")
	c.at = c.at.Add(time.Second)
	require.Equal(t, 4, q.Take("a", Limit{10, 5}).Remaining)
	require.Equal(t, 0, q.Take("a", Limit{10, 2}).Remaining-1, "a smaller burst caps the bucket")
}

func TestLocal_SpendsMoreThanBucket(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	q := NewLocal(10, c.now)
	q.Spend("a", Limit{1, 2}, 7)
	refused := q.Left("a", Limit{1, 2})
	require.False(t, refused.Allowed)
	require.Equal(t, 6*time.Second, refused.RetryAfter)
	c.at = c.at.Add(refused.RetryAfter)
	require.True(t, q.Left("a", Limit{1, 2}).Allowed)
	c.at = c.at.Add(time.Hour)
	require.Equal(t, 2, q.Left("a", Limit{1, 2}).Remaining)
}

func TestLocal_DropsLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	q := NewLocal(2, (&clock{noon}).now)
	for _, key := range []string{"a", "b", "c"} {
		q.Take(key, Limit{1, 1})
	}
	require.Equal(t, 2, q.buckets.Len())
}

// In any period, at most the burst plus the refill is accepted. A request after RetryAfter is accepted.
func TestLocal_HoldsUnderConcurrency(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Float64Range(0.01, 1000).Draw(t, "limit")
		burst := rapid.IntRange(1, 50).Draw(t, "burst")
		c := &clock{noon}
		q := NewLocal(1, c.now)
		allowed := 0
		for range rapid.IntRange(1, 200).Draw(t, "uses") {
			used := q.Take("a", Limit{limit, burst})
			if used.Allowed {
				allowed++
				c.at = c.at.Add(time.Duration(rapid.IntRange(0, 1_000_000_000).Draw(t, "pause")))
				continue
			}
			c.at = c.at.Add(max(used.RetryAfter.Truncate(time.Second)+time.Second, time.Second))
			if !q.Take("a", Limit{limit, burst}).Allowed {
				t.Fatalf("refused after waiting %s", used.RetryAfter)
			}
			allowed++
		}
		if most := float64(burst) + c.at.Sub(noon).Seconds()*limit + 1e-6; float64(allowed) > most {
			t.Fatalf("%d accepted, at most %f", allowed, most)
		}
	})
}
