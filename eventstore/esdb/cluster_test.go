package esdb_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

func TestCluster_ReadsFromLeader(t *testing.T) {
	t.Parallel()
	leader := esdbtest.Start(t)
	follower := leader.Follower(t)
	writer := open(t, esdb.Options{URL: leader.URL()})
	mustAppend(t, writer, start("token-1", fact(`{}`)))
	follower.Freeze()
	position := mustAppend(t, writer, eventstore.Write{
		Stream: "token-1", Expect: 0, Events: []eventstore.Event{fact(`{}`)},
	})

	onFollower := func() *esdb.Store { return open(t, esdb.Options{URL: follower.URL() + "&nodePreference=follower"}) }
	_, err := onFollower().Append(within(t), eventstore.Check("token-1", 0), start("lead-1", fact(`{}`)))
	require.Equal(t, &eventstore.ConflictError{Stream: "token-1", Expected: 0, Actual: 1}, eventstore.Conflict(err))
	require.Len(t, read(t, onFollower(), "token-1"), 2)
	head, err := onFollower().Head(within(t))
	require.NoError(t, err)
	require.Equal(t, position, head)
}

// The client library has a race, which the race detector reports in a few of a thousand leader changes: after a failed
// send it reads the headers of the call while gRPC writes them, because it closes the connection to switch to the new
// leader. The store retries the error in either case.
func TestCluster_LeaderChanges(t *testing.T) {
	t.Parallel()
	if built, ok := debug.ReadBuildInfo(); ok && slices.Contains(built.Settings, debug.BuildSetting{
		Key: "-race", Value: "true",
	}) {
		t.Skip("a race in the client library")
	}
	first := esdbtest.Start(t)
	second := first.Follower(t)
	for name, url := range map[string]string{
		"several seeds": first.ClusterURL(second),
		"DNS discovery": strings.Replace(first.DiscoverURL(), "esdb", "kurrentdb", 1),
	} {
		t.Run(name, func(t *testing.T) {
			followLeaders(t, open(t, esdb.Options{URL: url + oneDiscovery}), first, second)
		})
		second.Reopen()
	}
}

func followLeaders(t *testing.T, store *esdb.Store, first, second *esdbtest.Server) {
	t.Helper()
	ctx := within(t)
	const changes = 20
	n := 0
	electNext := func() {
		[]*esdbtest.Server{second, first}[n%2].Elect()
		if n == changes {
			second.Shut() // the connected node, which is not elected again
			first.Elect()
		}
		mustAppend(t, store, start(fmt.Sprintf("%s-%d", t.Name(), n), fact(`{}`)))
		n++
	}
	begin, err := store.Head(ctx)
	require.NoError(t, err)
	electNext()
	for page, err := range store.Subscribe(ctx, begin, eventstore.Filter{}) {
		require.NoError(t, err)
		if len(page.Events) == 0 {
			continue
		}
		require.Len(t, page.Events, 1)
		require.Equal(t, fmt.Sprintf("%s-%d", t.Name(), n-1), page.Events[0].Stream)
		if n > changes {
			break
		}
		electNext()
	}
}

// A leader that is stopped or unplugged keeps its connections open and answers nothing. Appends, reads and
// subscriptions go on with the next leader, within the timeout of a call.
func TestCluster_LeaderFreezes(t *testing.T) {
	t.Parallel()
	for _, upgraded := range []bool{false, true} {
		for _, discovery := range []bool{false, true} {
			t.Run(fmt.Sprintf("AppendRecords %v, DNS discovery %v", upgraded, discovery), func(t *testing.T) {
				t.Parallel()
				first := esdbtest.Start(t)
				if upgraded {
					first.Upgrade()
				}
				second, third := first.Follower(t), first.Follower(t)
				url := first.ClusterURL(second, third)
				if discovery {
					url = second.DiscoverURL()
				}
				leaderFreezes(t, url, first, second)
			})
		}
	}
}

func leaderFreezes(t *testing.T, url string, first, second *esdbtest.Server) {
	t.Helper()
	store := open(t, esdb.Options{URL: url, Timeout: 5 * time.Second})
	mustAppend(t, store, start("before", fact(`{}`)), start("before-b", fact(`{}`)))
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	seen := make(chan string, 10)
	go func() {
		for page := range store.Subscribe(ctx, 0, eventstore.Filter{}) {
			for _, e := range page.Events {
				seen <- e.Stream
			}
		}
	}()
	require.Equal(t, "before", <-seen)
	require.Equal(t, "before-b", <-seen)
	first.Suspend()
	second.Elect()
	mustAppend(t, store, start("after", fact(`{}`)), start("after-b", fact(`{}`)))
	require.Len(t, read(t, store, "after"), 1)
	require.Equal(t, "after", <-seen)
	require.Equal(t, "after-b", <-seen)
}
