package eventstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// queries records the queries of a batcher. Each query takes one second, unless its context ends.
type queries struct {
	mu    sync.Mutex
	calls [][]int
	fails func(requests []int) error
}

var errRefused = errors.New("refused")

func (q *queries) run(ctx context.Context, requests []int) ([]string, error) {
	q.mu.Lock()
	q.calls = append(q.calls, requests)
	q.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if q.fails != nil {
		if err := q.fails(requests); err != nil {
			return nil, err
		}
	}
	var results []string
	for _, n := range requests {
		results = append(results, fmt.Sprint("result ", n))
	}
	return results, nil
}

func (q *queries) batcher(concurrency, maxBatch int) *Batcher[int, string] {
	return &Batcher[int, string]{Query: q.run, Concurrency: concurrency, MaxBatch: maxBatch, Timeout: time.Minute}
}

func TestBatcher_SharesQueries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q queries
		batcher := q.batcher(2, 4)
		var callers sync.WaitGroup
		for n := range 9 {
			callers.Go(func() {
				result, err := batcher.Do(t.Context(), n)
				if err != nil || result != fmt.Sprint("result ", n) {
					t.Errorf("request %d: %s, %v", n, result, err)
				}
			})
			synctest.Wait()
		}
		callers.Wait()
		require.Equal(t, [][]int{{0}, {1}}, q.calls[:2], "a query below the concurrency limit is made at once")
		require.ElementsMatch(t, [][]int{{2, 3, 4, 5}, {6, 7, 8}}, q.calls[2:])
		synctest.Wait()
		require.Zero(t, batcher.running)
		require.Empty(t, batcher.waiting)
	})
}

func TestBatcher_JoinsNoRunningQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q queries
		batcher := q.batcher(1, 4)
		first := start(func() error { _, err := batcher.Do(t.Context(), 1); return err })
		synctest.Wait()
		again := start(func() error { _, err := batcher.Do(t.Context(), 1); return err })
		require.NoError(t, <-first)
		require.NoError(t, <-again)
		require.Equal(t, [][]int{{1}, {1}}, q.calls, "a request is not served by a query that began before it")
	})
}

func TestBatcher_ErrorOfOneQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queries{fails: func(requests []int) error {
			for _, n := range requests {
				if n == 2 {
					return errRefused
				}
			}
			return nil
		}}
		batcher := q.batcher(1, 10)
		var callers sync.WaitGroup
		for n := range 4 {
			callers.Go(func() {
				result, err := batcher.Do(t.Context(), n)
				if n == 2 {
					if !errors.Is(err, errRefused) {
						t.Errorf("the invalid request: %v", err)
					}
				} else if err != nil || result != fmt.Sprint("result ", n) {
					t.Errorf("request %d: %s, %v", n, result, err)
				}
			})
			synctest.Wait()
		}
		callers.Wait()
		require.ElementsMatch(t, [][]int{{0}, {1, 2, 3}, {1}, {2}, {3}}, q.calls)
	})
}

func TestBatcher_SingleErrorIsFinal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queries{fails: func([]int) error { return errRefused }}
		_, err := q.batcher(1, 10).Do(t.Context(), 1)
		require.ErrorIs(t, err, errRefused)
		require.Len(t, q.calls, 1)
	})
}

func TestBatcher_CancelsAbandonedQuery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queries{fails: func([]int) error { panic("the query was not cancelled") }}
		batcher := q.batcher(1, 10)
		begin := time.Now()
		busy := start(func() error { // occupies the batcher, so that the next requests share a query
			return batcher.until(t.Context(), begin.Add(500*time.Millisecond), 0)
		})
		synctest.Wait()
		one := start(func() error { return batcher.until(t.Context(), begin.Add(700*time.Millisecond), 1) })
		other := start(func() error { return batcher.until(t.Context(), begin.Add(900*time.Millisecond), 2) })
		early := start(func() error { return batcher.until(t.Context(), begin.Add(100*time.Millisecond), 3) })
		for _, caller := range []<-chan error{busy, one, other, early} {
			require.ErrorIs(t, <-caller, context.DeadlineExceeded)
		}
		synctest.Wait()
		require.Equal(t, 900*time.Millisecond, time.Since(begin), "the query was cancelled with its last caller")
		require.Len(t, q.calls, 2)
		require.ElementsMatch(t, []int{1, 2}, q.calls[1], "a request that was cancelled in the queue is skipped")
		require.Zero(t, batcher.running)
		require.Empty(t, batcher.waiting)
	})
}

func (b *Batcher[R, V]) until(ctx context.Context, deadline time.Time, request R) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	_, err := b.Do(ctx, request)
	return err
}

func TestBatcher_Timeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		batcher := &Batcher[int, string]{Concurrency: 1, MaxBatch: 1, Timeout: time.Minute,
			Query: func(ctx context.Context, _ []int) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() }}
		begin := time.Now()
		_, err := batcher.Do(t.Context(), 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(begin))
	})
}
