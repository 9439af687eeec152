package esdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// A probe asks for the first event after the position of each view that is behind.
func TestReadRange_SentEvents(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := open(t, esdb.Options{URL: server.URL()})
	after := mustAppend(t, store, start("first", fact(`{}`)))
	many := make([]eventstore.Event, 3000)
	for i := range many {
		many[i] = fact(`{}`)
	}
	mustAppend(t, store, start("other", many[:10]...))
	want := mustAppend(t, store, start("wanted", fact(`{}`)))
	until := mustAppend(t, store, start("wanted-more", many...))
	sent := server.Sent()
	events, reached, err := eventstore.ReadRange(within(t), store, eventstore.Range{
		After: after, Until: until, Filter: eventstore.Filter{StreamPrefixes: []string{"wanted"}}, Limit: 1,
	})
	require.NoError(t, err)
	require.Equal(t, want, reached)
	require.Len(t, events, 1)
	require.Equal(t, "wanted", events[0].Stream)
	require.LessOrEqual(t, server.Sent()-sent, 16)

	for range 200 {
		until = mustAppend(t, store, eventstore.Write{
			Stream: "last", Expect: eventstore.Any, Events: []eventstore.Event{fact(`{}`)},
		})
	}
	last := read(t, store, "last")
	sent = server.Sent()
	events, reached, err = eventstore.ReadRange(within(t), store, eventstore.Range{
		After: last[0].Position, Until: until, Filter: eventstore.Filter{StreamPrefixes: []string{"none"}}, Limit: 1,
	})
	require.NoError(t, err)
	require.Empty(t, events)
	require.Equal(t, last[78].Position, reached, "after 16 and 64 records, the first of which were read before")
	require.Equal(t, 80, server.Sent()-sent)
	require.Zero(t, server.CutOff())
	require.Zero(t, server.Following())
}
