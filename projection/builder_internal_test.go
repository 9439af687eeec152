package projection

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func TestTheRoomOfAPartThatIsWrittenIsTheNextOnesAndHoldsNothingMeanwhile(t *testing.T) {
	t.Parallel()
	b := builder{end: 10, spare: make(chan []Event, 1)}
	at := func(positions ...eventstore.Position) (whole batch) {
		for _, position := range positions {
			whole.events = append(whole.events, Event{Recorded: &eventstore.Recorded{Position: position}})
			whole.position = position
		}
		return whole
	}
	first := b.cut(at(1, 2))
	b.giveBack(first.events)
	require.Equal(t, make([]Event, 2), first.events)

	second := b.cut(at(3))
	require.Equal(t, at(3).events, second.events)
	require.Same(t, &first.events[0], &second.events[0])
	require.Equal(t, at(4, 5, 6).events, b.cut(at(4, 5, 6)).events, "none is left")
	require.Equal(t, at(3).events, second.events)
}
