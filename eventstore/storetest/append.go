package storetest

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func expectationTests() []test {
	return []test{
		{"new stream", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(3)
			position := l.append(t, write(stream, eventstore.NoStream, events...))
			require.Equal(t, position, l.requireStream(t, stream, events...)[2].Position)
		}},
		{"next revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			more := newEvents(2)
			l.append(t, write(stream, eventstore.At(1), more[0]))
			position := l.append(t, write(stream, eventstore.At(2), more[1]))
			require.Equal(t, position, l.requireStream(t, stream, append(events, more...)...)[3].Position)
		}},
		{"any revision", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(3)
			l.append(t, write(stream, eventstore.Any, events[0]))
			position := l.append(t, write(stream, eventstore.Any, events[1:]...))
			require.Equal(t, position, l.requireStream(t, stream, events...)[2].Position)
		}},
		{"conflict: stream exists", func(t *testing.T, l log) {
			stream, events := l.grow(t, 3)
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(2)},
				write(stream, eventstore.NoStream, newEvents(1)...))
			l.requireStream(t, stream, events...)
		}},
		{"conflict: no stream", func(t *testing.T, l log) {
			stream := newStream()
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.At(0), Actual: eventstore.NoStream},
				write(stream, eventstore.At(0), newEvents(1)...))
			l.requireStream(t, stream)
		}},
		{"conflict: later revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 4)
			for r := range eventstore.Revision(3) {
				l.refuse(t,
					eventstore.ConflictError{Stream: stream, Expected: eventstore.At(r), Actual: eventstore.At(3)},
					write(stream, eventstore.At(r), newEvents(1)...))
			}
			l.requireStream(t, stream, events...)
		}},
		{"conflict: earlier revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			for _, r := range []eventstore.Revision{2, 3, 1 << 40} {
				l.refuse(t,
					eventstore.ConflictError{Stream: stream, Expected: eventstore.At(r), Actual: eventstore.At(1)},
					write(stream, eventstore.At(r), newEvents(1)...))
			}
			l.requireStream(t, stream, events...)
		}},
		{"neighbouring names", func(t *testing.T, l log) {
			stream := newStream()
			l.append(t, write(stream+"a", eventstore.NoStream, newEvents(3)...))
			l.append(t, write(stream, eventstore.NoStream, newEvents(1)...))
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.At(2), Actual: eventstore.At(0)},
				write(stream, eventstore.At(2), newEvents(1)...))
		}},
	}
}

