package esdb_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// follow returns the events up to one on the stream named last, and fails on events out of order.
func follow(
	ctx context.Context, store eventstore.Store, filter eventstore.Filter, last string,
) ([]eventstore.Recorded, error) {
	var seen []eventstore.Recorded
	var at eventstore.Position
	for page, err := range store.Subscribe(ctx, 0, filter) {
		if err != nil {
			return seen, fmt.Errorf("after %d events: %w", len(seen), err)
		}
		for _, e := range page.Events {
			if e.Position <= at || e.Position > page.Position {
				return seen, fmt.Errorf("an event at %d after %d, on a page up to %d", e.Position, at, page.Position)
			}
			at, seen = e.Position, append(seen, e)
			if e.Stream == last {
				return seen, nil
			}
		}
		at = page.Position
	}
	return seen, fmt.Errorf("ended without an error")
}

func TestSubscribe_LostConnections(t *testing.T) {
	t.Parallel()
	const batches, size = 30, 100
	for name, filter := range map[string]eventstore.Filter{
		"everything":  {},
		"by stream":   {StreamPrefixes: []string{"kept-"}},
		"by type":     {Types: []string{"test.happened.v1"}},
		"few matches": {StreamPrefixes: []string{"kept-1", "last"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Start(t)
			reader, writer := open(t, esdb.Options{URL: server.URL()}), open(t, esdb.Options{URL: server.URL()})
			filter.StreamPrefixes = append(filter.StreamPrefixes, "last")
			if name == "everything" || name == "by type" {
				filter.StreamPrefixes = nil
			}
			server.DropEvery(233)
			var want []string
			var seen []eventstore.Recorded
			var reading errgroup.Group
			reading.Go(func() (err error) {
				seen, err = follow(within(t), reader, filter, "last")
				return err
			})
			for i := range batches {
				stream, events := fmt.Sprintf("kept-%d", i), make([]eventstore.Event, size)
				for j := range events {
					events[j] = fact(`{}`)
					if filter.Matches(stream, events[j].Type) {
						want = append(want, events[j].ID.String())
					}
				}
				mustAppend(t, writer, start(stream, events...))
			}
			end := fact(`{}`)
			mustAppend(t, writer, start("last", end))
			require.NoError(t, reading.Wait())
			var got []string
			for _, r := range seen {
				got = append(got, r.ID.String())
			}
			require.Equal(t, append(want, end.ID.String()), got)
		})
	}
}

func TestSubscribe_CheckpointAtEndOfLog(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]eventstore.Filter{
		"everything": {}, "by stream": {StreamPrefixes: []string{"s-"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Start(t)
			store := open(t, esdb.Options{URL: server.URL(), Poll: testTimeout})
			ctx := within(t)
			mustAppend(t, store, start("s-0", fact(`{}`)))
			calls := server.Calls()
			server.FarCheckpoints(1)
			var seen []string
			var reading errgroup.Group
			reading.Go(func() error {
				events, err := follow(ctx, store, filter, "s-2")
				for _, e := range events {
					seen = append(seen, e.Stream)
				}
				return err
			})
			// The store has subscribed and reads beyond the server's checkpoint.
			require.Eventually(t, func() bool { return server.Calls() >= calls+2 }, testTimeout, time.Millisecond)
			mustAppend(t, store, start("s-1", fact(`{}`))) // the server does not send it
			mustAppend(t, store, start("s-2", fact(`{}`)))
			require.NoError(t, reading.Wait())
			require.Equal(t, []string{"s-0", "s-1", "s-2"}, seen)
		})
	}
}

func TestHead_SkipsSystemEvents(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	ctx := within(t)
	head, err := store.Head(ctx)
	require.NoError(t, err)
	require.Zero(t, head)
	for round := range 3 {
		server.Noise(100)
		position := mustAppend(t, store, start(fmt.Sprintf("s-%d", round), fact(`{}`)))
		server.Noise(100)
		head, err := store.Head(ctx)
		require.NoError(t, err)
		require.Equal(t, position, head)
	}
	calls := server.Calls() // no subscription polls yet
	_, err = store.Head(ctx)
	require.NoError(t, err)
	require.LessOrEqual(t, server.Calls()-calls, 1, "the end of the last search is cached")
	seen, err := follow(ctx, store, eventstore.Filter{}, "s-2")
	require.NoError(t, err)
	require.Len(t, seen, 3)
}

func TestSubscribe_ProgressPastSystemEvents(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	after := mustAppend(t, store, start("s", fact(`{}`)))
	server.Noise(2000)
	position := mustAppend(t, store, start("s-0", fact(`{}`)))
	server.Noise(2000)
	pages := 0
	for page, err := range store.Subscribe(within(t), after, eventstore.Filter{StreamPrefixes: []string{"none-"}}) {
		require.NoError(t, err)
		require.Empty(t, page.Events)
		require.LessOrEqual(t, page.Position, position, "a page beyond the head")
		if page.Position < position {
			continue
		}
		if pages++; pages == 5 {
			break
		}
		position = mustAppend(t, store, start(fmt.Sprintf("s-%d", pages), fact(`{}`)))
		server.Noise(10)
	}
}

func TestSubscribe_UnknownPosition(t *testing.T) {
	t.Parallel()
	store := open(t, esdb.Options{URL: esdbtest.Start(t).URL()})
	position := mustAppend(t, store, start("s", fact(`{}`)))
	mustAppend(t, store, start("u", fact(`{}`)))
	for _, err := range store.Subscribe(within(t), position+1, eventstore.Filter{}) {
		require.ErrorIs(t, err, eventstore.ErrUnknownPosition)
		break
	}
}

// Views that start empty: one subscription of the server serves them all, from the start of the log on.
func TestTail_OneSubscription(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	writer := open(t, esdb.Options{URL: server.URL()})
	const streams, size, followers = 30, 400, 15
	for i := range streams {
		events := make([]eventstore.Event, size)
		for j := range events {
			events[j] = fact(`{}`)
		}
		mustAppend(t, writer, start(fmt.Sprint("s-", i), events...))
	}
	store := open(t, esdb.Options{URL: server.URL(), Poll: testTimeout})
	_, err := store.Head(within(t))
	require.NoError(t, err)
	calls := server.Calls()
	tail := eventstore.NewTail(store, eventstore.Filter{Types: []string{"none"}})
	var all [followers]*eventstore.Follower
	for i := range all {
		all[i] = tail.Follow(eventstore.Start{Stored: true})
		t.Cleanup(all[i].Close)
	}
	var following errgroup.Group
	for _, f := range all {
		following.Go(func() error {
			for count := 0; count < streams*size; {
				events, _, err := f.Next(within(t), nil, 1000, nil)
				if err != nil {
					return err
				}
				count += len(events)
			}
			return nil
		})
	}
	require.NoError(t, following.Wait())
	require.Equal(t, 1, server.Following())
	require.Less(t, server.Calls()-calls, followers, "the head, the subscription, and $all at its end")
}
