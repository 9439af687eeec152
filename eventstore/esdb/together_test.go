package esdb_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// openUpgraded opens a store whose server has AppendRecords.
func openUpgraded(t *testing.T) (*esdbtest.Server, *esdb.Store) {
	t.Helper()
	server := esdbtest.Start(t)
	server.Upgrade()
	store := open(t, esdb.Options{URL: server.URL(), Poll: testTimeout}) // polls would count as calls
	_, err := store.Epoch(within(t))                                     // connects, which decides the form of appends
	require.NoError(t, err)
	require.Equal(t, esdb.Server{Version: "26.1.0.0", AppendRecords: true}, store.Server())
	return server, store
}

// capture is the append of a new lead.
func capture(n int) []eventstore.Write {
	return []eventstore.Write{
		eventstore.Check("token-1", 0), eventstore.Check("account-1", 0),
		start(fmt.Sprint("claim-a", n), fact(`{}`)), start(fmt.Sprint("claim-b", n), fact(`{}`)),
		start(fmt.Sprint("lead-", n), fact(`{}`)),
	}
}

// inProgress is how many calls of AppendRecords a store has in progress.
const inProgress = 2

// occupy makes as many calls as the store has in progress at once, and holds them until the result is called. So
// later appends wait together.
func occupy(t *testing.T, server *esdbtest.Server, store *esdb.Store) func() {
	t.Helper()
	resume := server.Hold()
	t.Cleanup(resume)
	var occupying errgroup.Group
	for i := range inProgress {
		calls := server.Calls()
		occupying.Go(func() error {
			_, err := store.Append(within(t), start(fmt.Sprint("occupying-", i), fact(`{}`)))
			return err
		})
		require.Eventually(t, func() bool { return server.Calls() > calls }, testTimeout, time.Millisecond)
	}
	return func() {
		resume()
		require.NoError(t, occupying.Wait())
	}
}

// subscribe subscribes to the log and returns once the subscription has reached a position. Stop ends it.
func subscribe(t *testing.T, store *esdb.Store, position eventstore.Position) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	t.Cleanup(cancel)
	reached := make(chan struct{})
	var running errgroup.Group
	running.Go(func() error {
		for page, err := range store.Subscribe(ctx, 0, eventstore.Filter{}) {
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			if page.Position == position {
				close(reached)
			}
		}
		return nil
	})
	<-reached
	return func() {
		cancel()
		require.NoError(t, running.Wait())
	}
}

func TestAppendRecords_OneCall(t *testing.T) {
	t.Parallel()
	server, store := openUpgraded(t)
	mustAppend(t, store, start("token-1", fact(`{}`)), start("account-1", fact(`{}`)))
	calls := server.Calls()
	mustAppend(t, store, capture(1)...)
	require.Equal(t, calls+1, server.Calls(), "a new lead")
	mustAppend(t, store, eventstore.Check("token-1", 0), eventstore.Check("account-1", 0),
		eventstore.Write{Stream: "lead-1", Expect: 0, Events: []eventstore.Event{fact(`{}`)}})
	require.Equal(t, calls+2, server.Calls(), "a merge")

	other := open(t, esdb.Options{URL: server.URL()})
	for _, stream := range []string{"token-1", "account-1", "lead-1"} {
		read(t, other, stream)
	}
	calls = server.Calls()
	mustAppend(t, other, eventstore.Check("token-1", 0), eventstore.Check("account-1", 0),
		eventstore.Write{Stream: "lead-1", Expect: 1, Events: []eventstore.Event{fact(`{}`)}})
	require.Equal(t, calls+1, server.Calls(), "a merge in a process that has read the streams")
	require.Empty(t, server.Appends("token-", "claim-", "lead-"), "no locks")
}

