package esdb_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

func TestStore_CancelledCalls(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	t.Cleanup(server.Hold())
	for name, call := range map[string]func(context.Context) error{
		"append": func(ctx context.Context) error {
			_, err := store.Append(ctx, start("s", fact(`{}`)))
			return err
		},
		"head": func(ctx context.Context) error {
			_, err := store.Head(ctx)
			return err
		},
		"read": func(ctx context.Context) (err error) {
			for _, err = range store.Read(ctx, "s", 0) {
			}
			return err
		},
		"subscribe": func(ctx context.Context) (err error) {
			for _, err = range store.Subscribe(ctx, 0, eventstore.Filter{}) {
			}
			return err
		},
	} {
		ctx, cancel := context.WithCancel(within(t))
		calls := server.Calls()
		result := make(chan error, 1)
		go func() { result <- call(ctx) }()
		require.Eventually(t, func() bool { return server.Calls() > calls }, testTimeout, time.Millisecond)
		cancel()
		require.ErrorIs(t, <-result, context.Canceled, name)
	}
}

func TestStore_HungServer(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL(), Timeout: 100 * time.Millisecond})
	t.Cleanup(server.Hold())
	_, err := store.Append(within(t), start("s", fact(`{}`)))
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	_, err = store.Append(within(t), eventstore.Check("s", eventstore.NoStream))
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
}

func TestClose_EndsWaitingCalls(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	t.Cleanup(server.Hold())
	result := make(chan error, 1)
	go func() {
		_, err := store.Append(t.Context(), start("s", fact(`{}`)))
		result <- err
	}()
	require.Eventually(t, func() bool { return server.Calls() > 0 }, testTimeout, time.Millisecond)
	store.Close()
	err := <-result
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	require.NotErrorIs(t, err, context.Canceled)
}

func TestClose_EndsRunningCalls(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	mustAppend(t, store, start("s", fact(`{}`)))
	var ended error
	for page, err := range store.Subscribe(within(t), 0, eventstore.Filter{}) {
		if ended = err; len(page.Events) > 0 {
			store.Close()
		}
	}
	require.ErrorIs(t, ended, eventstore.ErrUnavailable)
	require.NotErrorIs(t, ended, context.Canceled)
	_, err := store.Append(within(t), start("t", fact(`{}`)))
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	require.NotErrorIs(t, err, context.Canceled)
}

func TestAppend_ServerCalls(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	mustAppend(t, store, start("token-1", fact(`{}`)), start("account-1", fact(`{}`)))
	calls := server.Calls()
	capture := func() {
		mustAppend(t, store, eventstore.Check("token-1", 0), eventstore.Check("account-1", 0),
			start("claim-1", fact(`{}`)), start("claim-2", fact(`{}`)), start("lead-1", fact(`{}`)))
	}
	release := server.Hold()
	var capturing sync.WaitGroup
	capturing.Go(capture)
	// Both locks are sent before the first response.
	require.Eventually(t, func() bool { return server.Calls() >= calls+2 }, testTimeout, time.Millisecond)
	release()
	capturing.Wait()
	require.Equal(t, calls+5, server.Calls(), "a new lead: two locks, the events, and two checks")
	require.Equal(t, 3, server.Appends("claim-", "lead-"))

	calls = server.Calls()
	mustAppend(t, store, eventstore.Check("token-1", 0), eventstore.Check("account-1", 0),
		eventstore.Write{Stream: "lead-1", Expect: 0, Events: []eventstore.Event{fact(`{}`)}})
	require.Equal(t, calls+3, server.Calls(), "a merge: the event, and two checks")

	// Another process has read the streams.
	other := open(t, esdb.Options{URL: server.URL()})
	for _, stream := range []string{"token-1", "account-1", "lead-1"} {
		read(t, other, stream)
	}
	calls = server.Calls()
	mustAppend(t, other, eventstore.Check("token-1", 0), eventstore.Check("account-1", 0),
		eventstore.Write{Stream: "lead-1", Expect: 1, Events: []eventstore.Event{fact(`{}`)}})
	require.Equal(t, calls+3, server.Calls(), "a merge in a process that has read the streams")
}

