package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func severalStreamsLaws() []law {
	return []law{
		{"one append writes to several streams", func(t *testing.T, l log) {
			old, oldEvents := l.grow(t, 2)
			begun, anyhow, events := newStream(), newStream(), newEvents(5)
			position := l.append(t,
				write(begun, eventstore.NoStream, events[:2]...),
				write(old, eventstore.At(1), events[2]),
				write(anyhow, eventstore.Any, events[3:]...))

			l.holds(t, begun, events[:2]...)
			l.holds(t, old, slices.Concat(oldEvents, events[2:3])...)
			require.Equal(t, position, l.holds(t, anyhow, events[3:]...)[1].Position)
		}},
		{"the events stand on the log in the order of the append", func(t *testing.T, l log) {
			// Names in falling order: a store that sorted streams would show.
			prefix, events := newStream(), newEvents(6)
			before, err := l.Head(l.context(t))
			require.NoError(t, err)
			position := l.append(t,
				write(prefix+"-c", eventstore.NoStream, events[:2]...),
				write(prefix+"-b", eventstore.NoStream, events[2:3]...),
				write(prefix+"-a", eventstore.NoStream, events[3:]...))
			recorded := l.follow(t, before, eventstore.Filter{StreamPrefixes: []string{prefix}}, position)
			requireEvents(t, events, recorded)
			require.Equal(t, position, recorded[5].Position)
			if l.can.GapFree {
				require.Equal(t, position-5, recorded[0].Position, "others stand between the events of one append")
			}
		}},
		{"an append with a conflict writes nothing", func(t *testing.T, l log) {
			taken, takenEvents := l.grow(t, 1)
			first, last, events := newStream(), newStream(), newEvents(3)
			l.refuse(t,
				eventstore.ConflictError{Stream: taken, Expected: eventstore.NoStream, Actual: eventstore.At(0)},
				write(first, eventstore.NoStream, events[0]),
				write(taken, eventstore.NoStream, events[1]),
				write(last, eventstore.NoStream, events[2]))

			l.holds(t, taken, takenEvents...)
			l.holds(t, last)
			l.holds(t, first)
		}},
		{"of several conflicts the first in the order given is reported", func(t *testing.T, l log) {
			one, _ := l.grow(t, 1)
			two, _ := l.grow(t, 2)
			// Both orders: a store that sorted by name, or looked for the missing streams first, would show.
			a := write(one, eventstore.NoStream, newEvents(1)...)
			b := write(two, eventstore.At(7), newEvents(1)...)
			conflictA := eventstore.ConflictError{Stream: one, Expected: eventstore.NoStream, Actual: eventstore.At(0)}
			conflictB := eventstore.ConflictError{Stream: two, Expected: eventstore.At(7), Actual: eventstore.At(1)}
			l.refuse(t, conflictA, a, b)
			l.refuse(t, conflictB, b, a)
			l.refuse(t, conflictA, write(newStream(), eventstore.NoStream), a, b)
		}},
		{"a refused append goes through once its expectations hold", func(t *testing.T, l log) {
			ready, late, events := newStream(), newStream(), newEvents(3)
			again := []eventstore.Write{
				write(ready, eventstore.NoStream, events[0]),
				write(late, eventstore.At(0), events[2]),
			}
			l.refuse(t, eventstore.ConflictError{Stream: late, Expected: eventstore.At(0), Actual: eventstore.NoStream}, again...)
			l.append(t, write(late, eventstore.NoStream, events[1]))
			l.append(t, again...)
			l.holds(t, ready, events[0])
			l.holds(t, late, events[1:]...)
		}},
		{"an append may be as large as can be", func(t *testing.T, l log) {
			one, two, events := newStream(), newStream(), newEvents(2)
			for i := range events {
				events[i].Data = []byte(`"` + strings.Repeat("x", eventstore.MaxAppend/2-2000) + `"`)
			}
			l.append(t, write(one, eventstore.NoStream, events[0]), write(two, eventstore.NoStream, events[1]),
				eventstore.Check(newStream(), eventstore.NoStream))
			l.holds(t, one, events[0])
			l.holds(t, two, events[1])
		}},
		{"an append may write to a hundred streams", func(t *testing.T, l log) {
			prefix, events := newStream()+"-", newEvents(100)
			writes := make([]eventstore.Write, len(events))
			for i, e := range events {
				writes[i] = write(prefix+e.ID.String(), eventstore.NoStream, e)
			}
			position := l.append(t, writes...)
			requireEvents(t, events, l.follow(t, 0, eventstore.Filter{StreamPrefixes: []string{prefix}}, position))
		}},
	}
}

