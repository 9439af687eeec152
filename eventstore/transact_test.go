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

// These tests use the fake clock of synctest, which advances only while all goroutines are blocked, so that times are
// exact.

var errConflict = &ConflictError{Stream: "lead-1", Expected: NoStream, Actual: At(0)}

func always(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func TestTransactor_RetriesConflicts(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, end := range map[string]error{"success": nil, "an error": refused, "unavailable": ErrUnavailable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var transactor Transactor
			attempts := 0
			err := transactor.Do(t.Context(), []string{"lead-1"}, func(context.Context) error {
				if attempts++; attempts < 4 {
					return fmt.Errorf("capture: %w", errConflict)
				}
				return end
			})
			require.Equal(t, end, err)
			require.Equal(t, 4, attempts)
			require.Empty(t, transactor.streams.streams)
		})
	}
}

func TestTransactor_QueuesSameStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		var callers sync.WaitGroup
		inside, maxInside := 0, 0 // without a lock: the race detector fails if the queue admits two callers
		for range 32 {
			callers.Go(func() {
				err := transactor.Do(t.Context(), []string{"lead-1"}, func(context.Context) error {
					inside++
					maxInside = max(maxInside, inside)
					time.Sleep(time.Millisecond)
					inside--
					return nil
				})
				if err != nil {
					t.Errorf("a caller in the queue: %v", err)
				}
			})
		}
		callers.Wait()
		require.Equal(t, 1, maxInside)
		require.Empty(t, transactor.streams.streams)
	})
}

func TestTransactor_OtherStreamsNotQueued(t *testing.T) {
	t.Parallel()
	var transactor Transactor
	err := transactor.Do(t.Context(), []string{"lead-1"}, func(ctx context.Context) error {
		return transactor.Do(ctx, []string{"lead-2", "lead-3"}, always(nil))
	})
	require.NoError(t, err)
	require.Empty(t, transactor.streams.streams)
}

func TestTransactor_NoStreams(t *testing.T) {
	t.Parallel()
	var transactor Transactor
	attempts := 0
	err := transactor.Do(t.Context(), nil, func(ctx context.Context) error {
		if attempts++; attempts == 1 {
			return errConflict
		}
		return transactor.Do(ctx, nil, always(nil)) // without streams there is no queue
	})
	require.NoError(t, err)
	require.Equal(t, 2, attempts)
}

func TestTransactor_StreamNamedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		require.NoError(t, transactor.Do(t.Context(), []string{"b", "a", "b"}, always(nil)))
		require.Empty(t, transactor.streams.streams)
	})
}

func TestTransactor_NoDeadlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		var callers sync.WaitGroup
		for _, streams := range [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "a"}, {"c", "b", "a"}} {
			for range 4 {
				callers.Go(func() {
					err := transactor.Do(t.Context(), streams, func(context.Context) error {
						time.Sleep(time.Millisecond)
						return nil
					})
					if err != nil {
						t.Errorf("streams %v: %v", streams, err)
					}
				})
			}
		}
		callers.Wait()
		require.Empty(t, transactor.streams.streams)
	})
}

func TestTransactor_ConflictDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		begin, attempts := time.Now(), 0
		err := transactor.Do(t.Context(), []string{"lead-1"}, func(context.Context) error {
			attempts++
			return errConflict
		})
		require.ErrorIs(t, err, ErrContended)
		require.Equal(t, 5*time.Second, time.Since(begin))
		require.Greater(t, attempts, 50, "the backoff is at most 64 ms")
		require.Less(t, attempts, 5000, "retries back off")
		require.Empty(t, transactor.streams.streams)
	})
}

func TestTransactor_CancelledInQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		release := make(chan struct{})
		hold := func(context.Context) error { <-release; return nil }
		first := start(func() error { return transactor.Do(t.Context(), []string{"lead-1"}, hold) })
		synctest.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		second := start(func() error { return transactor.Do(ctx, []string{"lead-0", "lead-1"}, always(nil)) })
		synctest.Wait()
		third := start(func() error { return transactor.Do(t.Context(), []string{"lead-1"}, always(nil)) })
		synctest.Wait()

		cancel()
		require.ErrorIs(t, <-second, context.Canceled)
		require.NoError(t, transactor.Do(t.Context(), []string{"lead-0"}, always(nil)),
			"the cancelled caller released lead-0")
		close(release)
		require.NoError(t, <-first)
		require.NoError(t, <-third)
		require.Empty(t, transactor.streams.streams)
	})
}

func TestTransactor_CancelledRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		ctx, cancel := context.WithCancel(t.Context())
		done := start(func() error { return transactor.Do(ctx, []string{"lead-1"}, always(errConflict)) })
		time.Sleep(time.Second)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Empty(t, transactor.streams.streams)
	})
}

func TestTransactor_CallerDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := transactor.Do(ctx, []string{"lead-1"}, always(errConflict))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrContended)
	})
}

func TestTransactor_UnknownOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		err := transactor.Do(t.Context(), []string{"lead-1"}, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrContended)
	})
}

func TestTransactor_UnavailableUnchanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		err := transactor.Do(t.Context(), []string{"lead-1"}, func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		})
		require.EqualError(t, err, "event store unavailable: context deadline exceeded")
	})
}

func TestTransactor_Panic(t *testing.T) {
	t.Parallel()
	var transactor Transactor
	require.Panics(t, func() {
		_ = transactor.Do(t.Context(), []string{"lead-1"}, func(context.Context) error { panic("bug") })
	})
	require.Empty(t, transactor.streams.streams)
}

// start runs a function in a goroutine.
func start(run func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	return done
}