func TestAppend_Invalid(t *testing.T) {
	t.Parallel()
	store := open(t, esdb.Options{URL: esdbtest.Start(t).URL()})
	large := fact(`"` + strings.Repeat("x", 600<<10) + `"`)
	typed := fact(`{}`)
	typed.Type = "$metadata"
	lock, closed := fact(`{}`), fact(`{}`)
	lock.Type, closed.Type = "leadlog.lock.v1", "leadlog.closed.v1"
	for name, w := range map[string]eventstore.Write{
		"two events over the limit of an append": start("s", large, func() eventstore.Event {
			e := large
			e.ID = fact(``).ID
			return e
		}()),
		"a system stream":          start("$s", fact(`{}`)),
		"the stream of the epoch":  start("leadlog-epoch", fact(`{}`)),
		"a system type":            start("s", typed),
		"the type of locks":        start("s", lock),
		"the type of closed slots": start("s", closed),
	} {
		_, err := store.Append(within(t), start("good", fact(`{}`)), w)
		require.ErrorIs(t, err, eventstore.ErrInvalid, name)
		require.Empty(t, read(t, store, "good"), name)
	}
}

func TestEpoch(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	ctx := within(t)
	epochs := make([]string, 16)
	var asking errgroup.Group
	for i := range epochs {
		store := open(t, esdb.Options{URL: server.URL()})
		asking.Go(func() (err error) {
			epochs[i], err = store.Epoch(ctx)
			return err
		})
	}
	require.NoError(t, asking.Wait())
	for _, e := range epochs {
		require.Equal(t, epochs[0], e)
	}
	other, err := open(t, esdb.Options{URL: server.URL(), Namespace: "other/"}).Epoch(ctx)
	require.NoError(t, err)
	require.NotEqual(t, epochs[0], other)

	store := open(t, esdb.Options{URL: server.URL()})
	position := mustAppend(t, store, start("s", fact(`{}`)))
	again, err := open(t, esdb.Options{URL: server.URL()}).Epoch(ctx)
	require.NoError(t, err)
	require.Equal(t, epochs[0], again)
	head, err := store.Head(ctx)
	require.NoError(t, err)
	require.Equal(t, position, head)
}

func TestStore_PasswordOverTLS(t *testing.T) {
	t.Parallel()
	server := esdbtest.StartSecure(t, "admin", "changeit")
	store := open(t, esdb.Options{URL: strings.Replace(server.URL(), "esdb://", "kurrentdb://", 1)})
	position := mustAppend(t, store, eventstore.Check("a", eventstore.NoStream), start("s", fact(`{}`)))
	head, err := store.Head(within(t))
	require.NoError(t, err)
	require.Equal(t, position, head)
	seen, err := follow(within(t), store, eventstore.Filter{}, "s")
	require.NoError(t, err)
	require.Len(t, seen, 1)
}

func TestStore_WrongPassword(t *testing.T) {
	t.Parallel()
	server := esdbtest.StartSecure(t, "admin", "changeit")
	for _, url := range []string{
		strings.Replace(server.URL(), "changeit", "guessed", 1),
		strings.Replace(server.URL(), "admin:changeit@", "", 1),
	} {
		// A retry would exceed the context's deadline.
		store := open(t, esdb.Options{URL: url + oneDiscovery})
		_, err := store.Append(within(t), start("s", fact(`{}`)))
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
		require.NotContains(t, err.Error(), "guessed")
		for _, err := range store.Subscribe(within(t), 0, eventstore.Filter{}) {
			require.ErrorIs(t, err, eventstore.ErrUnavailable)
		}
	}
}
