package quota

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/projection/schema"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// memoryLender is a lender in memory, with the clock of the test.
type memoryLender struct {
	now   func() time.Time
	left  float64
	at    time.Time
	calls int
	err   error
}

func (b *memoryLender) Lend(_ context.Context, _ string, limit Limit, want int) (Lease, error) {
	if b.calls++; b.err != nil {
		return Lease{}, b.err
	}
	if b.at.IsZero() {
		b.left, b.at = float64(limit.Burst), b.now()
	}
	b.left = min(float64(limit.Burst), b.left+b.now().Sub(b.at).Seconds()*limit.Rate)
	b.at = b.now()
	granted := min(want, int(math.Floor(b.left)))
	b.left -= float64(granted)
	return Lease{Granted: granted, Left: b.left}, nil
}

func TestShared_LeasesTenthOfBucket(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	b := &memoryLender{now: c.now}
	s := NewShared(b, 10, c.now)
	for i := range 40 {
		used := s.Take(t.Context(), "a", Limit{1, 100})
		require.True(t, used.Allowed)
		require.Equal(t, 99-i, used.Remaining, "leased requests count as remaining")
	}
	require.Equal(t, 4, b.calls)
	s.Take(t.Context(), "a", Limit{1, 100}) // from a lease that is still valid for the next request
	c.at = c.at.Add(99 * time.Second)
	require.Equal(t, 100, s.Take(t.Context(), "a", Limit{1, 100}).Remaining, "the bucket size is the maximum")
	require.Equal(t, 5, b.calls)
	require.Equal(t, 1, s.Take(t.Context(), "a", Limit{1, 2}).Remaining, "a changed limit applies at once")
	require.Equal(t, 6, b.calls)
}

// A process that ends takes its lease with it: of a bucket for a day, that must be little.
func TestShared_LeasesForMinute(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	b := &memoryLender{now: c.now}
	day := Limit{Rate: 10, Burst: 864_000}
	for range 100 {
		require.True(t, NewShared(b, 10, c.now).Left(t.Context(), "a", day).Allowed)
	}
	s := NewShared(b, 10, c.now)
	require.Equal(t, 864_000-100*600, s.Left(t.Context(), "a", day).Remaining)
	s.Spend("a", day, 900_000)
	refused := s.Left(t.Context(), "a", day)
	require.False(t, refused.Allowed)
	require.InDelta(t, (100*600+900_000-864_000)/10, refused.RetryAfter.Seconds(), 1)
}

func TestShared_EmptyBucketBacksOff(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	b := &memoryLender{now: c.now}
	s := NewShared(b, 10, c.now)
	limit := Limit{0.1, 1}
	require.True(t, s.Take(t.Context(), "a", limit).Allowed)
	for range 5 {
		refused := s.Take(t.Context(), "a", limit)
		require.False(t, refused.Allowed)
		require.Equal(t, 10*time.Second, refused.RetryAfter)
	}
	require.Equal(t, 2, b.calls)
	c.at = c.at.Add(10 * time.Second)
	require.True(t, s.Take(t.Context(), "a", limit).Allowed)
}

func TestShared_ExpiresLease(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	b := &memoryLender{now: c.now}
	idle, busy := NewShared(b, 10, c.now), NewShared(b, 10, c.now)
	limit := Limit{10, 100}
	require.True(t, idle.Take(t.Context(), "a", limit).Allowed)
	c.at = c.at.Add(limit.Window())
	allowed := 0
	for busy.Take(t.Context(), "a", limit).Allowed {
		allowed++
	}
	require.Equal(t, 100, allowed)
	require.False(t, idle.Take(t.Context(), "a", limit).Allowed)
}

func TestShared_LenderDown(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	b := &memoryLender{now: c.now, err: errors.New("down")}
	s := NewShared(b, 10, c.now)
	limit := Limit{1, 3}
	for range 3 {
		require.True(t, s.Take(t.Context(), "a", limit).Allowed)
	}
	require.False(t, s.Take(t.Context(), "a", limit).Allowed)
	require.Equal(t, 1, b.calls, "the lender is not called again during the pause")
	b.err = nil
	c.at = c.at.Add(lendingPause)
	require.True(t, s.Take(t.Context(), "a", limit).Allowed)
	require.Equal(t, 2, b.calls)
}

