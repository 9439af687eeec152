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

// The clock of these tests is that of synctest: it stands still while anything can run, so that five seconds
// of waiting take none, and who waits for whom is exact.

var errConflict = &ConflictError{Stream: "lead-1", Expected: NoStream, Actual: At(0)}

func always(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func TestTransactor_RetriesConflicts(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for says, end := range map[string]error{"success": nil, "an error": refused, "unavailable": ErrUnavailable} {
		t.Run(says, func(t *testing.T) {
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
			require.Empty(t, transactor.queue)
		})
	}
}

func TestTransactor_QueuesSameStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		var callers sync.WaitGroup
		inside, most := 0, 0 // unguarded: the queue is their lock, and the race detector sees to it
		for range 32 {
			callers.Go(func() {
				err := transactor.Do(t.Context(), []string{"lead-1"}, func(context.Context) error {
					inside++
					most = max(most, inside)
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
		require.Equal(t, 1, most)
		require.Empty(t, transactor.queue)
	})
}

func TestTransactor_OtherStreamsPass(t *testing.T) {
	t.Parallel()
	var transactor Transactor
	err := transactor.Do(t.Context(), []string{"lead-1"}, func(ctx context.Context) error {
		return transactor.Do(ctx, []string{"lead-2", "lead-3"}, always(nil))
	})
	require.NoError(t, err)
	require.Empty(t, transactor.queue)
}

func TestTransactor_NoStreams(t *testing.T) {
	t.Parallel()
	var transactor Transactor
	attempts := 0
	err := transactor.Do(t.Context(), nil, func(ctx context.Context) error {
		if attempts++; attempts == 1 {
			return errConflict
		}
		return transactor.Do(ctx, nil, always(nil)) // no other has a turn that this would wait for
	})
	require.NoError(t, err)
	require.Equal(t, 2, attempts)
}

func TestTransactor_StreamNamedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		require.NoError(t, transactor.Do(t.Context(), []string{"b", "a", "b"}, always(nil)))
		require.Empty(t, transactor.queue)
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
		require.Empty(t, transactor.queue)
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
		require.Greater(t, attempts, 50, "pauses grow to 64 ms at most")
		require.Less(t, attempts, 5000, "there are pauses")
		require.Empty(t, transactor.queue)
	})
}

func TestTransactor_QueueDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		leave := make(chan struct{})
		first := start(func() error {
			// Not bound to the context: an attempt that does not heed it must not hold others longer.
			return transactor.Do(t.Context(), []string{"lead-1"}, func(context.Context) error { <-leave; return nil })
		})
		synctest.Wait()
		begin := time.Now()
		err := transactor.Do(t.Context(), []string{"lead-0", "lead-1"}, always(nil))
		require.ErrorIs(t, err, ErrContended)
		require.Equal(t, 15*time.Second, time.Since(begin))
		require.Len(t, transactor.queue, 1, "lead-0 is free again, lead-1 is not")
		close(leave)
		require.NoError(t, <-first)
		require.Empty(t, transactor.queue)
	})
}

func TestTransactor_CancelledInQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var transactor Transactor
		leave := make(chan struct{})
		hold := func(context.Context) error { <-leave; return nil }
		first := start(func() error { return transactor.Do(t.Context(), []string{"lead-1"}, hold) })
		synctest.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		second := start(func() error { return transactor.Do(ctx, []string{"lead-0", "lead-1"}, always(nil)) })
		synctest.Wait()
		third := start(func() error { return transactor.Do(t.Context(), []string{"lead-1"}, always(nil)) })
		synctest.Wait()

		cancel()
		require.ErrorIs(t, <-second, context.Canceled)
		require.NoError(t, transactor.Do(t.Context(), []string{"lead-0"}, always(nil)), "what the cancelled caller held is free")
		close(leave)
		require.NoError(t, <-first)
		require.NoError(t, <-third)
		require.Empty(t, transactor.queue)
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
		require.Empty(t, transactor.queue)
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

func TestTransactor_Panic(t *testing.T) {
	t.Parallel()
	var transactor Transactor
	require.Panics(t, func() {
		_ = transactor.Do(t.Context(), []string{"lead-1"}, func(context.Context) error { panic("bug") })
	})
	require.Empty(t, transactor.queue)
}

// start runs a function beside the test.
func start(run func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	return done
}