func severalStreamsTests() []test {
	return []test{
		{"one append", func(t *testing.T, l log) {
			old, oldEvents := l.grow(t, 2)
			begun, anyhow, events := newStream(), newStream(), newEvents(5)
			position := l.append(t,
				write(begun, eventstore.NoStream, events[:2]...),
				write(old, eventstore.At(1), events[2]),
				write(anyhow, eventstore.Any, events[3:]...))

			l.requireStream(t, begun, events[:2]...)
			l.requireStream(t, old, slices.Concat(oldEvents, events[2:3])...)
			require.Equal(t, position, l.requireStream(t, anyhow, events[3:]...)[1].Position)
		}},
		{"order of events", func(t *testing.T, l log) {
			// Names in descending order detect a store that sorts streams.
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
				require.Equal(t, position-5, recorded[0].Position, "other events are between those of one append")
			}
		}},
		{"conflict writes nothing", func(t *testing.T, l log) {
			taken, takenEvents := l.grow(t, 1)
			first, last, events := newStream(), newStream(), newEvents(3)
			l.refuse(t,
				eventstore.ConflictError{Stream: taken, Expected: eventstore.NoStream, Actual: eventstore.At(0)},
				write(first, eventstore.NoStream, events[0]),
				write(taken, eventstore.NoStream, events[1]),
				write(last, eventstore.NoStream, events[2]))

			l.requireStream(t, taken, takenEvents...)
			l.requireStream(t, last)
			l.requireStream(t, first)
		}},
		{"first conflict is reported", func(t *testing.T, l log) {
			one, _ := l.grow(t, 1)
			two, _ := l.grow(t, 2)
			// Both orders detect a store that sorts by name, or searches the missing streams first.
			a := write(one, eventstore.NoStream, newEvents(1)...)
			b := write(two, eventstore.At(7), newEvents(1)...)
			conflictA := eventstore.ConflictError{Stream: one, Expected: eventstore.NoStream, Actual: eventstore.At(0)}
			conflictB := eventstore.ConflictError{Stream: two, Expected: eventstore.At(7), Actual: eventstore.At(1)}
			l.refuse(t, conflictA, a, b)
			l.refuse(t, conflictB, b, a)
			l.refuse(t, conflictA, write(newStream(), eventstore.NoStream), a, b)
		}},
		{"refused append, retried", func(t *testing.T, l log) {
			ready, late, events := newStream(), newStream(), newEvents(3)
			again := []eventstore.Write{
				write(ready, eventstore.NoStream, events[0]),
				write(late, eventstore.At(0), events[2]),
			}
			l.refuse(t, eventstore.ConflictError{
				Stream: late, Expected: eventstore.At(0), Actual: eventstore.NoStream,
			}, again...)
			l.append(t, write(late, eventstore.NoStream, events[1]))
			l.append(t, again...)
			l.requireStream(t, ready, events[0])
			l.requireStream(t, late, events[1:]...)
		}},
		{"largest append", func(t *testing.T, l log) {
			one, two, events := newStream(), newStream(), newEvents(2)
			for i := range events {
				events[i].Data = []byte(`"` + strings.Repeat("x", eventstore.MaxAnywhere/2-2000) + `"`)
			}
			l.append(t, write(one, eventstore.NoStream, events[0]), write(two, eventstore.NoStream, events[1]),
				eventstore.Check(newStream(), eventstore.NoStream))
			l.requireStream(t, one, events[0])
			l.requireStream(t, two, events[1])
		}},
		{"a hundred streams", func(t *testing.T, l log) {
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

func checkTests() []test {
	return []test{
		{"check that holds", func(t *testing.T, l log) {
			existing, existingEvents := l.grow(t, 2)
			missing, stream, events := newStream(), newStream(), newEvents(1)
			l.append(t,
				eventstore.Check(existing, eventstore.At(1)),
				eventstore.Check(missing, eventstore.NoStream),
				write(stream, eventstore.NoStream, events...))
			l.requireStream(t, stream, events...)
			l.requireStream(t, existing, existingEvents...)
			l.requireStream(t, missing)
		}},
		{"check that fails", func(t *testing.T, l log) {
			moved, _ := l.grow(t, 3)
			stream, events := newStream(), newEvents(1)
			check := eventstore.Check(moved, eventstore.At(1))
			body := write(stream, eventstore.NoStream, events...)
			conflict := eventstore.ConflictError{Stream: moved, Expected: eventstore.At(1), Actual: eventstore.At(2)}
			l.refuse(t, conflict, check, body)
			l.refuse(t, conflict, body, check)
			l.requireStream(t, stream)
		}},
		{"every expectation", func(t *testing.T, l log) {
			existing, _ := l.grow(t, 2)
			missing := newStream()
			l.append(t, eventstore.Check(existing, eventstore.Any), eventstore.Check(missing, eventstore.Any))
			for _, wrong := range []eventstore.ConflictError{
				{Stream: existing, Expected: eventstore.NoStream, Actual: eventstore.At(1)},
				{Stream: existing, Expected: eventstore.At(0), Actual: eventstore.At(1)},
				{Stream: existing, Expected: eventstore.At(2), Actual: eventstore.At(1)},
				{Stream: missing, Expected: eventstore.At(0), Actual: eventstore.NoStream},
			} {
				l.refuse(t, wrong, eventstore.Check(wrong.Stream, wrong.Expected))
			}
		}},
		{"first failing check is reported", func(t *testing.T, l log) {
			one, _ := l.grow(t, 1)
			two, _ := l.grow(t, 2)
			a, b := eventstore.Check(one, eventstore.NoStream), eventstore.Check(two, eventstore.NoStream)
			conflictA := eventstore.ConflictError{Stream: one, Expected: eventstore.NoStream, Actual: eventstore.At(0)}
			conflictB := eventstore.ConflictError{Stream: two, Expected: eventstore.NoStream, Actual: eventstore.At(1)}
			l.refuse(t, conflictA, a, b)
			l.refuse(t, conflictB, b, a)
		}},
		{"failing write and failing check", func(t *testing.T, l log) {
			one, _ := l.grow(t, 1)
			two, _ := l.grow(t, 2)
			body, check := write(one, eventstore.NoStream, newEvents(1)...), eventstore.Check(two, eventstore.NoStream)
			ofBody := eventstore.ConflictError{Stream: one, Expected: eventstore.NoStream, Actual: eventstore.At(0)}
			ofCheck := eventstore.ConflictError{Stream: two, Expected: eventstore.NoStream, Actual: eventstore.At(1)}
			l.refuse(t, ofCheck, check, body)
			l.refuse(t, ofBody, body, check)
		}},
		{"stream moves after a check", func(t *testing.T, l log) {
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

func retryTests() []test {
	return []test{
		{"same position", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(3)
			again := write(stream, eventstore.NoStream, events...)
			position := l.append(t, again)
			require.Equal(t, position, l.append(t, again))
			require.Equal(t, position, l.append(t, again))
			l.requireStream(t, stream, events...)
		}},
		{"at a revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			more := newEvents(2)
			again := write(stream, eventstore.At(1), more...)
			position := l.append(t, again)
			require.Equal(t, position, l.append(t, again))
			l.requireStream(t, stream, slices.Concat(events, more)...)
		}},
		{"after later appends", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(4)
			begin := write(stream, eventstore.NoStream, events[:2]...)
			goOn := write(stream, eventstore.At(1), events[2])
			begun := l.append(t, begin)
			wentOn := l.append(t, goOn)
			l.append(t, write(stream, eventstore.At(2), events[3]))
			l.grow(t, 1)
			require.Equal(t, begun, l.append(t, begin))
			require.Equal(t, wentOn, l.append(t, goOn))
			l.requireStream(t, stream, events...)
		}},
		{"at any revision", func(t *testing.T, l log) {
			stream, events := newStream(), newEvents(5)
			first, second := write(stream, eventstore.Any, events[:2]...), write(stream, eventstore.Any, events[2:4]...)
			firstAt := l.append(t, first)
			require.Equal(t, firstAt, l.append(t, first))
			secondAt := l.append(t, second)
			l.append(t, write(stream, eventstore.Any, events[4]))
			require.Equal(t, firstAt, l.append(t, first))
			require.Equal(t, secondAt, l.append(t, second))
			l.requireStream(t, stream, events...)
		}},
		{"streams", func(t *testing.T, l log) {
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
			l.requireStream(t, begun, events[0], events[1], later[0])
			l.requireStream(t, anyhow, events[2])
			l.requireStream(t, old, oldEvents[0], events[3], later[1])
		}},
		{"with checks that hold", func(t *testing.T, l log) {
			watched, _ := l.grow(t, 1)
			stream, events := newStream(), newEvents(1)
			again := []eventstore.Write{
				eventstore.Check(watched, eventstore.At(0)),
				write(stream, eventstore.NoStream, events...),
				eventstore.Check(newStream(), eventstore.NoStream),
			}
			position := l.append(t, again...)
			require.Equal(t, position, l.append(t, again...))
			l.requireStream(t, stream, events...)
		}},
		{"with checks that no longer hold", func(t *testing.T, l log) {
			watched, _ := l.grow(t, 1)
			stream, events := newStream(), newEvents(1)
			again := []eventstore.Write{
				eventstore.Check(watched, eventstore.At(0)),
				write(stream, eventstore.NoStream, events...),
			}
			position := l.append(t, again...)
			l.append(t, write(watched, eventstore.At(0), newEvents(1)...))
			require.Equal(t, position, l.append(t, again...))
			l.requireStream(t, stream, events...)
		}},
		{"other events at the same place", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			twin := events[0]
			twin.ID = newEvent(noted).ID
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(1)},
				write(stream, eventstore.NoStream, twin, events[1]))
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.At(0), Actual: eventstore.At(1)},
				write(stream, eventstore.At(0), twin))
			l.requireStream(t, stream, events...)
		}},
		{"longer append", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(1)},
				write(stream, eventstore.NoStream, append(slices.Clone(events), newEvent(noted))...))
			l.requireStream(t, stream, events...)
		}},
		{"other order", func(t *testing.T, l log) {
			stream, events := l.grow(t, 2)
			l.refuse(t,
				eventstore.ConflictError{Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(1)},
				write(stream, eventstore.NoStream, events[1], events[0]))
			l.requireStream(t, stream, events...)
		}},
	}
}

