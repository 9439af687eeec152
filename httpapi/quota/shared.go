package quota

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Lender keeps the buckets that processes share.
type Lender interface {
	// Lend takes at most want tokens from a key's bucket, none when it is empty, and returns how many are left in it.
	Lend(ctx context.Context, key string, limit Limit, want int) (Lease, error)
}

// Lease is a number of tokens that a process took at once.
type Lease struct {
	Granted int
	Left    float64 // in the bucket
}

// Shared has a bucket for each of many keys that all processes share. A process leases a tenth of a bucket at a time,
// or what fills in a minute if that is less, so that most uses need no query, and a process that ends takes little with
// it. All processes together never exceed the limit, but one may refuse while others still have leased tokens. Its
// methods may be called from many goroutines.
//
// While the lender does not answer, each process uses a bucket of its own.
type Shared struct {
	lender Lender
	alone  *Local
	now    func() time.Time
	failed atomic.Uint64
	mu     sync.Mutex
	shares *lru.Cache[string, *share]
}

// Timeout of a call of the lender, the pause after a failed one, and the time in which a lease fills at most.
const (
	lendingTimeout = 500 * time.Millisecond
	lendingPause   = time.Second
	leaseWindow    = time.Minute
)

// NewShared returns a Shared with the leases of at most kept buckets. A nil lender makes the buckets those of this
// process.
func NewShared(lender Lender, size int, now func() time.Time) *Shared {
	return &Shared{lender: lender, alone: NewLocal(size, now), now: now, shares: cache[*share](size)}
}

// Take takes a token from a key's bucket, if there is one.
func (s *Shared) Take(ctx context.Context, key string, limit Limit) Use {
	return s.take(ctx, key, limit, 1)
}

// Left returns the result of Take without taking a token.
func (s *Shared) Left(ctx context.Context, key string, limit Limit) Use {
	return s.take(ctx, key, limit, 0)
}

// take takes n tokens, 0 or 1, if there is at least one.
func (s *Shared) take(ctx context.Context, key string, limit Limit, n int) Use {
	if s.lender == nil {
		return s.takeAlone(key, limit, n)
	}
	share := s.share(key)
	share.mu.Lock()
	defer share.mu.Unlock()
	now := s.now()
	share.renew(limit, now)
	if now.Before(share.failed) {
		return s.takeAlone(key, limit, n)
	}
	if share.granted <= 0 && !now.Before(share.empty) {
		if err := share.borrow(ctx, s.lender, key, now); err != nil {
			share.failed = now.Add(lendingPause)
			s.failed.Add(1)
			return s.takeAlone(key, limit, n)
		}
	}
	allowed := share.granted > 0
	if allowed {
		share.granted -= n
	}
	grown := share.left + now.Sub(share.lent).Seconds()*limit.Rate
	return limit.used(allowed, float64(share.granted)+grown)
}

func (s *Shared) takeAlone(key string, limit Limit, n int) Use {
	if n == 0 {
		return s.alone.Left(key, limit)
	}
	return s.alone.Take(key, limit)
}

// Spend takes n tokens even if there are fewer, without calling the lender. Take and Left fail until the missing tokens
// are refilled.
func (s *Shared) Spend(key string, limit Limit, n int) {
	if s.lender == nil {
		s.alone.Spend(key, limit, n)
		return
	}
	share := s.share(key)
	share.mu.Lock()
	defer share.mu.Unlock()
	now := s.now()
	share.renew(limit, now)
	if now.Before(share.failed) {
		s.alone.Spend(key, limit, n)
		return
	}
	share.granted -= n
}

// Failures returns how often the lender did not answer.
func (s *Shared) Failures() uint64 { return s.failed.Load() }

func (s *Shared) share(key string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, known := s.shares.Get(key)
	if !known {
		found = &share{}
		s.shares.Add(key, found)
	}
	return found
}

// share has the tokens that this process has leased from one bucket.
type share struct {
	mu      sync.Mutex
	limit   Limit
	granted int       // leased and not used; negative: used and not leased yet
	left    float64   // in the bucket after the last lease
	lent    time.Time // when that was
	stale   time.Time // when the bucket is full without the granted tokens, which are void then
	empty   time.Time // until when the bucket has no token to lease
	failed  time.Time // until then the lender is not asked
}

// renew drops leased tokens when the limit has changed, or after the time in which the bucket has refilled. A debt
// stays.
func (s *share) renew(limit Limit, now time.Time) {
	if s.limit != limit || !now.Before(s.stale) {
		s.limit, s.granted, s.left, s.empty = limit, min(s.granted, 0), 0, time.Time{}
	}
}

// borrow leases a tenth of the bucket, or what fills in leaseWindow, plus the debt.
func (s *share) borrow(ctx context.Context, lender Lender, key string, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, lendingTimeout)
	defer cancel()
	part := min(float64(s.limit.Burst)/10, s.limit.Rate*leaseWindow.Seconds())
	lease, err := lender.Lend(ctx, key, s.limit, max(1, int(part))-s.granted)
	if err != nil {
		return err
	}
	s.granted, s.left, s.lent = s.granted+lease.Granted, lease.Left, now
	s.stale = now.Add(s.limit.Window())
	if s.granted <= 0 {
		s.empty = now.Add(boundedDuration((1 - float64(s.granted) - s.left) / s.limit.Rate))
	}
	return nil
}
