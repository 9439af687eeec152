// Package quota limits rates by token buckets, one for each key. A bucket belongs to one process, or is shared: the
// database then leases its tokens to the processes.
package quota

import (
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Limit is the size of a bucket and how fast it fills.
type Limit struct {
	Rate  float64 // tokens a second, above 0
	Burst int     // tokens of a full bucket, at least 1
}

// maxTokens is the largest bucket of an account.
const maxTokens = 1 << 30

// LimitOf returns an account's limit: its own rate and burst, or the service's where they are nil. The zero Limit is
// none.
func LimitOf(ownRate *float64, ownBurst *int, rate float64, burst int) Limit {
	if ownRate != nil {
		rate = *ownRate
	}
	if ownBurst != nil {
		burst = *ownBurst
	}
	if rate <= 0 || math.IsNaN(rate) {
		return Limit{}
	}
	return Limit{Rate: rate, Burst: min(max(1, burst), maxTokens)}
}

// Times returns a limit that is a number of times as large.
func (l Limit) Times(n int) Limit {
	return Limit{Rate: float64(n) * l.Rate, Burst: min(n*l.Burst, maxTokens)}
}

// Window returns the time in which an empty bucket fills.
func (l Limit) Window() time.Duration { return boundedDuration(float64(l.Burst) / l.Rate) }

// Use is the result of taking a token, with the rest of the bucket.
type Use struct {
	Allowed    bool
	Limit      Limit
	Remaining  int
	RetryAfter time.Duration // until there is a token again; meaningless when one was taken
	Full       time.Duration // until the bucket is full
}

// used returns a use that left a number of tokens.
func (l Limit) used(allowed bool, left float64) Use {
	left = min(left, float64(l.Burst))
	return Use{
		Allowed: allowed, Limit: l, Remaining: max(0, int(left)),
		RetryAfter: boundedDuration((1 - left) / l.Rate), Full: boundedDuration((float64(l.Burst) - left) / l.Rate),
	}
}

// boundedDuration returns seconds as a duration of at most a year: with a tiny rate they would overflow.
func boundedDuration(seconds float64) time.Duration {
	const most = float64(365 * 24 * time.Hour)
	return time.Duration(min(max(0, seconds*float64(time.Second)), most))
}

// Local has a bucket for each of many keys, in this process alone. Its methods may be called from many goroutines.
type Local struct {
	now     func() time.Time
	mu      sync.Mutex // makes looking up a bucket and taking from it one step
	buckets *lru.Cache[string, *rate.Limiter]
}

// NewLocal returns a Local with at most kept buckets. Beyond that, the least recently used one is dropped, and is full
// when it is needed again.
func NewLocal(size int, now func() time.Time) *Local {
	return &Local{now: now, buckets: cache[*rate.Limiter](size)}
}

func cache[T any](size int) *lru.Cache[string, T] {
	c, err := lru.New[string, T](size)
	if err != nil { // only a size below 1, and sizes are constants
		panic(err)
	}
	return c
}

// Take takes a token from a key's bucket, if it has one. If the limit has changed, the bucket continues with the new
// one.
func (l *Local) Take(key string, limit Limit) Use {
	return l.with(key, limit, func(bucket *rate.Limiter, now time.Time) bool { return bucket.AllowN(now, 1) })
}

// Left returns the result of Take without taking a token.
func (l *Local) Left(key string, limit Limit) Use {
	return l.with(key, limit, func(bucket *rate.Limiter, now time.Time) bool { return bucket.TokensAt(now) >= 1 })
}

// Spend takes n tokens even if the bucket has fewer. Take fails until the missing tokens are refilled.
func (l *Local) Spend(key string, limit Limit, n int) {
	l.with(key, limit, func(bucket *rate.Limiter, now time.Time) bool {
		bucket.SetBurstAt(now, max(n, limit.Burst)) // a reservation of more than a burst would fail
		bucket.ReserveN(now, n)
		bucket.SetBurstAt(now, limit.Burst)
		return true
	})
}

func (l *Local) with(key string, limit Limit, do func(*rate.Limiter, time.Time) bool) Use {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	bucket, known := l.buckets.Get(key)
	if !known {
		bucket = rate.NewLimiter(rate.Limit(limit.Rate), limit.Burst)
		l.buckets.Add(key, bucket)
	}
	if bucket.Limit() != rate.Limit(limit.Rate) {
		bucket.SetLimitAt(now, rate.Limit(limit.Rate))
	}
	if bucket.Burst() != limit.Burst {
		bucket.SetBurstAt(now, limit.Burst)
	}
	return limit.used(do(bucket, now), bucket.TokensAt(now))
}
