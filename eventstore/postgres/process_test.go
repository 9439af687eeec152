package postgres_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// patience bounds what must happen at some time.
const patience = time.Minute

// forever is a poll that never comes: only a notification wakes.
const forever = time.Hour

func start(stream string, events ...eventstore.Event) eventstore.Write {
	return eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: events}
}

// execute runs a statement on the test's database, beside the stores.
func execute(t testing.TB, url, statement string, arguments ...any) int64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	tag, err := conn.Exec(t.Context(), statement, arguments...)
	require.NoError(t, err)
	return tag.RowsAffected()
}

// terminate ends the sessions of a task. It waits until there is one, because stores connect when they must.
func terminate(t testing.TB, url, task string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return execute(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = $1`, "leadlog "+task) > 0
	}, patience, time.Millisecond)
}

// follow subscribes from the start of the log until an event of the stream.
func follow(t testing.TB, store eventstore.Store, last string) func() []eventstore.Recorded {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	var events []eventstore.Recorded
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for after := eventstore.Position(0); ctx.Err() == nil; {
			for item, err := range store.Subscribe(ctx, after, eventstore.Filter{}) {
				if failed = err; err != nil {
					break // and once more from the checkpoint
				}
				after = item.Position
				if item.Event == nil {
					continue
				}
				if events = append(events, *item.Event); item.Event.Stream == last {
					return
				}
			}
		}
	}()
	return func() []eventstore.Recorded {
		<-done
		cancel()
		require.NoError(t, failed)
		return events
	}
}

// requireWhole holds the events to be the log from its start: each once, no position left out, streams in order.
func requireWhole(t testing.TB, events []eventstore.Recorded) {
	t.Helper()
	revisions := map[string]eventstore.Revision{}
	ids := map[ulid.ULID]bool{}
	for i, e := range events {
		require.EqualValues(t, i+1, e.Position)
		require.Equal(t, revisions[e.Stream], e.Revision)
		revisions[e.Stream]++
		require.False(t, ids[e.ID], "event %s twice", e.ID)
		ids[e.ID] = true
	}
}

// load appends from several callers until each has done its rounds or the load is stopped, and keeps what was
// acknowledged: the position of each event.
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
			own := eventstore.NoStream
			for round := 0; round < rounds && !l.stop.Load(); round++ {
				a, b := fact(`{"on":"own"}`), fact(`{"on":"new"}`)
				position, err := store.Append(ctx,
					eventstore.Write{Stream: fmt.Sprintf("%s-%d", name, caller), Expect: own, Events: []eventstore.Event{a}},
					start("new-"+b.ID.String(), b))
				own++
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

func TestTwoProcessesAppendAtOnceAndAThirdMissesNothing(t *testing.T) {
	t.Parallel()
	url := database(t)
	reader := open(t, postgres.Options{URL: url})
	seen := follow(t, reader, "last")
	work := load{acked: map[ulid.ULID]eventstore.Position{}}
	first, second := open(t, postgres.Options{URL: url}), open(t, postgres.Options{URL: url})
	seenByFirst, seenBySecond := follow(t, first, "last"), follow(t, second, "last") // who also write
	work.run(t.Context(), first, "first", 8, 100)
	work.run(t.Context(), second, "second", 8, 100)
	work.group.Wait()
	storetest.Append(t, first, start("last", fact(`{}`)))
	events := seen()
	require.Len(t, events, 2*8*100*2+1)
	requireWhole(t, events)
	work.requireIn(t, events)
	require.Equal(t, events, seenByFirst())
	require.Equal(t, events, seenBySecond())
}

// One process's appends expect what another's have just changed.
func TestTwoProcessesContendForOneStream(t *testing.T) {
	t.Parallel()
	url := database(t)
	stores := []*postgres.Store{open(t, postgres.Options{URL: url}), open(t, postgres.Options{URL: url})}
	const callers, wins = 4, 25
	var group sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		group.Go(func() {
			expect := eventstore.NoStream
			for won := 0; won < wins; {
				_, err := stores[i%2].Append(t.Context(), eventstore.Write{Stream: "contended", Expect: expect, Events: []eventstore.Event{fact(`{}`)}})
				switch conflict := eventstore.Conflict(err); {
				case err == nil:
					won, expect = won+1, expect+1
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
	require.EqualValues(t, callers*wins, head)
}

func TestKilledConnectionsLoseNothingAcknowledgedAndDoubleNothing(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, Patience: patience})
	seen := follow(t, store, "last")
	work := load{acked: map[ulid.ULID]eventstore.Position{}}
	work.run(t.Context(), store, "caller", 16, math.MaxInt)
	for range 15 {
		terminate(t, url, "writer")
		terminate(t, url, "listener")
		terminate(t, url, "notifier")
	}
	work.stop.Store(true)
	work.group.Wait()
	storetest.Append(t, store, start("last", fact(`{}`)))
	events := seen()
	require.Len(t, events, len(work.acked)+1)
	requireWhole(t, events)
	work.requireIn(t, events)
}

func TestLargeEventsAreReadInPiecesThatFit(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url})
	large := fact(`"` + strings.Repeat("x", eventstore.MaxEventData-2) + `"`)
	var ids []ulid.ULID
	for range 25 { // more than two pages may hold
		large.ID = ulid.Make()
		ids = append(ids, large.ID)
		storetest.Append(t, store, eventstore.Write{Stream: "large", Expect: eventstore.Any, Events: []eventstore.Event{large}})
	}
	for i := range 6 { // pages behind, which are on their way before it turns out that those do not fit
		small := make([]eventstore.Event, 1000)
		for i := range small {
			small[i] = fact(`{}`)
		}
		storetest.Append(t, store, start(fmt.Sprint("small-", i), small...))
	}
	storetest.Append(t, store, start("last", fact(`{}`)))
	var read, followed []ulid.ULID
	for recorded, err := range store.Read(t.Context(), "large", 0) {
		require.NoError(t, err)
		read = append(read, recorded.ID)
	}
	events := follow(t, store, "last")()
	requireWhole(t, events)
	for _, recorded := range events[:len(ids)] {
		followed = append(followed, recorded.ID)
	}
	require.Equal(t, ids, read)
	require.Equal(t, ids, followed)
}

// What the process has written meanwhile is more than is at hand, and nothing will wake the subscription.
func TestASubscriptionThatWasSlowReadsTheRestFromTheLog(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, Poll: forever})
	begun, goOn := make(chan struct{}), make(chan struct{})
	seen := make(chan int)
	go func() {
		n := 0
		for item, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
			if err != nil {
				break
			}
			if item.Event == nil {
				continue
			}
			if n++; item.Event.Stream == "first" {
				close(begun)
				<-goOn
			}
			if item.Event.Stream == "last" {
				break
			}
		}
		seen <- n
	}()
	appended := func(stream string, e eventstore.Event) {
		storetest.Append(t, store, start(stream, e))
	}
	awaitListener(t, url)
	appended("zeroth", fact(`{}`))
	appended("first", fact(`{}`))
	<-begun
	const large = 20
	for i := range large {
		appended(fmt.Sprint("large-", i), fact(`"`+strings.Repeat("x", 200_000)+`"`))
	}
	appended("last", fact(`{}`))
	close(goOn)
	select {
	case n := <-seen:
		require.Equal(t, large+3, n)
	case <-time.After(patience):
		require.Fail(t, "it waits for ever")
	}
}
