package draft_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func events(texts ...string) (all []eventstore.Event) {
	for _, text := range texts {
		all = append(all, eventstore.Event{
			ID: ulid.Make(), Type: "thing.happened.v1", At: time.Now().UTC().Truncate(time.Millisecond),
			Data: fmt.Appendf(nil, "%q", text),
		})
	}
	return all
}

// texts returns the data of a stream's events from a revision on.
func texts(t *testing.T, store eventstore.Store, stream string, from eventstore.Revision) (all []string) {
	t.Helper()
	next := from
	for recorded, err := range store.Read(t.Context(), stream, from) {
		require.NoError(t, err)
		require.Equal(t, next, recorded.Revision)
		require.Equal(t, stream, recorded.Stream)
		all = append(all, string(recorded.Data))
		next++
	}
	return all
}

func TestDraft_ContinuesLog(t *testing.T) {
	t.Parallel()
	below := storetest.Memory()
	storetest.Append(t, below, eventstore.Write{
		Stream: "old", Expect: eventstore.NoStream, Events: events("one", "two"),
	})
	store := draft.On(below)

	first := storetest.Append(t, store, eventstore.Write{
		Stream: "old", Expect: eventstore.At(1), Events: events("three"),
	},
		eventstore.Write{Stream: "new", Expect: eventstore.NoStream, Events: events("hello")})
	second := storetest.Append(t, store, eventstore.Write{
		Stream: "old", Expect: eventstore.Any, Events: events("four", "five"),
	})
	require.Greater(t, second, first)
	require.Equal(t, []string{`"one"`, `"two"`, `"three"`, `"four"`, `"five"`}, texts(t, store, "old", 0))
	require.Equal(t, []string{`"two"`, `"three"`, `"four"`, `"five"`}, texts(t, store, "old", 1))
	require.Equal(t, []string{`"four"`, `"five"`}, texts(t, store, "old", 3))
	require.Equal(t, []string{`"hello"`}, texts(t, store, "new", 0))
	require.Empty(t, texts(t, store, "none", 0))

	require.Equal(t, []string{`"one"`, `"two"`}, texts(t, below, "old", 0))
	require.Empty(t, texts(t, below, "new", 0))
	storetest.Append(t, below, eventstore.Write{Stream: "old", Expect: eventstore.At(1), Events: events("others")})
	require.Equal(t, []string{`"one"`, `"two"`, `"three"`, `"four"`, `"five"`}, texts(t, store, "old", 0))
}

func TestDraft_Conflicts(t *testing.T) {
	t.Parallel()
	below := storetest.Memory()
	storetest.Append(t, below, eventstore.Write{Stream: "old", Expect: eventstore.NoStream, Events: events("one")})
	store := draft.On(below)
	storetest.Append(t, store, eventstore.Write{Stream: "old", Expect: eventstore.At(0), Events: events("two")})
	for _, c := range []struct {
		write  eventstore.Write
		actual eventstore.Expected
	}{
		{eventstore.Write{Stream: "old", Expect: eventstore.At(0), Events: events("x")}, 1},
		{eventstore.Write{Stream: "old", Expect: eventstore.NoStream, Events: events("x")}, 1},
		{eventstore.Write{Stream: "new", Expect: eventstore.At(0), Events: events("x")}, eventstore.NoStream},
		{eventstore.Check("old", eventstore.At(0)), 1},
	} {
		_, err := store.Append(t.Context(), eventstore.Write{
			Stream: "other", Expect: eventstore.NoStream, Events: events("y"),
		}, c.write)
		conflict := eventstore.Conflict(err)
		require.NotNil(t, conflict, "%v", c.write)
		require.Equal(t, eventstore.ConflictError{
			Stream: c.write.Stream, Expected: c.write.Expect, Actual: c.actual,
		}, *conflict)
		require.Empty(t, texts(t, store, "other", 0), "a failed append writes nothing")
	}
	_, err := store.Append(t.Context(), eventstore.Write{Stream: "", Expect: eventstore.Any, Events: events("x")})
	require.ErrorIs(t, err, eventstore.ErrInvalid)
}
