package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func expectationLaws() []law {
	return []law{
		{"a new stream is begun by expecting none", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(3)
			position := l.append(t, write(stream, eventstore.NoStream, events...))
			require.Equal(t, position, l.holds(t, stream, events...)[2].Position)
		}},
		{"a stream goes on by expecting its last revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			more := newEvents(2)
			l.append(t, write(stream, eventstore.At(1), more[0]))
			position := l.append(t, write(stream, eventstore.At(2), more[1]))
			require.Equal(t, position, l.holds(t, stream, append(events, more...)...)[3].Position)
		}},
		{"an append that expects nothing begins a stream and goes on with it", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(3)
			l.append(t, write(stream, eventstore.Any, events[0]))
			position := l.append(t, write(stream, eventstore.Any, events[1:]...))
			require.Equal(t, position, l.holds(t, stream, events...)[2].Position)
		}},
		{"a stream that is there is a conflict for one who expects none", func(t *testing.T, l log) {
			stream, events := l.grow(t, 3)
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(2)},
				write(stream, eventstore.NoStream, newEvents(1)...))
			l.holds(t, stream, events...)
		}},
		{"a stream that is not there is a conflict for one who expects a revision", func(t *testing.T, l log) {
			stream := newStream()
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.At(0), Actual: eventstore.NoStream},
				write(stream, eventstore.At(0), newEvents(1)...))
			l.holds(t, stream)
		}},
		{"a stream that went on is a conflict for one who expects an earlier revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 4)
			for r := range eventstore.Revision(3) {
				l.refuse(t,
					eventstore.ConflictError{Stream: stream, Expected: eventstore.At(r), Actual: eventstore.At(3)},
					write(stream, eventstore.At(r), newEvents(1)...))
			}
			l.holds(t, stream, events...)
		}},
		{"a stream that did not get that far is a conflict for one who expects a later revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			for _, r := range []eventstore.Revision{2, 3, 1 << 40} {
				l.refuse(t,
					eventstore.ConflictError{Stream: stream, Expected: eventstore.At(r), Actual: eventstore.At(1)},
					write(stream, eventstore.At(r), newEvents(1)...))
			}
			l.holds(t, stream, events...)
		}},
		{"a stream is decided on its own, whatever its neighbours hold", func(t *testing.T, l log) {
			stream := newStream()
			l.append(t, write(stream+"a", eventstore.NoStream, newEvents(3)...))
			l.append(t, write(stream, eventstore.NoStream, newEvents(1)...))
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.At(2), Actual: eventstore.At(0)},
				write(stream, eventstore.At(2), newEvents(1)...))
		}},
	}
}
