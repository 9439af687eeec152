package storetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func retryLaws() []law {
	return []law{
		{"returns the same position and writes nothing", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(3)
			again := write(stream, eventstore.NoStream, events...)
			position := l.append(t, again)
			require.Equal(t, position, l.append(t, again))
			require.Equal(t, position, l.append(t, again))
			l.holds(t, stream, events...)
		}},
		{"is the same at a revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			more := newEvents(2)
			again := write(stream, eventstore.At(1), more...)
			position := l.append(t, again)
			require.Equal(t, position, l.append(t, again))
			l.holds(t, stream, slices.Concat(events, more)...)
		}},
		{"is the same after others followed, on its stream and elsewhere", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(4)
			begin := write(stream, eventstore.NoStream, events[:2]...)
			goOn := write(stream, eventstore.At(1), events[2])
			begun := l.append(t, begin)
			wentOn := l.append(t, goOn)
			l.append(t, write(stream, eventstore.At(2), events[3]))
			l.grow(t, 1)
			require.Equal(t, begun, l.append(t, begin))
			require.Equal(t, wentOn, l.append(t, goOn))
			l.holds(t, stream, events...)
		}},
		{"is the same when it expects nothing", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(5)
			first, second := write(stream, eventstore.Any, events[:2]...), write(stream, eventstore.Any, events[2:4]...)
			firstAt := l.append(t, first)
			require.Equal(t, firstAt, l.append(t, first))
			secondAt := l.append(t, second)
			l.append(t, write(stream, eventstore.Any, events[4]))
			require.Equal(t, firstAt, l.append(t, first))
			require.Equal(t, secondAt, l.append(t, second))
			l.holds(t, stream, events...)
		}},
		{"is the same over several streams", func(t *testing.T, l log) {
			old, oldEvents := l.grow(t, 1)
			begun, anyhow, events := newStream(), newStream(), newEvents(4)
			again := []eventstore.Write{
				write(begun, eventstore.NoStream, events[:2]...),
				write(anyhow, eventstore.Any, events[2]),
				write(old, eventstore.At(0), events[3]),
			}
			position := l.append(t, again...)
			require.Equal(t, position, l.append(t, again...))
			later := newEvents(2)
			l.append(t, write(begun, eventstore.At(1), later[0]), write(old, eventstore.At(1), later[1]))
			require.Equal(t, position, l.append(t, again...))
			l.holds(t, begun, events[0], events[1], later[0])
			l.holds(t, anyhow, events[2])
			l.holds(t, old, oldEvents[0], events[3], later[1])
		}},
		{"is the same with checks that still hold", func(t *testing.T, l log) {
			watched, _ := l.grow(t, 1)
			stream, events := newStream(), newEvents(1)
			again := []eventstore.Write{
				eventstore.Check(watched, eventstore.At(0)),
				write(stream, eventstore.NoStream, events...),
				eventstore.Check(newStream(), eventstore.NoStream),
			}
			position := l.append(t, again...)
			require.Equal(t, position, l.append(t, again...))
			l.holds(t, stream, events...)
		}},
		{"is the same although what it checked has moved since", func(t *testing.T, l log) {
			watched, _ := l.grow(t, 1)
			stream, events := newStream(), newEvents(1)
			again := []eventstore.Write{
				eventstore.Check(watched, eventstore.At(0)),
				write(stream, eventstore.NoStream, events...),
			}
			position := l.append(t, again...)
			l.append(t, write(watched, eventstore.At(0), newEvents(1)...))
			require.Equal(t, position, l.append(t, again...))
			l.holds(t, stream, events...)
		}},
		{"is told from other events at the same place", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			twin := events[0]
			twin.ID = newEvent(noted).ID
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(1)},
				write(stream, eventstore.NoStream, twin, events[1]))
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.At(0), Actual: eventstore.At(1)},
				write(stream, eventstore.At(0), twin))
			l.holds(t, stream, events...)
		}},
		{"is told from one that only begins alike", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(1)},
				write(stream, eventstore.NoStream, append(slices.Clone(events), newEvent(noted))...))
			l.holds(t, stream, events...)
		}},
		{"is told from the same events in another order", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(1)},
				write(stream, eventstore.NoStream, events[1], events[0]))
			l.holds(t, stream, events...)
		}},
	}
}
