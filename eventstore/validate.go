package eventstore

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	// MaxStreamName is the longest name of a stream in bytes.
	MaxStreamName = 256
	// MaxEventData is the maximum size of one event's data in bytes. EventStoreDB rejects larger ones, and a log must
	// fit either engine.
	MaxEventData = 1000 << 10
	// MaxAppend is the maximum size of an append in bytes: the data and metadata of all events, the names of their
	// types and streams, and its checks.
	MaxAppend = 8 << 20
	// MaxAnywhere is the maximum size of an append that every engine takes. EventStoreDB rejects larger ones.
	MaxAnywhere = 1 << 20
)

// Bytes of an event, a metadata field and a check in an append in addition to their texts.
const (
	eventOverhead = 128
	fieldOverhead = 18
	checkOverhead = 64
)

// Validate returns ErrInvalid for malformed writes. Stores call it first; Queue.Append does.
func Validate(writes []Write) error {
	_, err := Size(writes)
	return err
}

// Size returns the size of an append in bytes, which MaxAppend limits. The error is that of Validate.
func Size(writes []Write) (size int, err error) {
	seen := make(map[string]struct{}, len(writes))
	for _, w := range writes {
		if err := validateName(w.Stream); err != nil {
			return 0, err
		}
		if _, twice := seen[w.Stream]; twice {
			return 0, fmt.Errorf("%w: stream %s is written twice", ErrInvalid, w.Stream)
		}
		seen[w.Stream] = struct{}{}
		if w.Expect < Any {
			return 0, fmt.Errorf("%w: stream %s expects %d", ErrInvalid, w.Stream, w.Expect)
		}
		for _, e := range w.Events {
			if err := validateEvent(e); err != nil {
				return 0, fmt.Errorf("%w on stream %s", err, w.Stream)
			}
			size += len(w.Stream) + eventSize(e)
		}
		if len(w.Events) == 0 {
			size += len(w.Stream) + checkOverhead
		}
	}
	if size > MaxAppend {
		return 0, fmt.Errorf("%w: an append of %d bytes, at most %d", ErrInvalid, size, MaxAppend)
	}
	return size, nil
}

// eventSize is the approximate size of an event in an append, without the name of its stream.
func eventSize(e Event) int {
	size := len(e.Data) + 2*len(e.Type) + eventOverhead
	for _, text := range texts(&e.Metadata) {
		if text != "" {
			size += len(text) + fieldOverhead
		}
	}
	return size
}

func texts(m *event.Metadata) [11]string {
	return [...]string{
		m.Account, m.Actor, m.Credential, m.RequestID, m.Causation, m.Correlation, m.TraceParent, m.IP, m.UserAgent,
		m.Line, m.Commitment,
	}
}

func validateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: a stream without a name", ErrInvalid)
	case len(name) > MaxStreamName:
		return fmt.Errorf("%w: a stream name of %d bytes, at most %d", ErrInvalid, len(name), MaxStreamName)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("%w: a stream name that is not text", ErrInvalid)
	}
	return nil
}

func validateEvent(e Event) error {
	switch {
	case e.Type == "" || len(e.Type) > MaxStreamName || !utf8.ValidString(e.Type) || strings.ContainsRune(e.Type, 0):
		return fmt.Errorf("%w: an event whose type is not a name", ErrInvalid)
	case e.ID.IsZero():
		return fmt.Errorf("%w: an event %s without an id", ErrInvalid, e.Type)
	case e.At.Year() < 1970 || e.At.Year() > 9999:
		return fmt.Errorf("%w: an event %s without a time", ErrInvalid, e.Type)
	case e.At.Location() != time.UTC || e.At.Nanosecond()%int(time.Millisecond) != 0:
		return fmt.Errorf("%w: an event %s whose time is not UTC in whole milliseconds", ErrInvalid, e.Type)
	case len(e.Data) == 0:
		return fmt.Errorf("%w: an event %s without data", ErrInvalid, e.Type)
	case len(e.Data) > MaxEventData:
		return fmt.Errorf("%w: an event %s of %d bytes, at most %d", ErrInvalid, e.Type, len(e.Data), MaxEventData)
	}
	for _, text := range texts(&e.Metadata) {
		if strings.Contains(text, "\x00") {
			return fmt.Errorf("%w: an event %s whose metadata has NUL, which views cannot store", ErrInvalid, e.Type)
		}
	}
	return nil
}
