package eventstore_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

func newEvent() eventstore.Event {
	return eventstore.Event{
		ID:       ulid.MustParse("01JQKXZ8V4W9H6M3T2R5N7P0AB"),
		Type:     "test.happened.v1",
		At:       time.Date(2025, 3, 30, 1, 2, 3, 4e6, time.UTC),
		Data:     []byte(`{}`),
		Metadata: event.Metadata{Account: "acme"},
	}
}

// on returns a write of one event to which change was applied.
func on(stream string, change func(*eventstore.Event)) eventstore.Write {
	e := newEvent()
	change(&e)
	return eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: []eventstore.Event{e}}
}

func unchanged(*eventstore.Event) {}

func TestValidate_Accepts(t *testing.T) {
	t.Parallel()
	for name, writes := range map[string][]eventstore.Write{
		"nothing": nil,
		"a check": {eventstore.Check("lead-1", eventstore.At(3))},
		"every expectation": {
			eventstore.Check("a", eventstore.NoStream), eventstore.Check("b", eventstore.Any),
			eventstore.Check("c", eventstore.At(0)),
		},
		"an event": {on("lead-1", unchanged)},
		"several streams": {
			on("lead-1", unchanged), on("lead-2", unchanged), eventstore.Check("lead-3", eventstore.Any),
		},
		"a name as long as allowed": {
			on(strings.Repeat("n", eventstore.MaxStreamName), unchanged),
		},
		"a name of any text": {on("größe %_'\"\\ 🦊\n", unchanged)},
		"a type as long as allowed": {
			on("lead-1", func(e *eventstore.Event) { e.Type = strings.Repeat("t", eventstore.MaxStreamName) }),
		},
		"data as large as allowed": {
			on("lead-1", func(e *eventstore.Event) { e.Data = bytes.Repeat([]byte("1"), eventstore.MaxEventData) }),
		},
		"the earliest time": {on("lead-1", func(e *eventstore.Event) { e.At = time.UnixMilli(0).UTC() })},
		"the latest time": {
			on("lead-1", func(e *eventstore.Event) { e.At = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC) }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, eventstore.Validate(writes))
		})
	}
}

func TestValidate_Rejects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		writes  []eventstore.Write
		message string
	}{
		"a stream written twice": {
			[]eventstore.Write{on("lead-1", unchanged), on("lead-1", unchanged)}, "lead-1 is written twice",
		},
		"a stream written, checked": {
			[]eventstore.Write{on("lead-1", unchanged), eventstore.Check("lead-1", eventstore.Any)}, "written twice",
		},
		"a fault after good writes": {[]eventstore.Write{on("lead-1", unchanged), on("", unchanged)}, "without a name"},
		"no name":                   {[]eventstore.Write{on("", unchanged)}, "without a name"},
		"no name on a check":        {[]eventstore.Write{eventstore.Check("", eventstore.Any)}, "without a name"},
		"a name too long": {
			[]eventstore.Write{on(strings.Repeat("n", eventstore.MaxStreamName+1), unchanged)}, "257 bytes",
		},
		"a name too long in bytes": {
			[]eventstore.Write{on(strings.Repeat("é", eventstore.MaxStreamName/2)+"n", unchanged)}, "257 bytes",
		},
		"a name that is not UTF-8": {[]eventstore.Write{on("lead-\xff", unchanged)}, "not text"},
		"a name with a zero byte":  {[]eventstore.Write{on("lead-\x00", unchanged)}, "not text"},
		"an unknown expectation":   {[]eventstore.Write{eventstore.Check("lead-1", eventstore.Any-1)}, "expects -3"},
		"no type": {
			withSecondEvent(func(e *eventstore.Event) { e.Type = "" }), "type is not a name on stream lead-1",
		},
		"a type too long": {
			withSecondEvent(func(e *eventstore.Event) { e.Type = strings.Repeat("t", eventstore.MaxStreamName+1) }),
			"type is not a name",
		},
		"a type that is not UTF-8": {
			withSecondEvent(func(e *eventstore.Event) { e.Type = "a\xff" }), "type is not a name",
		},
		"a type with a zero byte": {
			withSecondEvent(func(e *eventstore.Event) { e.Type = "a\x00" }), "type is not a name",
		},
		"an actor with a zero byte": {
			withSecondEvent(func(e *eventstore.Event) { e.Metadata.Actor = "user:a\x00" }), "metadata has NUL",
		},
		"a line with a zero byte": {
			withSecondEvent(func(e *eventstore.Event) { e.Metadata.Line = "\x00" }), "metadata has NUL",
		},
		"no id": {
			withSecondEvent(func(e *eventstore.Event) { e.ID = ulid.ULID{} }), "without an id on stream lead-1",
		},
		"no time": {
			withSecondEvent(func(e *eventstore.Event) { e.At = time.Time{} }), "without a time",
		},
		"a time before 1970": {
			withSecondEvent(func(e *eventstore.Event) { e.At = time.UnixMilli(-1).UTC() }), "without a time",
		},
		"a time after 9999": {
			withSecondEvent(func(e *eventstore.Event) { e.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }),
			"without a time",
		},
		"a time finer than milliseconds": {
			withSecondEvent(func(e *eventstore.Event) { e.At = e.At.Add(time.Microsecond) }),
			"not UTC in whole milliseconds",
		},
		"a time of another zone": {
			withSecondEvent(func(e *eventstore.Event) { e.At = e.At.In(time.FixedZone("IST", 19800)) }),
			"not UTC in whole milliseconds",
		},
		"no data": {withSecondEvent(func(e *eventstore.Event) { e.Data = nil }), "without data"},
		"empty data": {
			withSecondEvent(func(e *eventstore.Event) { e.Data = []byte{} }), "without data",
		},
		"data too large": {
			withSecondEvent(func(e *eventstore.Event) { e.Data = make([]byte, eventstore.MaxEventData+1) }),
			"1024001 bytes, at most 1024000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := eventstore.Validate(c.writes)
			require.ErrorIs(t, err, eventstore.ErrInvalid)
			require.ErrorContains(t, err, c.message)
		})
	}
}

// withSecondEvent returns a write of two events to whose second one change was applied.
func withSecondEvent(change func(*eventstore.Event)) []eventstore.Write {
	w := on("lead-1", change)
	w.Events = append([]eventstore.Event{newEvent()}, w.Events...)
	return []eventstore.Write{w}
}