// Captures that wait for the server share calls. The subscription has their positions, so that none is read.
func TestAppendRecords_Group(t *testing.T) {
	t.Parallel()
	server, store := openUpgraded(t)
	first := mustAppend(t, store, start("token-1", fact(`{}`)), start("account-1", fact(`{}`)))
	stop := subscribe(t, store, first)
	const captures = 64
	ctx := within(t)
	release := occupy(t, server, store)
	before, reads := server.RecordCalls(), server.Calls()
	positions := make([]eventstore.Position, captures)
	var capturing errgroup.Group
	for i := range captures {
		capturing.Go(func() (err error) {
			positions[i], err = store.Append(ctx, capture(i)...)
			return err
		})
	}
	require.Eventually(t, func() bool { return store.Waiting() == captures }, testTimeout, time.Millisecond)
	release()
	require.NoError(t, capturing.Wait())
	require.Equal(t, inProgress+1, server.RecordCalls()-before, "the appends that occupied the store, and one call of 64")
	require.LessOrEqual(t, server.Calls()-reads, 8, "none is read, but a late subscription makes the group read once")
	for i, position := range positions {
		require.Equal(t, position, read(t, store, fmt.Sprint("lead-", i))[0].Position)
	}
	stop()
}

// Without a subscription the positions of a group are read.
func TestAppendRecords_GroupWithoutSubscription(t *testing.T) {
	t.Parallel()
	server, store := openUpgraded(t)
	mustAppend(t, store, start("token-1", fact(`{}`)), start("account-1", fact(`{}`)))
	const captures = 40
	release := occupy(t, server, store)
	positions, conflicts := make([]eventstore.Position, captures), make([]error, captures)
	refused := func(i int) bool { return i%4 == 3 }
	var capturing errgroup.Group
	for i := range captures {
		capturing.Go(func() error {
			writes := capture(i)
			if refused(i) { // its lead is expected to have events
				writes[len(writes)-1].Expect = 7
			}
			positions[i], conflicts[i] = store.Append(within(t), writes...)
			return nil
		})
	}
	require.Eventually(t, func() bool { return store.Waiting() == captures }, testTimeout, time.Millisecond)
	release()
	require.NoError(t, capturing.Wait())
	for i, position := range positions {
		lead := read(t, store, fmt.Sprint("lead-", i))
		if refused(i) {
			require.Equal(t, &eventstore.ConflictError{
				Stream: fmt.Sprint("lead-", i), Expected: 7, Actual: eventstore.NoStream,
			}, eventstore.Conflict(conflicts[i]))
			require.Empty(t, lead)
			continue
		}
		require.NoError(t, conflicts[i])
		require.Equal(t, lead[0].Position, position)
	}
}

// A new token makes all captures of a group fail whose checks name it. The others are sent again at once.
func TestAppendRecords_FailedChecks(t *testing.T) {
	t.Parallel()
	server, store := openUpgraded(t)
	mustAppend(t, store, start("token-1", fact(`{}`)), start("account-1", fact(`{}`)), start("token-2", fact(`{}`)))
	read(t, store, "token-1")
	other := open(t, esdb.Options{URL: server.URL()})
	mustAppend(t, other, eventstore.Write{Stream: "token-1", Expect: 0, Events: []eventstore.Event{fact(`{}`)}})
	release := occupy(t, server, store)
	errs := make([]error, 32)
	var capturing errgroup.Group
	for i := range errs {
		capturing.Go(func() error {
			writes := capture(i)
			if i%2 == 0 {
				writes[0].Stream = "token-2"
			}
			_, errs[i] = store.Append(within(t), writes...)
			return nil
		})
	}
	require.Eventually(t, func() bool { return store.Waiting() == len(errs) }, testTimeout, time.Millisecond)
	release()
	require.NoError(t, capturing.Wait())
	for i, err := range errs {
		if i%2 == 0 {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, &eventstore.ConflictError{Stream: "token-1", Expected: 0, Actual: 1}, eventstore.Conflict(err))
	}
}

// The server takes names that differ in case for one stream.
func TestAppendRecords_NamesDifferInCase(t *testing.T) {
	t.Parallel()
	server, store := openUpgraded(t)
	mustAppend(t, store, start("Both", fact(`{}`)), start("both", fact(`{}`)))
	mustAppend(t, store, eventstore.Check("CHECKED", eventstore.NoStream), start("checked", fact(`{}`)))
	release := occupy(t, server, store)
	names := []string{"Case", "case", "CASE", "cAse", "straße", "STRASSE", "STRAßE"}
	var appending errgroup.Group
	for range 8 {
		for _, name := range names {
			appending.Go(func() error {
				_, err := store.Append(within(t), eventstore.Write{
					Stream: name, Expect: eventstore.Any, Events: []eventstore.Event{fact(`{}`)},
				})
				return err
			})
		}
	}
	release()
	require.NoError(t, appending.Wait())
	for _, name := range names {
		require.Len(t, read(t, store, name), 8, name)
	}
	for _, name := range []string{"Both", "both", "checked"} {
		require.Len(t, read(t, store, name), 1, name)
	}
	require.Empty(t, read(t, store, "CHECKED"))
}

