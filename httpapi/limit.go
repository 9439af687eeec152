package httpapi

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Failed credentials that one address may send: as many at once, then so many a second.
const (
	failureRate  = 10
	failureBurst = 100
)

// quotas is a token bucket for each of many keys, as many as fit. Its methods may be called from many goroutines.
type quotas struct {
	now     func() time.Time
	mu      sync.Mutex // makes a look-up and what it leads to one step
	buckets *lru.Cache[string, *rate.Limiter]
}

func newQuotas(kept int, now func() time.Time) *quotas {
	buckets, err := lru.New[string, *rate.Limiter](kept)
	if err != nil { // only a size below 1, and both sizes are constants
		panic(err)
	}
	return &quotas{now: now, buckets: buckets}
}

// quota is what is left of a bucket after one use of it.
type quota struct {
	allowed    bool
	limit      float64 // a second
	burst      int
	remaining  int
	retryAfter time.Duration // until one use fits; of no meaning when this one did
	full       time.Duration // until nothing is used
}

// use takes one from a key's bucket, if there is one. A bucket whose limits have changed goes on with the new ones.
func (q *quotas) use(key string, limit float64, burst int) quota {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	bucket, known := q.buckets.Get(key)
	if !known {
		bucket = rate.NewLimiter(rate.Limit(limit), burst)
		q.buckets.Add(key, bucket)
	}
	if bucket.Limit() != rate.Limit(limit) {
		bucket.SetLimitAt(now, rate.Limit(limit))
	}
	if bucket.Burst() != burst {
		bucket.SetBurstAt(now, burst)
	}
	result := quota{limit: limit, burst: burst, allowed: bucket.AllowN(now, 1)}
	left := min(bucket.TokensAt(now), float64(burst))
	result.remaining = max(0, int(left))
	result.retryAfter = lasting((1 - left) / limit)
	result.full = lasting((float64(burst) - left) / limit)
	return result
}

// lasting is a number of seconds as a duration, bounded: a tiny rate makes it grow beyond any.
func lasting(seconds float64) time.Duration {
	const most = float64(365 * 24 * time.Hour)
	return time.Duration(min(max(0, seconds*float64(time.Second)), most))
}

// headers tells the quota in the structured fields of draft-ietf-httpapi-ratelimit-headers.
func (q quota) headers(header http.Header) {
	window := max(1, wholeSeconds(lasting(float64(q.burst)/q.limit)))
	header.Set("RateLimit-Policy", fmt.Sprintf(`"capture";q=%d;w=%d`, q.burst, window))
	header.Set("RateLimit", fmt.Sprintf(`"capture";r=%d;t=%d`, q.remaining, wholeSeconds(q.full)))
}

// throttle takes one capture from the account's quota. The error is a limitError.
//
// The account's limits are as this process believes them. A refusal rests on that belief, so it is confirmed first,
// but once a second at most: a caller who asks too often must not make work.
func (x *exchange) throttle() error {
	err := x.take()
	if err == nil || !x.confirmations.use(x.caller.Account, 1, 1).allowed {
		return err
	}
	before := x.admission.Account.State
	confirmed, failed := x.Directory.ConfirmAccount(x.ctx, x.caller.Account)
	if failed != nil || (same(before.RateLimit, confirmed.State.RateLimit) && same(before.RateBurst, confirmed.State.RateBurst)) {
		return err
	}
	x.admission.Account = confirmed
	return x.take()
}

func same[T comparable](a, b *T) bool { return a == b || (a != nil && b != nil && *a == *b) }

func (x *exchange) take() error {
	header, settings := x.w.Header(), x.admission.Account.State
	header.Del("RateLimit-Policy")
	header.Del("RateLimit")
	limit, burst := x.RateLimit, x.RateBurst
	if settings.RateLimit != nil {
		limit = *settings.RateLimit
	}
	if settings.RateBurst != nil {
		burst = *settings.RateBurst
	}
	if limit <= 0 || math.IsNaN(limit) {
		return nil
	}
	used := x.captures.use(x.caller.Account, limit, max(1, burst))
	used.headers(header)
	if !used.allowed {
		return limitError{used.retryAfter}
	}
	return nil
}

// spend takes one look-up of a credential that is not known to be good from the quota of the client's address.
// The error is a limitError.
func (x *exchange) spend() error {
	if used := x.failures.use(neighbourhood(x.client), failureRate, failureBurst); !used.allowed {
		return limitError{used.retryAfter}
	}
	return nil
}
