package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// awaitListener waits until the connection of a subscription listens.
func awaitListener(t *testing.T, url string) {
	t.Helper()
	awaitRows(t, url,
		`SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'`)
}

func TestSubscribe_Polls(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	_, err := store.Append(ctx, start("first", fact(`{}`)))
	require.NoError(t, err)
	// Each row is inserted without a notification after the previous one was received. The start of the listener also
	// wakes the subscription, but only once.
	for page, err := range store.Subscribe(ctx, 0, eventstore.Filter{}) {
		require.NoError(t, err)
		if page.Position == 5 {
			break
		}
		execute(t, url, `INSERT INTO log.event (position, recorded_at, revision, event_id, stream, type, data, metadata)
			VALUES ($1, now(), 0, gen_random_uuid(), 's' || $1::bigint, 'test.happened.v1', '{}',
			  '{}')`, int64(page.Position+1))
	}
}

func TestSubscribe_WakesOnNotification(t *testing.T) {
	t.Parallel()
	url := database(t)
	reader := open(t, postgres.Options{URL: url, Poll: forever})
	writer := open(t, postgres.Options{URL: url})
	for i := range 3 {
		last := fmt.Sprint(i)
		seen := follow(t, reader, last)
		storetest.Append(t, writer, start(last, fact(`{}`)))
		require.Len(t, seen(), i+1)
		terminate(t, url, "listener") // the next listener wakes the subscription for missed notifications
	}
}

// Notifications are throttled: of appends in quick succession only the first notifies at once.
func TestSubscribe_NotifiedOfLastAppend(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*postgres.Store){
		"open store":   func(*postgres.Store) {},
		"closed store": (*postgres.Store).Close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			reader := open(t, postgres.Options{URL: url, Poll: forever})
			writer := open(t, postgres.Options{URL: url})
			writer.NotifyOnClose(testTimeout)
			seen := follow(t, reader, "last")
			awaitListener(t, url)
			for i := range 10 {
				storetest.Append(t, writer, start(fmt.Sprint(i), fact(`{}`)))
			}
			storetest.Append(t, writer, start("last", fact(`{}`)))
			end(writer)
			require.Len(t, seen(), 11)
		})
	}
}

// follow subscribes from the start of the log up to an event of the stream last.
func follow(t testing.TB, store eventstore.Store, last string) func() []eventstore.Recorded {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	var events []eventstore.Recorded
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for after := eventstore.Position(0); ctx.Err() == nil; {
			for page, err := range store.Subscribe(ctx, after, eventstore.Filter{}) {
				if failed = err; err != nil {
					break // subscribe again from the checkpoint
				}
				after, events = page.Position, append(events, page.Events...)
				if n := len(events); n > 0 && events[n-1].Stream == last {
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

// requireWhole requires that events are the log from its start: no duplicates, no gaps, streams in order.
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

// The process appends large events during the read of a page, and polling is disabled.
func TestSubscribe_SlowConsumer(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, Poll: forever})
	received, resume := make(chan struct{}), make(chan struct{})
	seen := make(chan int)
	go func() {
		n := 0
		for page, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
			if err != nil {
				break
			}
			n += len(page.Events)
			if contains(page, "first") {
				close(received)
				<-resume
			}
			if contains(page, "last") {
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
	<-received
	const large = 20
	for i := range large {
		appended(fmt.Sprint("large-", i), fact(`"`+strings.Repeat("x", 200_000)+`"`))
	}
	appended("last", fact(`{}`))
	close(resume)
	select {
	case n := <-seen:
		require.Equal(t, large+3, n)
	case <-time.After(testTimeout):
		require.Fail(t, "the subscription is stuck")
	}
}

func contains(page eventstore.Page, stream string) bool {
	return slices.ContainsFunc(page.Events, func(e eventstore.Recorded) bool { return e.Stream == stream })
}
