package esdb_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// oneDiscovery makes the client close itself after one failed discovery of a node.
const oneDiscovery = "&maxDiscoverAttempts=1&discoveryInterval=1"

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func mustAppend(t testing.TB, store eventstore.Store, writes ...eventstore.Write) eventstore.Position {
	t.Helper()
	position, err := store.Append(within(t), writes...)
	require.NoError(t, err)
	return position
}

func read(t testing.TB, store eventstore.Store, stream string) []eventstore.Recorded {
	t.Helper()
	var all []eventstore.Recorded
	for r, err := range store.Read(within(t), stream, 0) {
		require.NoError(t, err)
		all = append(all, r)
	}
	return all
}

func TestStore_RecoversAfterFailedDiscovery(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	impatientStore := open(t, esdb.Options{URL: server.URL() + oneDiscovery, Timeout: 200 * time.Millisecond})
	store := open(t, esdb.Options{URL: server.URL() + oneDiscovery})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var following errgroup.Group
	following.Go(func() error {
		_, err := follow(ctx, store, eventstore.Filter{}, "last")
		return err
	})
	mustAppend(t, store, start("before", fact(`{}`)))

	server.Shut()
	during := start("during", fact(`{}`))
	_, err := impatientStore.Append(ctx, during)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	require.Nil(t, eventstore.Conflict(err))
	_, err = impatientStore.Head(ctx)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	_, err = impatientStore.Epoch(ctx)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	for _, err := range impatientStore.Read(ctx, "before", 0) {
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
	}
	for page, err := range impatientStore.Subscribe(ctx, 0, eventstore.Filter{}) {
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
		require.Zero(t, page)
	}

	// Concurrent calls while clients fail must not block forever.
	var callers errgroup.Group
	for i := range 32 {
		callers.Go(func() error {
			_, err := store.Append(ctx, start(fmt.Sprintf("waiting-%d", i), fact(`{}`)))
			return err
		})
	}
	_, err = impatientStore.Append(ctx, during)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	server.Reopen()
	require.NoError(t, callers.Wait())
	mustAppend(t, store, during)
	mustAppend(t, store, start("last", fact(`{}`)))
	require.NoError(t, following.Wait())
	require.Len(t, read(t, store, "during"), 1)
}

func TestStore_ConcurrentLostCalls(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	position := mustAppend(t, store, start("s", fact(`{}`)))
	const concurrent = 16
	calls := server.Calls()
	release := server.Hold()
	defer release()
	var callers errgroup.Group
	for range concurrent {
		callers.Go(func() error {
			again, err := store.Append(within(t), eventstore.Check("s", 0))
			if err == nil && again != position {
				err = fmt.Errorf("the head is at %d, not %d", again, position)
			}
			return err
		})
	}
	require.Eventually(t, func() bool { return server.Calls() >= calls+concurrent }, testTimeout, time.Millisecond)
	server.Drop()
	release()
	require.NoError(t, callers.Wait())
}

// An append is resent after its response was lost: by the store, by its caller, and by another process after a restart
// of the server, which has no ids in memory then. It is stored once, and each response has its position.
func TestAppend_Resend(t *testing.T) {
	t.Parallel()
	any := func(stream string) eventstore.Write {
		return eventstore.Write{
			Stream: stream, Expect: eventstore.Any, Events: []eventstore.Event{fact(`{}`), fact(`{}`)},
		}
	}
	atZero := func(stream string) eventstore.Write {
		return eventstore.Write{Stream: stream, Expect: 0, Events: []eventstore.Event{fact(`{}`), fact(`{}`)}}
	}
	for name, writes := range map[string]func() []eventstore.Write{
		"to a new stream": func() []eventstore.Write {
			return []eventstore.Write{start("new", fact(`{}`), fact(`{}`))}
		},
		"at a revision":   func() []eventstore.Write { return []eventstore.Write{atZero("old")} },
		"at any revision": func() []eventstore.Write { return []eventstore.Write{any("old")} },
		"to three streams": func() []eventstore.Write {
			return []eventstore.Write{
				eventstore.Check("checked", 0), atZero("old"), start("new", fact(`{}`)), start("newer", fact(`{}`)),
			}
		},
		"to three streams at any revision": func() []eventstore.Write {
			return []eventstore.Write{any("old"), any("new"), any("newer")}
		},
	} {
		for _, upgraded := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, AppendRecords %v", name, upgraded), func(t *testing.T) {
				t.Parallel()
				testResend(t, upgraded, writes)
			})
		}
	}
}

func testResend(t *testing.T, upgraded bool, writes func() []eventstore.Write) {
	for lost := range 8 { // responses to the locks and to the events, or to the call
		server := esdbtest.Start(t)
		if upgraded {
			server.Upgrade()
		}
		store := open(t, esdb.Options{URL: server.URL()})
		before := mustAppend(t, store, start("checked", fact(`{}`)), start("old", fact(`{}`)))
		again := writes()
		server.LoseReplies(lost)
		position := mustAppend(t, store, again...)
		server.LoseReplies(0)
		require.Equal(t, position, mustAppend(t, store, again...), "resent by the caller")
		server.Forget()
		require.Equal(t, position, mustAppend(t, open(t, esdb.Options{URL: server.URL()}), again...),
			"resent by another process")
		var want, got []string
		for _, w := range again {
			for _, e := range w.Events {
				want = append(want, w.Stream+" "+e.ID.String())
			}
		}
		mustAppend(t, store, start("last", fact(`{}`)))
		seen, err := follow(within(t), store, eventstore.Filter{}, "last")
		require.NoError(t, err)
		for _, r := range seen[:len(seen)-1] {
			if r.Position > before {
				got = append(got, r.Stream+" "+r.ID.String())
				require.LessOrEqual(t, r.Position, position)
			}
		}
		require.Equal(t, want, got)
	}
}

