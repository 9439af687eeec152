package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// lock takes the lock of log.append, so that appends queue until release.
func lock(t *testing.T, url string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	pgtest.Exec(t, tx, `LOCK TABLE log.append_lock IN SHARE UPDATE EXCLUSIVE MODE`)
	return func() {
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, conn.Close(t.Context()))
	}
}

// awaitLocked waits until the store's writer waits for the lock.
func awaitLocked(t *testing.T, url string) {
	t.Helper()
	awaitRows(t, url, `SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'leadlog writer' AND wait_event_type = 'Lock'`)
}

func TestAppend_QueueFull(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, AppendTimeout: testTimeout, Queue: 1})
	release := lock(t, url)
	const callers = 5
	errs := make(chan error, 1+callers)
	append := func(stream string) {
		_, err := store.Append(t.Context(), start(stream, fact(`{}`)))
		errs <- err
	}
	go append("in flight")
	awaitLocked(t, url)
	for i := range callers {
		go append(fmt.Sprint(i))
	}
	for range callers - 1 { // one stays in the queue
		require.ErrorIs(t, <-errs, eventstore.ErrUnavailable)
	}
	release()
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
}

func TestAppend_CancelledWhileQueued(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, AppendTimeout: testTimeout})
	release := lock(t, url)
	// Both write one stream, so the second in the queue waits for the batch of the first.
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := store.Append(ctx, start("contended", fact(`{}`)))
			errs <- err
		}()
	}
	awaitLocked(t, url)
	cancel()
	unknown := 0
	for range 2 {
		err := <-errs
		require.ErrorIs(t, err, context.Canceled)
		if errors.Is(err, eventstore.ErrUnavailable) {
			unknown++
		}
	}
	release()
	require.LessOrEqual(t, unknown, 1, "only the outcome of the append in flight is unknown")
	store.Close() // waits for appends in flight
	other := open(t, postgres.Options{URL: url})
	head := storetest.Head(t, other)
	require.EqualValues(t, unknown, head)
}

func TestAppend_Timeout(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, AppendTimeout: time.Second})
	release := lock(t, url)
	write := start("a", fact(`{}`))
	_, err := store.Append(t.Context(), write)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	release()
	require.Eventually(t, func() bool {
		_, err = store.Append(t.Context(), write)
		return err == nil
	}, testTimeout, time.Millisecond)
	head := storetest.Head(t, store)
	require.EqualValues(t, 1, head)
}

// load appends from several callers for a number of rounds or until it is stopped, and records the positions of
// acknowledged events.
type load struct {
	group sync.WaitGroup
	stop  atomic.Bool
	mu    sync.Mutex
	acked map[ulid.ULID]eventstore.Position
	errs  []error
}

func (l *load) run(ctx context.Context, store eventstore.Store, name string, callers, rounds int) {
	for caller := range callers {
		l.group.Go(func() {
			revision := eventstore.NoStream
			for round := 0; round < rounds && !l.stop.Load(); round++ {
				a, b := fact(`{"on":"own"}`), fact(`{"on":"new"}`)
				position, err := store.Append(ctx,
					eventstore.Write{
						Stream: fmt.Sprintf("%s-%d", name, caller), Expect: revision, Events: []eventstore.Event{a},
					},
					start("new-"+b.ID.String(), b))
				revision++
				l.mu.Lock()
				if err != nil {
					l.errs = append(l.errs, err)
				} else {
					l.acked[a.ID], l.acked[b.ID] = position-1, position
				}
				l.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
}

func (l *load) requireIn(t testing.TB, events []eventstore.Recorded) {
	t.Helper()
	require.Empty(t, l.errs)
	at := map[ulid.ULID]eventstore.Position{}
	for _, e := range events {
		at[e.ID] = e.Position
	}
	for id, position := range l.acked {
		require.Equal(t, position, at[id])
	}
}

func TestAppend_TwoProcesses(t *testing.T) {
	t.Parallel()
	url := database(t)
	reader := open(t, postgres.Options{URL: url})
	seen := follow(t, reader, "last")
	writes := load{acked: map[ulid.ULID]eventstore.Position{}}
	first, second := open(t, postgres.Options{URL: url}), open(t, postgres.Options{URL: url})
	seenByFirst, seenBySecond := follow(t, first, "last"), follow(t, second, "last") // these stores also write
	writes.run(t.Context(), first, "first", 8, 100)
	writes.run(t.Context(), second, "second", 8, 100)
	writes.group.Wait()
	storetest.Append(t, first, start("last", fact(`{}`)))
	events := seen()
	require.Len(t, events, 2*8*100*2+1)
	requireWhole(t, events)
	writes.requireIn(t, events)
	require.Equal(t, events, seenByFirst())
	require.Equal(t, events, seenBySecond())
}

// Appends of two processes to one stream conflict.
func TestAppend_ContendedStream(t *testing.T) {
	t.Parallel()
	url := database(t)
	stores := []*postgres.Store{open(t, postgres.Options{URL: url}), open(t, postgres.Options{URL: url})}
	const callers, each = 4, 25
	var group sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		group.Go(func() {
			expect := eventstore.NoStream
			for appended := 0; appended < each; {
				_, err := stores[i%2].Append(t.Context(), eventstore.Write{
					Stream: "contended", Expect: expect, Events: []eventstore.Event{fact(`{}`)},
				})
				switch conflict := eventstore.Conflict(err); {
				case err == nil:
					appended, expect = appended+1, expect+1
				case conflict != nil:
					expect = conflict.Actual
				default:
					errs[i] = err
					return
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	head, err := stores[0].Head(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, callers*each, head)
}

func TestAppend_KilledConnections(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, AppendTimeout: testTimeout})
	seen := follow(t, store, "last")
	writes := load{acked: map[ulid.ULID]eventstore.Position{}}
	writes.run(t.Context(), store, "caller", 16, math.MaxInt)
	for range 5 {
		terminate(t, url, "writer")
		terminate(t, url, "listener")
		terminate(t, url, "notifier")
	}
	writes.stop.Store(true)
	writes.group.Wait()
	storetest.Append(t, store, start("last", fact(`{}`)))
	events := seen()
	require.Len(t, events, len(writes.acked)+1)
	requireWhole(t, events)
	writes.requireIn(t, events)
}
