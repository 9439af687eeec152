package turns

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

// requireTurn takes a turn, and ends it.
func requireTurn(t *testing.T, turns *Turns, account, queue string) {
	t.Helper()
	release, err := turns.acquire(t.Context(), account, queue)
	require.NoError(t, err)
	release(0)
}

// requireWaits requires that a queue does not get a turn now.
func requireWaits(t *testing.T, turns *Turns, account, queue, why string) {
	t.Helper()
	expired, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := turns.acquire(expired, account, queue)
	require.ErrorIs(t, err, context.DeadlineExceeded, why)
}

// Costly mappings of one account do not delay other accounts. Costly mappings of many accounts use a limited number of
// processors.
func TestTurns_LimitPerAccountAndInTotal(t *testing.T) {
	t.Parallel()
	turns := New()
	turns.all = semaphore.NewWeighted(2)
	releaseA, err := turns.acquire(t.Context(), "a", "form")
	require.NoError(t, err)
	requireWaits(t, turns, "a", "form", "an intake maps one post at a time")
	requireWaits(t, turns, "a", "other", "an account maps one post at a time")
	requireTurn(t, turns, "b", "form")
	releaseB, err := turns.acquire(t.Context(), "b", "form")
	require.NoError(t, err)
	requireWaits(t, turns, "c", "form", "all accounts use a limited number of processors")
	releaseA(0)
	releaseB(0)
	for _, account := range []string{"a", "b", "c"} {
		requireTurn(t, turns, account, "form")
	}
	require.Empty(t, turns.own)
}

// Costly posts to one intake use only a fraction of a processor, and delay no others of the account.
func TestTurns_Cooldown(t *testing.T) {
	t.Parallel()
	require.Zero(t, Cost{1000, 500}.cooldown(time.Second), "a small post has no cooldown, even on a busy machine")
	require.Equal(t, 60*time.Millisecond, Cost{1 << 20, 500}.cooldown(20*time.Millisecond))
	require.Equal(t, 60*time.Millisecond, Cost{1000, 200_000}.cooldown(20*time.Millisecond))
	turns := New()
	release, err := turns.acquire(t.Context(), "a", "form")
	require.NoError(t, err)
	release(time.Hour)
	requireWaits(t, turns, "a", "form", "the form is in its cooldown")
	requireTurn(t, turns, "a", "other")
	requireTurn(t, turns, "a", Own)
	release, err = turns.acquire(t.Context(), "a", "other")
	require.NoError(t, err)
	release(time.Nanosecond)
	requireTurn(t, turns, "a", "other")
}

// Waiting posts to one intake are one of the account's queues, so a post to another intake waits for one of them.
func TestTurns_ConcurrentQueuesAlternate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := New()
		release, err := turns.acquire(t.Context(), "a", "form")
		require.NoError(t, err)
		order := make(chan string, 11)
		wait := func(queue string) {
			entered, err := turns.acquire(t.Context(), "a", queue)
			if err == nil {
				order <- queue
				entered(0)
			}
		}
		for range 10 {
			go wait("form")
		}
		synctest.Wait()
		go wait("other")
		synctest.Wait()
		release(0)
		for i := range 3 {
			if <-order == "other" {
				require.LessOrEqual(t, i, 1)
				return
			}
		}
		require.Fail(t, "the other intake waits for all posts to the form")
	})
}
