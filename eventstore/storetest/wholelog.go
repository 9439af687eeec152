package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
)

func wholeLogLaws() []law {
	return []law{
		{"the head is the position of the newest event", func(t *testing.T, l log) {
			empty := l.head(t)
			if l.can.GapFree {
				require.Zero(t, empty)
			}
			first := l.append(t, write("a", eventstore.NoStream, newEvents(1)...))
			require.Greater(t, first, empty)
			require.Equal(t, first, l.head(t))
			second := l.append(t,
				write("b", eventstore.NoStream, newEvents(2)...),
				eventstore.Check("a", eventstore.At(0)),
				write("c", eventstore.NoStream, newEvents(2)...))
			require.Equal(t, second, l.head(t))
			require.Equal(t, second, l.holds(t, "c", l.events(t, "c")...)[1].Position)
		}},
		{"an append of nothing but checks returns the head", func(t *testing.T, l log) {
			require.Equal(t, l.head(t), l.append(t, eventstore.Check("a", eventstore.NoStream)))
			begun := l.append(t, write("a", eventstore.NoStream, newEvents(1)...))
			head := l.append(t, write("b", eventstore.NoStream, newEvents(3)...))
			require.Greater(t, head, begun)
			require.Equal(t, head, l.append(t, eventstore.Check("a", eventstore.At(0)), eventstore.Check("c", eventstore.NoStream)))
			require.Equal(t, head, l.append(t))
			require.Equal(t, head, l.head(t))
		}},
		{"a refused append leaves the head where it was", func(t *testing.T, l log) {
			head := l.append(t, write("a", eventstore.NoStream, newEvents(1)...))
			l.refuse(t,
				eventstore.ConflictError{Stream: "a", Expected: eventstore.NoStream, Actual: eventstore.At(0)},
				write("a", eventstore.NoStream, newEvents(5)...))
			require.Equal(t, head, l.head(t))
			next := l.append(t, write("a", eventstore.At(0), newEvents(1)...))
			if l.can.GapFree {
				require.Equal(t, head+1, next)
			}
		}},
		{"positions count from one without gaps, if the store can", func(t *testing.T, l log) {
			var last eventstore.Position
			for i := range 20 {
				stream := newStream()
				position := l.append(t, write(stream, eventstore.NoStream, newEvents(i%4+1)...))
				for j, r := range l.holds(t, stream, l.events(t, stream)...) {
					if l.can.GapFree {
						require.Equal(t, last+eventstore.Position(j)+1, r.Position)
					}
				}
				require.Greater(t, position, last)
				last = position
			}
		}},
		{"the epoch is there and stays", func(t *testing.T, l log) {
			epoch, err := l.Epoch(l.context(t))
			require.NoError(t, err)
			require.NotEmpty(t, epoch)
			var calls errgroup.Group
			for range 8 {
				l.append(t, write(newStream(), eventstore.NoStream, newEvents(1)...))
				calls.Go(func() error {
					again, err := l.Epoch(t.Context())
					if err == nil && again != epoch {
						t.Errorf("the epoch went from %q to %q", epoch, again)
					}
					return err
				})
			}
			require.NoError(t, calls.Wait())
		}},
	}
}

func (l log) head(t testing.TB) eventstore.Position {
	t.Helper()
	head, err := l.Head(l.context(t))
	require.NoError(t, err)
	return head
}

// events returns what stands on a stream, without places.
func (l log) events(t testing.TB, stream string) []eventstore.Event {
	t.Helper()
	var events []eventstore.Event
	for _, r := range l.read(t, stream, 0) {
		events = append(events, r.Event)
	}
	return events
}
