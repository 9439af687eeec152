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

// impatient makes the client give up, and close itself, after one look for a node.
const impatient = "&maxDiscoverAttempts=1&discoveryInterval=1"

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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

func TestTheStoreRecoversAfterItsClientGaveUp(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	hurried := open(t, esdb.Options{URL: server.URL() + impatient, Patience: 200 * time.Millisecond})
	patient := open(t, esdb.Options{URL: server.URL() + impatient})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var following errgroup.Group
	following.Go(func() error {
		_, err := follow(ctx, patient, eventstore.Filter{}, "last")
		return err
	})
	mustAppend(t, patient, start("before", fact(`{}`)))

	server.Shut()
	during := start("during", fact(`{}`))
	_, err := hurried.Append(ctx, during)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	require.Nil(t, eventstore.Conflict(err))
	_, err = hurried.Head(ctx)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	_, err = hurried.Epoch(ctx)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	for _, err := range hurried.Read(ctx, "before", 0) {
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
	}
	for item, err := range hurried.Subscribe(ctx, 0, eventstore.Filter{}) {
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
		require.Zero(t, item)
	}

	// Many calls at once while clients give up under them: none may be left waiting.
	var callers errgroup.Group
	for i := range 32 {
		callers.Go(func() error {
			_, err := patient.Append(ctx, start(fmt.Sprintf("waiting-%d", i), fact(`{}`)))
			return err
		})
	}
	_, err = hurried.Append(ctx, during)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	server.Reopen()
	require.NoError(t, callers.Wait())
	mustAppend(t, patient, during)
	mustAppend(t, patient, start("last", fact(`{}`)))
	require.NoError(t, following.Wait())
	require.Len(t, read(t, patient, "during"), 1)
}

func TestCallsThatLoseTheirConnectionTogetherAreMadeInAnother(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	position := mustAppend(t, store, start("s", fact(`{}`)))
	const together = 16
	calls := server.Calls()
	release := server.Hold()
	defer release()
	var callers errgroup.Group
	for range together {
		callers.Go(func() error {
			again, err := store.Append(within(t), eventstore.Check("s", 0))
			if err == nil && again != position {
				err = fmt.Errorf("the head is at %d, not %d", again, position)
			}
			return err
		})
	}
	require.Eventually(t, func() bool { return server.Calls() == calls+together }, patience, time.Millisecond)
	server.Drop()
	release()
	require.NoError(t, callers.Wait())
}

func TestAnAppendWhoseReplyIsLostHappensOnce(t *testing.T) {
	t.Parallel()
	for name, expect := range map[string]eventstore.Expected{"no stream": eventstore.NoStream, "revision": 0, "any": eventstore.Any} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Start(t)
			store := open(t, esdb.Options{URL: server.URL()})
			w := start("s", fact(`{"n":1}`), fact(`{"n":2}`))
			if w.Expect = expect; expect == 0 {
				mustAppend(t, store, start("s", fact(`{"n":0}`)))
			}
			before := len(read(t, store, "s"))
			server.LoseReplies(3)
			position := mustAppend(t, store, w)
			there := read(t, store, "s")
			require.Len(t, there, before+2)
			require.Equal(t, there[before+1].Position, position)
		})
	}
}

func TestAReplyTheClientDoesNotKnowIsNotTakenForPositionZero(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	for i, expect := range []eventstore.Expected{eventstore.NoStream, 0, eventstore.Any} {
		server.UnknownReplies(1)
		position := mustAppend(t, store, eventstore.Write{Stream: "s", Expect: expect, Events: []eventstore.Event{fact(`{}`)}})
		require.Equal(t, read(t, store, "s")[i].Position, position)
	}
	// The same answer when nothing was written: the stream is not as expected.
	server.UnknownReplies(1)
	_, err := store.Append(within(t), start("s", fact(`{}`)))
	require.Equal(t, &eventstore.ConflictError{Stream: "s", Expected: eventstore.NoStream, Actual: 2}, eventstore.Conflict(err))
}

func TestRefusalsForNowAreWaitedOut(t *testing.T) {
	t.Parallel()
	for _, code := range []codes.Code{codes.Unavailable, codes.NotFound, codes.Unknown, codes.Aborted, codes.Canceled} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Start(t)
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

func TestAReadGoesOnAfterADropWithoutSkippingOrDoubling(t *testing.T) {
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

func TestAnAppendThatExpectsNothingIsKnownAgainAfterARestart(t *testing.T) {
	t.Parallel()
	for _, later := range []int{0, 1, 62, 500} { // 62: it begins in the page of events before the first that is looked at
		t.Run(fmt.Sprintf("%d events later", later), func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Start(t)
			store := open(t, esdb.Options{URL: server.URL()})
			again := eventstore.Write{Stream: "s", Expect: eventstore.Any, Events: []eventstore.Event{fact(`{}`), fact(`{}`), fact(`{}`)}}
			position := mustAppend(t, store, again)
			for i := range later {
				mustAppend(t, store, eventstore.Write{Stream: "s", Expect: eventstore.At(eventstore.Revision(i + 2)), Events: []eventstore.Event{fact(`{}`)}})
			}
			server.Forget()
			require.Equal(t, position, mustAppend(t, store, again))
			require.Len(t, read(t, store, "s"), 3+later)
		})
	}
}

func TestHead_NamesTheRightThatIsMissing(t *testing.T) {
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
