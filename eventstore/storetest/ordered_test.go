package storetest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func TestAnOrderedStoreStopsAfterAnyPrefixOfTheWrites(t *testing.T) {
	t.Parallel()
	killed := errors.New("killed")
	for stop := range 4 {
		below := Memory()
		done := 0
		store := &Ordered{Store: below, Before: func(step Step) error {
			if !step.Writes {
				return nil
			}
			if done == stop {
				return killed
			}
			done++
			return nil
		}}
		writes := []eventstore.Write{
			eventstore.Check("checked", eventstore.NoStream),
			write("a", eventstore.NoStream, newEvent(noted)),
			write("b", eventstore.NoStream, newEvent(noted)),
			write("c", eventstore.NoStream, newEvent(noted)),
		}
		_, err := store.Append(t.Context(), writes...)
		if stop == 3 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, killed)
			_, err = store.Head(t.Context())
			require.ErrorIs(t, err, killed, "a process that was killed asks for nothing more")
		}
		head, err := below.Head(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, stop, head)
	}
}

func TestOthersWriteBetweenTwoWritesOfAnOrderedStore(t *testing.T) {
	t.Parallel()
	below := Memory()
	store := &Ordered{Store: below, Before: func(step Step) error {
		if step.Stream != "b" {
			return nil
		}
		_, err := below.Append(t.Context(), write("b", eventstore.NoStream, newEvent(noted)))
		return err
	}}
	_, err := store.Append(t.Context(), write("a", eventstore.NoStream, newEvent(noted)), write("b", eventstore.NoStream, newEvent(noted)))
	require.Equal(t, &eventstore.ConflictError{Stream: "b", Expected: eventstore.NoStream, Actual: eventstore.At(0)}, eventstore.Conflict(err))
	head, err := below.Head(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, head, "the first write stands")
}