func invalidTests() []test {
	spoiled := func(spoil func(*eventstore.Event)) func(string) []eventstore.Write {
		return func(good string) []eventstore.Write {
			bad := newEvent(noted)
			spoil(&bad)
			return []eventstore.Write{
				write(good, eventstore.NoStream, newEvent(noted)),
				write(newStream(), eventstore.NoStream, newEvent(noted), bad),
			}
		}
	}
	named := func(name string) func(string) []eventstore.Write {
		return func(good string) []eventstore.Write {
			return []eventstore.Write{
				write(good, eventstore.NoStream, newEvent(noted)),
				write(name, eventstore.NoStream, newEvent(noted)),
			}
		}
	}
	return []test{
		refused("stream written twice", func(good string) []eventstore.Write {
			return []eventstore.Write{
				write(good, eventstore.NoStream, newEvent(noted)),
				write(good, eventstore.At(0), newEvent(noted)),
			}
		}),
		refused("stream written and checked", func(good string) []eventstore.Write {
			return []eventstore.Write{
				eventstore.Check(good, eventstore.NoStream),
				write(good, eventstore.NoStream, newEvent(noted)),
			}
		}),
		refused("unknown expectation", func(good string) []eventstore.Write {
			return []eventstore.Write{write(good, eventstore.Any-1, newEvent(noted))}
		}),
		refused("empty stream name", named("")),
		refused("long stream name", named(strings.Repeat("n", eventstore.MaxStreamName+1))),
		refused("stream name not UTF-8", named("test-\xff")),
		refused("event without type", spoiled(func(e *eventstore.Event) { e.Type = "" })),
		refused("event without id", spoiled(func(e *eventstore.Event) { e.ID = ulid.ULID{} })),
		refused("event without time", spoiled(func(e *eventstore.Event) { e.At = time.Time{} })),
		refused("event without data", spoiled(func(e *eventstore.Event) { e.Data = nil })),
		refused("event with too much data", spoiled(func(e *eventstore.Event) {
			e.Data = bytes.Repeat([]byte("1"), eventstore.MaxEventData+1)
		})),
		refused("append too large", func(good string) []eventstore.Write {
			large := newEvents(eventstore.MaxAppend/eventstore.MaxEventData + 1)
			for i := range large {
				large[i].Data = []byte(`"` + strings.Repeat("x", eventstore.MaxEventData-2) + `"`)
			}
			return []eventstore.Write{
				write(good, eventstore.NoStream, large[0]),
				write(newStream(), eventstore.NoStream, large[1:]...),
			}
		}),
	}
}

// refused returns a test that an append is invalid, and that nothing of it was written.
func refused(what string, writes func(good string) []eventstore.Write) test {
	return test{what, func(t *testing.T, l log) {
		good := newStream()
		_, err := l.Append(l.context(t), writes(good)...)
		require.ErrorIs(t, err, eventstore.ErrInvalid)
		require.Nil(t, eventstore.Conflict(err))
		l.requireStream(t, good)
	}}
}
