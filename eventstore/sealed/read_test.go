package sealed_test

import (
	"context"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
)

// endless is a log that always has more.
type endless struct{ eventstore.Store }

func (endless) Subscribe(_ context.Context, after eventstore.Position, _ eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		for after++; yield(happened(after), nil); after++ {
		}
	}
}

func happened(at eventstore.Position) eventstore.Item {
	return eventstore.Item{Event: &eventstore.Recorded{Position: at}, Position: at}
}

// busy is a log on which one event after another appears, with a progress mark behind each.
type busy struct {
	eventstore.Store
	events eventstore.Position
}

func (b busy) Subscribe(ctx context.Context, after eventstore.Position, _ eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		for after++; after <= b.events; after++ {
			if !yield(happened(after), nil) || !yield(eventstore.Item{Position: after}, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

// echo is a log that gives its followers what was appended, as it was appended.
type echo struct {
	eventstore.Store
	items []eventstore.Item
}

func (e *echo) Append(_ context.Context, writes ...eventstore.Write) (at eventstore.Position, _ error) {
	for _, w := range writes {
		for _, appended := range w.Events {
			at = eventstore.Position(len(e.items) + 1)
			e.items = append(e.items, eventstore.Item{Event: &eventstore.Recorded{Event: appended, Stream: w.Stream, Position: at}, Position: at})
		}
	}
	return at, nil
}

func (e *echo) Subscribe(context.Context, eventstore.Position, eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		for _, item := range e.items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

func TestSubscribe_OwnEvents(t *testing.T) {
	t.Parallel()
	below, p := &echo{}, newPlace(t, "")
	store := sealed.Wrap(below, p.vault(sealKey), true, slog.New(slog.DiscardHandler))
	appended, stays, goes, again := fact(t, asha()), newLead(), newLead(), newLead()
	appended.Decoded = asha()
	for _, stream := range []string{stays, goes, again} {
		_, err := store.Append(t.Context(), write(stream, eventstore.NoStream, appended))
		require.NoError(t, err)
	}
	for _, item := range below.items {
		requireNothingOfAsha(t, []eventstore.Recorded{*item.Event})
		require.Nil(t, item.Event.Decoded)
	}
	require.NoError(t, store.Destroy(t.Context(), goes, again))
	_, err := store.Append(t.Context(), write(again, eventstore.NoStream, fact(t, asha()))) // with a key of its own
	require.NoError(t, err)
	var followed []eventstore.Recorded
	for item, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
		require.NoError(t, err)
		followed = append(followed, *item.Event)
	}
	require.Len(t, followed, 4)
	require.Equal(t, appended, followed[0].Event)
	for _, forgotten := range followed[1:3] {
		require.True(t, forgotten.Erased)
		require.Nil(t, forgotten.Decoded)
		require.Zero(t, forgotten.Unsealed)
	}
	requireNothingOfAsha(t, followed[1:3])
	require.Contains(t, string(followed[3].Data), "Asha Rao")
}

// A consumer that rests at each mark would rest once for each append, and fall behind one that appends more often.
func TestSubscribe_SupersededMarks(t *testing.T) {
	t.Parallel()
	box, err := sealbox.New(sealKey)
	require.NoError(t, err)
	vault := sealed.NewVault(nil, box)
	const events = 100
	store := sealed.Wrap(busy{events: events}, vault, true, slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var received, marks []eventstore.Position
		for item, err := range store.Subscribe(ctx, 0, eventstore.Filter{}) {
			require.NoError(t, err)
			if item.Event != nil {
				received = append(received, item.Position)
			} else {
				marks = append(marks, item.Position)
			}
			if synctest.Wait(); item.Event == nil && item.Position == events { // the rest is read ahead
				break
			}
		}
		require.Len(t, received, events)
		require.LessOrEqual(t, len(marks), 2) // one may have been all that there was
	})
}

// The context ends while the consumer is slow and the buffer is full.
func TestSubscribe_EndsWithContext(t *testing.T) {
	t.Parallel()
	box, err := sealbox.New(sealKey)
	require.NoError(t, err)
	vault := sealed.NewVault(nil, box)
	store := sealed.Wrap(endless{}, vault, true, slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var ended error
		for item, err := range store.Subscribe(ctx, 0, eventstore.Filter{}) {
			if item.Position == 1 {
				synctest.Wait()
				cancel()
				synctest.Wait()
			}
			ended = err
		}
		require.ErrorIs(t, ended, context.Canceled)
	})
}
