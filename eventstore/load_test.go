package eventstore_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// history is a store of one stream, for reads only.
type history struct {
	eventstore.Store
	stream string
	events []eventstore.Recorded
	err    error // yielded after the events
	read   *int  // number of events read
}

func (h history) Last(_ context.Context, stream string) (eventstore.Recorded, error) {
	if stream != h.stream || len(h.events) == 0 {
		return eventstore.Recorded{}, nil
	}
	if h.read != nil {
		*h.read++
	}
	return h.events[len(h.events)-1], nil
}

func (h history) Read(
	_ context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		if stream != h.stream {
			return
		}
		for _, r := range h.events[min(int(from), len(h.events)):] {
			if h.read != nil {
				*h.read++
			}
			if !yield(r, nil) {
				return
			}
		}
		if h.err != nil {
			yield(eventstore.Recorded{}, h.err)
		}
	}
}

func tokenHistory(t *testing.T, facts ...event.Data) history {
	t.Helper()
	h := history{stream: "token-1"}
	for i, fact := range facts {
		eventType, data, err := event.Encode(fact)
		require.NoError(t, err)
		e := newEvent()
		e.ID, e.Type, e.Data = ulid.Make(), eventType, data
		h.events = append(h.events, eventstore.Recorded{
			Event: e, Stream: "token-1", Revision: eventstore.Revision(i), Position: eventstore.Position(10 * i),
		})
	}
	return h
}

func collectFacts(facts []event.Fact, f event.Fact) []event.Fact { return append(facts, f) }

func TestLoad_FoldsInOrder(t *testing.T) {
	t.Parallel()
	store := tokenHistory(t, event.TokenCreated{Name: "crm"}, event.TokenRotated{Prefix: "p"}, event.TokenDeleted{})
	facts, end, err := eventstore.Load(t.Context(), store, "token-1", collectFacts)
	require.NoError(t, err)
	require.Equal(t, eventstore.At(2), end)
	require.Len(t, facts, 3)
	require.Equal(t, "crm", facts[0].Data.(event.TokenCreated).Name)
	require.Equal(t, "p", facts[1].Data.(event.TokenRotated).Prefix)
	require.Equal(t, event.TokenDeleted{}, facts[2].Data)
	for i, f := range facts {
		r := store.events[i]
		require.Equal(t, event.Fact{ID: r.ID, Stream: "token-1", At: r.At, Metadata: r.Metadata, Data: f.Data}, f)
	}
}

func TestLoad_NoStream(t *testing.T) {
	t.Parallel()
	facts, end, err := eventstore.Load(t.Context(), tokenHistory(t), "token-2", collectFacts)
	require.NoError(t, err)
	require.Nil(t, facts)
	require.Equal(t, eventstore.NoStream, end)
}

func TestLoad_UnknownType(t *testing.T) {
	t.Parallel()
	store := tokenHistory(t, event.TokenCreated{}, event.TokenDeleted{}, event.TokenDeleted{})
	store.events[1].Type = "token.sold.v1"
	facts, _, err := eventstore.Load(t.Context(), store, "token-1", collectFacts)
	require.ErrorIs(t, err, event.ErrUnknownType)
	require.ErrorContains(t, err, "stream token-1 at revision 1")
	require.Len(t, facts, 1, "events after the unknown one are not folded")
}

func TestLoad_ReadError(t *testing.T) {
	t.Parallel()
	store := tokenHistory(t, event.TokenCreated{})
	store.err = errors.New("connection lost")
	_, _, err := eventstore.Load(t.Context(), store, "token-1", collectFacts)
	require.ErrorIs(t, err, store.err)
}