// A type that AppendRecords does not accept is stored by locks.
func TestAppendRecords_OtherTypes(t *testing.T) {
	t.Parallel()
	_, store := openUpgraded(t)
	odd := fact(`{}`)
	odd.Type = "not a schema name"
	mustAppend(t, store, start("a", odd), start("b", fact(`{}`)))
	mustAppend(t, store, eventstore.Write{Stream: "a", Expect: 0, Events: []eventstore.Event{fact(`{}`)}})
	require.Len(t, read(t, store, "a"), 2)
	require.Equal(t, odd.Type, read(t, store, "a")[0].Type)
}

// A server is upgraded and put back under a log and its process.
func TestAppendRecords_UpgradeAndDowngrade(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	var want []eventstore.Event
	for round := range 6 {
		before := server.RecordCalls()
		for n := range 3 {
			events := []eventstore.Event{fact(fmt.Sprintf(`{"round":%d}`, round)), fact(`{}`)}
			want = append(want, events...)
			mustAppend(t, store, eventstore.Write{
				Stream: "s", Expect: eventstore.Expected(len(want) - 3), Events: events,
			}, start(fmt.Sprintf("s-%d-%d", round, n), fact(`{}`)))
		}
		require.Equal(t, round%2 == 1, store.Server().AppendRecords)
		require.Equal(t, round%2 == 1, server.RecordCalls() > before)
		if round%2 == 0 {
			server.Upgrade()
		} else {
			server.Downgrade()
		}
		server.Refuse(1, codes.Unavailable)
		_, err := store.Head(within(t)) // connects again
		require.NoError(t, err)
	}
	for i, r := range read(t, open(t, esdb.Options{URL: server.URL()}), "s") {
		require.Equal(t, want[i], r.Event)
		require.EqualValues(t, i, r.Revision)
	}
	seen, err := follow(within(t), store, eventstore.Filter{StreamPrefixes: []string{"s"}}, "s-5-2")
	require.NoError(t, err)
	require.Len(t, seen, len(want)+18)
}

// The call is sent to the leader that a follower names.
func TestAppendRecords_LeaderChanges(t *testing.T) {
	t.Parallel()
	first := esdbtest.Start(t)
	first.Upgrade()
	second := first.Follower(t)
	for name, url := range map[string]string{
		"one node": first.URL(), "several seeds": first.ClusterURL(second), "DNS discovery": first.DiscoverURL(),
	} {
		store := open(t, esdb.Options{URL: url + oneDiscovery})
		for n := range 6 {
			[]*esdbtest.Server{second, first}[n%2].Elect()
			mustAppend(t, store, start(fmt.Sprintf("%s-%d", name, n), fact(`{}`)), start(fmt.Sprintf("%s-%d-b", name, n),
				fact(`{}`)))
		}
		require.True(t, store.Server().AppendRecords)
	}
	require.Positive(t, second.RecordCalls())
}

func TestAppendRecords_PasswordOverTLS(t *testing.T) {
	t.Parallel()
	server := esdbtest.StartSecure(t, "admin", "changeit")
	server.Upgrade()
	store := open(t, esdb.Options{URL: server.URL()})
	_, err := store.Epoch(within(t))
	require.NoError(t, err)
	mustAppend(t, store, eventstore.Check("a", eventstore.NoStream), start("s", fact(`{}`)))
	require.Equal(t, 1, server.RecordCalls())

	wrong := open(t, esdb.Options{URL: strings.Replace(server.URL(), "changeit", "guessed", 1) + oneDiscovery})
	_, err = wrong.Append(within(t), start("t", fact(`{}`)))
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
}