func TestAppend_UnknownResponse(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	for i, expect := range []eventstore.Expected{eventstore.NoStream, 0, eventstore.Any} {
		server.UnknownReplies(1)
		position := mustAppend(t, store, eventstore.Write{
			Stream: "s", Expect: expect, Events: []eventstore.Event{fact(`{}`)},
		})
		require.Equal(t, read(t, store, "s")[i].Position, position)
	}
	// The same response to an append that is not stored: a conflict.
	server.UnknownReplies(1)
	_, err := store.Append(within(t), start("s", fact(`{}`)))
	require.Equal(t, &eventstore.ConflictError{
		Stream: "s", Expected: eventstore.NoStream, Actual: 2,
	}, eventstore.Conflict(err))
}

func TestStore_RetriesTransientErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{
		codes.Unavailable, codes.NotFound, codes.Unknown, codes.Aborted, codes.Canceled, codes.ResourceExhausted,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Start(t)
			if code != codes.NotFound { // which AppendRecords does not answer
				server.Upgrade()
			}
			store := open(t, esdb.Options{URL: server.URL()})
			server.Refuse(3, code)
			position := mustAppend(t, store, eventstore.Check("a", eventstore.NoStream), start("s", fact(`{}`)))
			server.Refuse(3, code)
			require.Len(t, read(t, store, "s"), 1)
			server.Refuse(3, code)
			head, err := store.Head(within(t))
			require.NoError(t, err)
			require.Equal(t, position, head)
			server.Refuse(3, code)
			seen, err := follow(within(t), store, eventstore.Filter{}, "s")
			require.NoError(t, err)
			require.Len(t, seen, 1)
		})
	}
}

func TestRead_LostConnections(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	const total, size = 5000, 1000
	for i := range total / size {
		events := make([]eventstore.Event, size)
		for j := range events {
			events[j] = fact(`{}`)
		}
		mustAppend(t, store, eventstore.Write{Stream: "s", Expect: eventstore.Expected(i*size - 1), Events: events})
	}
	next := eventstore.Revision(0)
	for r, err := range store.Read(within(t), "s", 0) {
		require.NoError(t, err)
		require.Equal(t, next, r.Revision)
		if next++; next%size == 1 {
			server.Drop()
		}
	}
	require.Equal(t, eventstore.Revision(total), next)
}

func TestAppend_ResendAtAnyRevision(t *testing.T) {
	t.Parallel()
	for _, later := range []int{0, 1, 62, 500} { // 62: the append begins before the first page of the lookup
		t.Run(fmt.Sprintf("%d events later", later), func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Start(t)
			store := open(t, esdb.Options{URL: server.URL()})
			again := eventstore.Write{
				Stream: "s", Expect: eventstore.Any, Events: []eventstore.Event{fact(`{}`), fact(`{}`), fact(`{}`)},
			}
			position := mustAppend(t, store, again)
			if later > 0 {
				others := eventstore.Write{Stream: "s", Expect: 2}
				for range later {
					others.Events = append(others.Events, fact(`{}`))
				}
				mustAppend(t, store, others)
			}
			server.Forget()
			require.Equal(t, position, mustAppend(t, store, again))
			require.Len(t, read(t, store, "s"), 3+later)
		})
	}
}

// The transactor's context has the cause ErrContended, which says that nothing was written. An interrupted append may
// have been.
func TestAppend_HidesCauseOfContext(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	mustAppend(t, store, start("s", fact(`{}`)))
	for name, call := range map[string]func(context.Context) error{
		"append": func(ctx context.Context) error {
			_, err := store.Append(ctx, start("held", fact(`{}`)))
			return err
		},
		"check": func(ctx context.Context) error { _, err := store.Append(ctx, eventstore.Check("s", 0)); return err },
		"read": func(ctx context.Context) error {
			for _, err := range store.Read(ctx, "s", 0) {
				return err
			}
			return nil
		},
	} {
		calls := server.Calls()
		release := server.Hold()
		ctx, cancel := context.WithCancelCause(within(t))
		var caller errgroup.Group
		caller.Go(func() error { return call(ctx) })
		require.Eventually(t, func() bool { return server.Calls() > calls }, testTimeout, time.Millisecond, name)
		cancel(eventstore.ErrContended)
		err := caller.Wait()
		release()
		require.ErrorIs(t, err, eventstore.ErrUnavailable, name)
		require.ErrorIs(t, err, context.Canceled, name)
		require.NotErrorIs(t, err, eventstore.ErrContended, name)
	}
}

func TestHead_PermissionDenied(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	mustAppend(t, store, start("s", fact(`{}`)))
	server.Refuse(100, codes.PermissionDenied)
	_, err := store.Head(within(t))
	require.ErrorContains(t, err, "may not read $all")
	for _, err := range store.Subscribe(within(t), 0, eventstore.Filter{}) {
		require.ErrorContains(t, err, "may not read $all")
	}
}