// In any period, all processes together accept at most the burst plus the refill, even if the limit changes.
func TestShared_HoldsUnderConcurrency(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{noon}
		b := &memoryLender{now: c.now}
		processes := make([]*Shared, rapid.IntRange(1, 4).Draw(t, "processes"))
		for i := range processes {
			processes[i] = NewShared(b, 1, c.now)
		}
		limits := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Limit {
			return Limit{rapid.Float64Range(0.01, 1000).Draw(t, "rate"), rapid.IntRange(1, 200).Draw(t, "burst")}
		}), 1, 2).Draw(t, "limits")
		var most Limit
		for _, l := range limits {
			most = Limit{max(most.Rate, l.Rate), max(most.Burst, l.Burst)}
		}
		allowed := 0
		for range rapid.IntRange(1, 400).Draw(t, "uses") {
			process := processes[rapid.IntRange(0, len(processes)-1).Draw(t, "process")]
			limit := limits[rapid.IntRange(0, len(limits)-1).Draw(t, "limit")]
			if process.Take(context.Background(), "a", limit).Allowed {
				allowed++
			}
			c.at = c.at.Add(time.Duration(rapid.IntRange(0, 100_000_000).Draw(t, "pause")))
		}
		if bound := float64(most.Burst) + c.at.Sub(noon).Seconds()*most.Rate + 1e-6; float64(allowed) > bound {
			t.Fatalf("%d accepted, at most %f", allowed, bound)
		}
	})
}

// slowLender ignores the deadline of a call, because a process whose call times out uses a local bucket.
type slowLender struct{ Lender }

func (p slowLender) Lend(ctx context.Context, key string, limit Limit, want int) (Lease, error) {
	return p.Lender.Lend(context.WithoutCancel(ctx), key, limit, want)
}

func TestPostgres_SharedBetweenProcesses(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	limit := Limit{Rate: 1e-6, Burst: 50} // no refill during the test
	var allowed atomic.Int32
	var working sync.WaitGroup
	for range 3 {
		pool := pgtest.Pool(t, url)
		process := NewShared(slowLender{NewPostgres(pool)}, 10, time.Now)
		for range 8 {
			working.Go(func() {
				for range 20 {
					if process.Take(t.Context(), "acme", limit).Allowed {
						allowed.Add(1)
					}
				}
			})
		}
	}
	working.Wait()
	require.EqualValues(t, 50, allowed.Load())
}

func TestPostgres_LendsWithinLimit(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	pool := pgtest.Pool(t, url)
	lender := NewPostgres(pool)
	for i, step := range []struct {
		back    string // shift of the bucket's time into the past
		limit   Limit
		want    int
		granted int
	}{
		{"0 s", Limit{1e-6, 100}, 30, 30},
		{"0 s", Limit{1e-6, 100}, 80, 70},
		{"0 s", Limit{1e-6, 100}, 1, 0},
		{"5 s", Limit{2, 100}, 100, 10},
		{"1 h", Limit{2, 40}, 100, 40},
		{"-1 h", Limit{2, 40}, 1, 0},
		{"1 h", Limit{1e9, 1 << 40}, 1 << 35, 1 << 35},
	} {
		pgtest.Exec(t, pool, fmt.Sprintf("UPDATE quota.bucket SET at = clock_timestamp() - interval '%s'", step.back))
		lease, err := lender.Lend(t.Context(), "acme", step.limit, step.want)
		require.NoError(t, err)
		require.Equal(t, step.granted, lease.Granted, "step %d", i)
	}
}

func TestPostgres_ManyKeysAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, schema.Migrate(t.Context(), url))
	pool := pgtest.Pool(t, url)
	limit := Limit{Rate: 1e-6, Burst: 50}
	leases, err := lend(t.Context(), pool, []loan{{"b", limit, 20}, {"c", limit, 60}, {"a", limit, 1}})
	require.NoError(t, err)
	require.Equal(t, []int{20, 50, 1}, []int{leases[0].Granted, leases[1].Granted, leases[2].Granted})
	_, err = lend(t.Context(), pool, []loan{{"a", limit, 1}, {"a", limit, 1}})
	require.Error(t, err, "the batcher then makes each alone")
	var granted atomic.Int64
	var working sync.WaitGroup
	for range 3 {
		lender := NewPostgres(pool)
		for i := range 30 {
			working.Go(func() {
				lease, err := lender.Lend(context.WithoutCancel(t.Context()), string('a'+rune(i%3)), limit, 2)
				if err == nil {
					granted.Add(int64(lease.Granted))
				}
			})
		}
	}
	working.Wait()
	require.EqualValues(t, 49+30, granted.Load(), "the rest of a, and of b")
}
