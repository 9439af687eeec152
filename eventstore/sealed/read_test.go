package sealed_test

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealed"
)

// echo is a log whose subscriptions yield the appended events unchanged.
type echo struct {
	eventstore.Store
	events []eventstore.Recorded
}

func (e *echo) Append(_ context.Context, writes ...eventstore.Write) (at eventstore.Position, _ error) {
	for _, w := range writes {
		for _, appended := range w.Events {
			at = eventstore.Position(len(e.events) + 1)
			e.events = append(e.events, eventstore.Recorded{Event: appended, Stream: w.Stream, Position: at})
		}
	}
	return at, nil
}

func (e *echo) Subscribe(context.Context, eventstore.Position, eventstore.Filter) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		yield(eventstore.Page{Events: slices.Clone(e.events), Position: eventstore.Position(len(e.events))}, nil)
	}
}

func TestSubscribe_OwnEvents(t *testing.T) {
	t.Parallel()
	below, p := &echo{}, newFixture(t, "")
	store := sealed.Wrap(below, p.vault(sealKey), true, slog.New(slog.DiscardHandler))
	appended, kept, destroyed, returning := fact(t, asha()), newLead(), newLead(), newLead()
	for _, stream := range []string{kept, destroyed, returning} {
		_, err := store.Append(t.Context(), write(stream, eventstore.NoStream, appended))
		require.NoError(t, err)
	}
	requireNoPersonalData(t, below.events)
	require.NoError(t, store.Destroy(t.Context(), destroyed, returning))
	_, err := store.Append(t.Context(), write(returning, eventstore.NoStream, fact(t, asha()))) // with a new key
	require.NoError(t, err)
	var followed []eventstore.Recorded
	for page, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
		require.NoError(t, err)
		followed = append(followed, page.Events...)
	}
	require.Len(t, followed, 4)
	require.JSONEq(t, string(appended.Data), string(followed[0].Data))
	require.Len(t, followed[0].Metadata.Commitment, 64)
	appended.Metadata.Commitment = followed[0].Metadata.Commitment
	require.Equal(t, appended.Metadata, followed[0].Metadata)
	for _, forgotten := range followed[1:3] {
		require.True(t, forgotten.Erased)
	}
	requireNoPersonalData(t, followed[1:3])
	require.Contains(t, string(followed[3].Data), "Asha Rao")
}
