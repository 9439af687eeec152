package storetest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func invalidLaws() []law {
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
	return []law{
		refused("a stream that is written twice", func(good string) []eventstore.Write {
			return []eventstore.Write{
				write(good, eventstore.NoStream, newEvent(noted)),
				write(good, eventstore.At(0), newEvent(noted)),
			}
		}),
		refused("a stream that is written and checked", func(good string) []eventstore.Write {
			return []eventstore.Write{
				eventstore.Check(good, eventstore.NoStream),
				write(good, eventstore.NoStream, newEvent(noted)),
			}
		}),
		refused("an expectation that there is not", func(good string) []eventstore.Write {
			return []eventstore.Write{write(good, eventstore.Any-1, newEvent(noted))}
		}),
		refused("a stream without a name", named("")),
		refused("a stream with too long a name", named(strings.Repeat("n", eventstore.MaxStreamName+1))),
		refused("a stream whose name is not text", named("test-\xff")),
		refused("an event without a type", spoiled(func(e *eventstore.Event) { e.Type = "" })),
		refused("an event without an id", spoiled(func(e *eventstore.Event) { e.ID = ulid.ULID{} })),
		refused("an event without a time", spoiled(func(e *eventstore.Event) { e.At = time.Time{} })),
		refused("an event without data", spoiled(func(e *eventstore.Event) { e.Data = nil })),
		refused("an event with too much data", spoiled(func(e *eventstore.Event) {
			e.Data = bytes.Repeat([]byte("1"), eventstore.MaxEventData+1)
		})),
		refused("an append with too much data in all", func(good string) []eventstore.Write {
			half := newEvents(2)
			for i := range half {
				half[i].Data = []byte(`"` + strings.Repeat("x", eventstore.MaxAppend/2) + `"`)
			}
			return []eventstore.Write{
				write(good, eventstore.NoStream, half[0]),
				write(newStream(), eventstore.NoStream, half[1]),
			}
		}),
	}
}

// refused says that an append is the caller's mistake, and that none of it was written.
func refused(what string, writes func(good string) []eventstore.Write) law {
	return law{what + " is refused", func(t *testing.T, l log) {
		good := newStream()
		_, err := l.Append(l.context(t), writes(good)...)
		require.ErrorIs(t, err, eventstore.ErrInvalid)
		require.Nil(t, eventstore.Conflict(err))
		l.holds(t, good)
	}}
}
