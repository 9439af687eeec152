package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// lock holds the lock that log.append takes, so that appends come together behind it.
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

// awaitLocked returns when the store's writer waits behind lock.
func awaitLocked(t *testing.T, url string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return execute(t, url, `SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'leadlog writer' AND wait_event_type = 'Lock'`) == 1
	}, patience, time.Millisecond)
}

// awaitListener returns when a subscription has been woken for what came while nobody listened.
func awaitListener(t *testing.T, url string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return execute(t, url, `SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'`) > 0
	}, patience, time.Millisecond)
}

func TestASubscriptionGoesOnWithoutNotification(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := store.Append(ctx, start("first", fact(`{}`)))
	require.NoError(t, err)
	// Each row, which no append announces, comes when the one before it has been seen: the start of the listener, which
	// wakes too, explains the first of them at most.
	for item, err := range store.Subscribe(ctx, 0, eventstore.Filter{}) {
		require.NoError(t, err)
		if item.Position == 5 {
			break
		}
		if item.Event != nil {
			execute(t, url, `INSERT INTO log.event (position, recorded_at, revision, event_id, stream, type, data, metadata)
				VALUES ($1, now(), 0, gen_random_uuid(), 's' || $1::bigint, 'test.happened.v1', '{}', '{}')`, int64(item.Position+1))
		}
	}
}

func TestANotificationWakesASubscription(t *testing.T) {
	t.Parallel()
	url := database(t)
	reader := open(t, postgres.Options{URL: url, Poll: forever})
	writer := open(t, postgres.Options{URL: url})
	for i := range 3 {
		last := fmt.Sprint(i)
		seen := follow(t, reader, last)
		storetest.Append(t, writer, start(last, fact(`{}`)))
		require.Len(t, seen(), i+1)
		terminate(t, url, "listener") // and another listens, telling of what came between
	}
}

// Of appends one behind another only the first tells at once.
func TestTheLastOfManyAppendsIsToldToo(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*postgres.Store){
		"of a process that goes on": func(*postgres.Store) {},
		"of one that closes":        (*postgres.Store).Close,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			reader := open(t, postgres.Options{URL: url, Poll: forever})
			writer := open(t, postgres.Options{URL: url})
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

func TestAppendIsUnavailableWhileTheDatabaseIsGoneAndRecovers(t *testing.T) {
	t.Parallel()
	address := database(t)
	way := pgtest.NewProxy(t, address)
	store := open(t, postgres.Options{URL: way.URL(), Patience: 200 * time.Millisecond})
	before := start("before", fact(`{}`))
	var err error
	require.Eventually(t, func() bool { // the first connection may take longer than the store's patience
		_, err = store.Append(t.Context(), before)
		return err == nil
	}, patience, time.Millisecond)

	way.Refuse()
	during := start("during", fact(`{}`))
	_, err = store.Append(t.Context(), during)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	_, err = store.Head(t.Context())
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	for _, err := range store.Read(t.Context(), "before", 0) {
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
	}
	var ended error
	for _, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
		ended = err
	}
	require.ErrorIs(t, ended, eventstore.ErrUnavailable)

	way.Accept(t)
	require.Eventually(t, func() bool {
		_, err = store.Append(t.Context(), during)
		return err == nil
	}, patience, time.Millisecond)
	head := storetest.Head(t, store)
	require.EqualValues(t, 2, head, "the append that failed is the same one again")
}

func TestAFullQueueIsUnavailableAtOnce(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, Patience: patience, Queue: 1})
	release := lock(t, url)
	const callers = 5
	errs := make(chan error, 1+callers)
	append := func(stream string) {
		_, err := store.Append(t.Context(), start(stream, fact(`{}`)))
		errs <- err
	}
	go append("under way")
	awaitLocked(t, url)
	for i := range callers {
		go append(fmt.Sprint(i))
	}
	for range callers - 1 { // one waits in the queue
		require.ErrorIs(t, <-errs, eventstore.ErrUnavailable)
	}
	release()
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
}

func TestACallerThatLeavesBeforeItsTurnWroteNothing(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, Patience: patience})
	release := lock(t, url)
	// Both write one stream, so whichever is second in the queue waits for the batch of the first.
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
	require.LessOrEqual(t, unknown, 1, "only what was under way may have happened")
	store.Close() // what is under way finishes
	other := open(t, postgres.Options{URL: url})
	head := storetest.Head(t, other)
	require.EqualValues(t, unknown, head)
}

func TestAClosedStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	store := open(t, postgres.Options{URL: database(t)})
	ended := make(chan error, 1)
	subscribed := make(chan struct{})
	storetest.Append(t, store, start("a", fact(`{}`)))
	go func() {
		for item, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
			if err != nil {
				ended <- err
			} else if item.Event == nil {
				close(subscribed)
			}
		}
	}()
	<-subscribed
	store.Close()
	require.ErrorIs(t, <-ended, eventstore.ErrUnavailable)
	_, err := store.Append(t.Context(), start("b", fact(`{}`)))
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	_, err = store.Head(t.Context())
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
}

func TestAHungDatabaseIsNoticed(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, Patience: 100 * time.Millisecond})
	release := lock(t, url)
	write := start("a", fact(`{}`))
	_, err := store.Append(t.Context(), write)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	release()
	require.Eventually(t, func() bool {
		_, err = store.Append(t.Context(), write)
		return err == nil
	}, patience, time.Millisecond)
	head := storetest.Head(t, store)
	require.EqualValues(t, 1, head)
}
