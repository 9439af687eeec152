package httpapi

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// clock is a time that only tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func TestAQuotaIsABurstAndThenARate(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	q := newQuotas(10, c.now)
	for i := range 3 {
		used := q.use("a", 2, 3)
		require.True(t, used.allowed)
		require.Equal(t, 2-i, used.remaining)
	}
	refused := q.use("a", 2, 3)
	require.False(t, refused.allowed)
	require.Equal(t, 500*time.Millisecond, refused.retryAfter)
	require.True(t, q.use("b", 2, 3).allowed, "another key has its own")
	c.at = c.at.Add(refused.retryAfter)
	require.True(t, q.use("a", 2, 3).allowed, "who waits as told is let in")
	require.False(t, q.use("a", 2, 3).allowed)
}

func TestLimitsThatChangeCountAtOnce(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	q := newQuotas(10, c.now)
	require.True(t, q.use("a", 0.001, 1).allowed)
	require.False(t, q.use("a", 0.001, 1).allowed)
	c.at = c.at.Add(time.Second)
	require.False(t, q.use("a", 10, 5).allowed, "the time before counted at the old rate")
	c.at = c.at.Add(time.Second)
	require.Equal(t, 4, q.use("a", 10, 5).remaining)
	require.Equal(t, 0, q.use("a", 10, 2).remaining-1, "a smaller burst is all there is")
}

func TestQuotasAreBounded(t *testing.T) {
	t.Parallel()
	q := newQuotas(2, (&clock{noon}).now)
	for _, key := range []string{"a", "b", "c"} {
		q.use(key, 1, 1)
	}
	require.Equal(t, 2, q.buckets.Len())
}

func TestTheHeadersTellTheQuota(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	newQuotas(1, (&clock{noon}).now).use("a", 10, 100).headers(header)
	require.Equal(t, `"capture";q=100;w=10`, header.Get("RateLimit-Policy"))
	require.Equal(t, `"capture";r=99;t=1`, header.Get("RateLimit"))
}

// Over any time, no more is let in than the burst and what the rate adds; and waiting as told always helps.
func TestAQuotaHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Float64Range(0.01, 1000).Draw(t, "limit")
		burst := rapid.IntRange(1, 50).Draw(t, "burst")
		c := &clock{noon}
		q := newQuotas(1, c.now)
		allowed := 0
		for range rapid.IntRange(1, 200).Draw(t, "uses") {
			used := q.use("a", limit, burst)
			if used.allowed {
				allowed++
				c.at = c.at.Add(time.Duration(rapid.IntRange(0, 1_000_000_000).Draw(t, "pause")))
				continue
			}
			c.at = c.at.Add(time.Duration(wholeSeconds(max(used.retryAfter, time.Second))) * time.Second)
			if !q.use("a", limit, burst).allowed {
				t.Fatalf("refused after waiting %s", used.retryAfter)
			}
			allowed++
		}
		if most := float64(burst) + c.at.Sub(noon).Seconds()*limit + 1e-6; float64(allowed) > most {
			t.Fatalf("%d let in, at most %f", allowed, most)
		}
	})
}
