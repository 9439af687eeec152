// Package eventstore is the log: an append-only sequence of events, each on the stream of its subject and at a position in the
// whole log.
//
// A stream is the history of one lead, token, endpoint, account, visitor or claim; its events have revisions 0, 1, 2, …
// Positions order all events of all streams. Everything that leadlog knows is a fold of these events: the views, the credentials
// and the uniqueness of a phone number are all derived from here.
//
// [Store] is the interface that engines implement: eventstore/postgres, and eventstore/esdb for EventStoreDB. The suite in
// eventstore/storetest tests what every store must do, and every engine runs it. This package has what needs no engine: folding
// streams, deciding again after a conflict, validation. What events mean is in eventstore/event.
package eventstore

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Position is an event's place in the whole log. Positions grow in the order in which appends became durable. Zero is before the
// first event.
type Position uint64

// Revision is an event's place in its stream, counted from 0.
type Revision int64

// Expected is what an append expects of a stream: that it ends at a revision, that it has no events, or nothing.
type Expected int64

const (
	// NoStream expects that the stream has no events.
	NoStream Expected = -1
	// Any expects nothing. Such a write is idempotent only by looking for its ids in the stream,
	// so a fact that needs no decision is better put on a new stream with NoStream.
	Any Expected = -2
)

// At expects that the stream's last event has this revision.
func At(r Revision) Expected { return Expected(r) }

// Event is a fact to append.
type Event struct {
	ID       ulid.ULID // makes appending it again idempotent; grows with time
	Type     string    // an explicit, versioned name such as lead.created.v1
	At       time.Time // when it happened: UTC, whole milliseconds, never before its predecessor in the stream
	Data     []byte    // JSON
	Metadata event.Metadata
	// Decoded is what decoding Data gives, or nil. An appender may set it, so that subscriptions in the same process need not
	// decode Data. It must not be changed.
	Decoded event.Data
	// Unsealed is the event as it was before it was sealed, or nil.
	Unsealed Unsealed
}

// Unsealed is an event before it was sealed, and the id of the key that sealed it.
type Unsealed struct {
	Event *Event
	KeyID int64
}

// Recorded is an event on the log.
type Recorded struct {
	Event
	Stream   string
	Revision Revision
	Position Position
	Erased   bool  // its personal data was erased
	LostKey  int64 // the id of the key that an erased event was sealed with
	Key      *Key  // a key of its stream, if the store has read it along with the event; nil otherwise

	// The sealed store sets these when it is asked for damage.
	Damaged bool   // its personal data cannot be opened, and Erased is set too; or it is not sealed although it should be
	Stored  *Event // the event as it is stored
}

// Fact decodes the event for a fold. The error is event.ErrUnknownType for a type this program does not know.
func (r Recorded) Fact() (event.Fact, error) {
	data, err := r.Decode()
	if err != nil {
		return event.Fact{}, err
	}
	return event.Fact{ID: r.ID, Stream: r.Stream, At: r.At, Metadata: r.Metadata, Data: data, Erased: r.Erased}, nil
}

// Decode returns the event's data. The error is event.ErrUnknownType for a type this program does not know.
func (e Event) Decode() (event.Data, error) {
	if e.Decoded != nil {
		return e.Decoded, nil
	}
	return event.Decode(e.Type, e.Data)
}

// Write is what an append does to one stream. Without events it is a check: the append succeeds only when the stream is as expected.
// At most one Write of an append may name a stream.
type Write struct {
	Stream string
	Expect Expected
	Events []Event
	// Key is stored in the transaction of the events; nil for most writes. Repeating the append does not bring back a key that
	// was destroyed since. Stores that do not store keys ignore it.
	Key *Key
}

// Key seals the personal data of a stream's events, and is itself sealed. It is stored beside the log and not on it, so that deleting
// it erases the person.
type Key struct {
	Stream   string
	ID       int64  // different for each key of a stream
	SealedBy string // id of the key that seals it
	Sealed   []byte
}

// KeyCommitments returns the hashes of the keys of streams, by stream. They may stay on the log when the keys are deleted.
type KeyCommitments = func(ctx context.Context, streams ...string) (map[string][]string, error)

// Check is a Write without events.
func Check(stream string, expect Expected) Write { return Write{Stream: stream, Expect: expect} }

// Page is what a subscription yields: events in the order of the log, and how far the log was read. Up to Position there are no
// others that the filter selects but those of this page and of earlier ones, so a checkpoint may move to Position. A page may have no
// events.
type Page struct {
	Events   []Recorded // the consumer's, to keep and to change
	Position Position
}

// Filter selects the events of a subscription: those whose stream begins with one of the prefixes and whose type
// is one of the types. An empty list selects all.
type Filter struct {
	StreamPrefixes []string
	Types          []string
}

// Matches reports whether the filter selects an event of this stream and type.
func (f Filter) Matches(stream, eventType string) bool {
	return selects(f.StreamPrefixes, func(p string) bool { return strings.HasPrefix(stream, p) }) &&
		selects(f.Types, func(t string) bool { return t == eventType })
}

func selects(list []string, matches func(string) bool) bool {
	for _, s := range list {
		if matches(s) {
			return true
		}
	}
	return len(list) == 0
}

// Store is an engine that keeps the log. All methods may be called from many goroutines, and from many processes
// on one engine.
type Store interface {
	// Append adds events to streams and returns the position of the last one; with checks alone it returns the head. It applies all
	// writes or none. Checks are compared with the streams as they are at the append's place on the log: an append that was
	// answered earlier and moved a checked stream makes this one fail.
	//
	// Appending the same event ids at the same place again has no further effect, and returns the same position. What the
	// writes refer to must not be changed afterwards.
	//
	// The error is a *ConflictError when a stream is not as expected, ErrInvalid when the writes are malformed, and
	// ErrUnavailable when the engine cannot be reached: then the append may or may not have happened.
	Append(ctx context.Context, writes ...Write) (Position, error)

	// Read yields a stream's events from a revision on, in order, up to the last that is durable when the read ends.
	// A stream without events yields nothing.
	Read(ctx context.Context, stream string, from Revision) iter.Seq2[Recorded, error]

	// Last returns a stream's last event, the zero Recorded when it has none.
	Last(ctx context.Context, stream string) (Recorded, error)

	// Subscribe yields the events after a position: first those on the log, then, without end, those that are appended. It
	// never skips an event and never yields one twice. A page has what there is when the consumer asks for it, up to a few
	// thousand events or a few MiB. It ends after yielding an error, or when the consumer stops.
	Subscribe(ctx context.Context, after Position, filter Filter) iter.Seq2[Page, error]

	// Head is the position of the newest event.
	Head(ctx context.Context) (Position, error)

	// Epoch identifies this log. A checkpoint taken from another log, say before a restore, carries another epoch.
	Epoch(ctx context.Context) (string, error)
}