func checkLaws() []law {
	return []law{
		{"a check that holds lets the append through and writes nothing itself", func(t *testing.T, l log) {
			there, thereEvents := l.grow(t, 2)
			missing, stream, events := newStream(), newStream(), newEvents(1)
			l.append(t,
				eventstore.Check(there, eventstore.At(1)),
				eventstore.Check(missing, eventstore.NoStream),
				write(stream, eventstore.NoStream, events...))
			l.holds(t, stream, events...)
			l.holds(t, there, thereEvents...)
			l.holds(t, missing)
		}},
		{"a check that fails refuses the append, wherever it stands in it", func(t *testing.T, l log) {
			moved, _ := l.grow(t, 3)
			stream, events := newStream(), newEvents(1)
			check := eventstore.Check(moved, eventstore.At(1))
			body := write(stream, eventstore.NoStream, events...)
			conflict := eventstore.ConflictError{Stream: moved, Expected: eventstore.At(1), Actual: eventstore.At(2)}
			l.refuse(t, conflict, check, body)
			l.refuse(t, conflict, body, check)
			l.holds(t, stream)
		}},
		{"a check compares in every way that a write does", func(t *testing.T, l log) {
			there, _ := l.grow(t, 2)
			missing := newStream()
			l.append(t, eventstore.Check(there, eventstore.Any), eventstore.Check(missing, eventstore.Any))
			for _, wrong := range []eventstore.ConflictError{
				{Stream: there, Expected: eventstore.NoStream, Actual: eventstore.At(1)},
				{Stream: there, Expected: eventstore.At(0), Actual: eventstore.At(1)},
				{Stream: there, Expected: eventstore.At(2), Actual: eventstore.At(1)},
				{Stream: missing, Expected: eventstore.At(0), Actual: eventstore.NoStream},
			} {
				l.refuse(t, wrong, eventstore.Check(wrong.Stream, wrong.Expected))
			}
		}},
		{"of several failing checks the first in the order given is reported", func(t *testing.T, l log) {
			one, _ := l.grow(t, 1)
			two, _ := l.grow(t, 2)
			a, b := eventstore.Check(one, eventstore.NoStream), eventstore.Check(two, eventstore.NoStream)
			conflictA := eventstore.ConflictError{Stream: one, Expected: eventstore.NoStream, Actual: eventstore.At(0)}
			conflictB := eventstore.ConflictError{Stream: two, Expected: eventstore.NoStream, Actual: eventstore.At(1)}
			l.refuse(t, conflictA, a, b)
			l.refuse(t, conflictB, b, a)
		}},
		{"a failing write and a failing check are reported in the order given", func(t *testing.T, l log) {
			one, _ := l.grow(t, 1)
			two, _ := l.grow(t, 2)
			body, check := write(one, eventstore.NoStream, newEvents(1)...), eventstore.Check(two, eventstore.NoStream)
			ofBody := eventstore.ConflictError{Stream: one, Expected: eventstore.NoStream, Actual: eventstore.At(0)}
			ofCheck := eventstore.ConflictError{Stream: two, Expected: eventstore.NoStream, Actual: eventstore.At(1)}
			l.refuse(t, ofCheck, check, body)
			l.refuse(t, ofBody, body, check)
		}},
		{"a stream that moves after a check makes the next check fail", func(t *testing.T, l log) {
			watched, _ := l.grow(t, 1)
			check := eventstore.Check(watched, eventstore.At(0))
			l.append(t, check, write(newStream(), eventstore.NoStream, newEvents(1)...))
			l.append(t, write(watched, eventstore.At(0), newEvents(1)...))
			l.refuse(t,
				eventstore.ConflictError{Stream: watched, Expected: eventstore.At(0), Actual: eventstore.At(1)},
				check, write(newStream(), eventstore.NoStream, newEvents(1)...))
		}},
	}
}
