package eventstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Batcher serves requests of many callers with few queries. While Concurrency queries are running, requests wait, and
// the next query takes all of them. While fewer are running, a request starts a query at once.
//
// A query starts after its requests were made, so a result is never older than its request.
type Batcher[R, V any] struct {
	// Query returns one result for each request, in order. Its context is cancelled when no caller waits for a result.
	Query func(ctx context.Context, requests []R) ([]V, error)
	// Concurrency is the maximum number of concurrent queries, MaxBatch that of requests in one query.
	Concurrency, MaxBatch int
	// Timeout bounds a query.
	Timeout time.Duration

	mu      sync.Mutex
	waiting []*batched[R, V]
	running int
}

// batched is the request of one caller.
type batched[R, V any] struct {
	request R
	result  chan result[V] // has capacity 1
	query   *batch         // nil until a query takes the request; guarded by the mutex
}

type result[V any] struct {
	value  V
	err    error
	shared bool // the query had other requests too
}

// batch is the requests of one query.
type batch struct {
	callers int // that are still waiting
	cancel  context.CancelFunc
}

// Do returns the result of one request. When a query of several requests fails, each request is retried in a query of
// its own, so that one bad request fails alone. The error is Query's, or that of the context.
func (b *Batcher[R, V]) Do(ctx context.Context, request R) (V, error) {
	r := &batched[R, V]{request: request, result: make(chan result[V], 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, r)
	if b.running < b.Concurrency {
		b.running++
		go b.work()
	}
	b.mu.Unlock()
	select {
	case got := <-r.result:
		if got.err != nil && got.shared {
			return b.alone(ctx, request)
		}
		return got.value, got.err
	case <-ctx.Done():
		b.leave(r)
		var none V
		return none, ctx.Err()
	}
}

func (b *Batcher[R, V]) alone(ctx context.Context, request R) (value V, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	values, err := b.Query(ctx, []R{request})
	if err != nil {
		return value, err
	}
	return values[0], nil
}

// Waiting returns how many requests wait for a query.
func (b *Batcher[R, V]) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// work runs queries until no request waits.
func (b *Batcher[R, V]) work() {
	for {
		runtime.Gosched() // lets other goroutines queue their requests first
		ctx, cancel := context.WithTimeout(context.Background(), b.Timeout)
		next := b.nextBatch(cancel)
		if len(next) == 0 {
			cancel()
			return
		}
		requests := make([]R, len(next))
		for i, r := range next {
			requests[i] = r.request
		}
		values, err := b.Query(ctx, requests)
		cancel()
		for i, r := range next {
			got := result[V]{err: err, shared: len(next) > 1}
			if err == nil {
				got.value = values[i]
			}
			r.result <- got
		}
	}
}

// nextBatch returns the requests of the next query. It returns none when no request waits, and the worker then ends.
func (b *Batcher[R, V]) nextBatch(cancel context.CancelFunc) []*batched[R, V] {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), b.MaxBatch)
	if n == 0 {
		b.running--
		return nil
	}
	taken := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	query := &batch{callers: n, cancel: cancel}
	for _, r := range taken {
		r.query = query
	}
	return taken
}

// leave removes a caller that no longer waits. The last caller of a query cancels it.
func (b *Batcher[R, V]) leave(r *batched[R, V]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.query == nil {
		b.waiting = slices.DeleteFunc(b.waiting, func(other *batched[R, V]) bool { return other == r })
		return
	}
	if r.query.callers--; r.query.callers == 0 {
		r.query.cancel()
	}
}
