// Package eventstore is the log: an append-only sequence of events, each on the stream of its subject and at a position
// in the whole log.
//
// A stream is the history of one lead, token, endpoint, account, visitor or claim; its events have revisions 0, 1, 2,
// … Positions order all events of all streams. All state of leadlog is a fold of these events: the views, the
// credentials and the uniqueness of phone numbers.
//
// [Store] is the interface that engines implement: eventstore/postgres, and eventstore/esdb for EventStoreDB. The suite
// in eventstore/storetest tests the contract of a store, and every engine runs it. This package has the code that needs
// no engine: following the log ([Tail]), folding streams, queueing decisions and appends, validation. Package
// eventstore/event has the types of events.
package eventstore

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Position is an event's number in the whole log. Positions increase in the order in which appends became durable. Zero
// is before the first event.
type Position uint64

// Revision is an event's number in its stream, counted from 0.
type Revision int64

// Expected is the state of a stream that an append expects: it ends at a revision, it has no events, or any state.
type Expected int64

const (
	// NoStream expects that the stream has no events.
	NoStream Expected = -1
	// Any expects nothing. Such a write is idempotent only because the stream is searched for its ids, so a fact
	// without a decision is better appended to a new stream with NoStream.
	Any Expected = -2
)

// At expects that the stream's last event has this revision.
func At(r Revision) Expected { return Expected(r) }

// Event is a fact to append.
type Event struct {
	ID       ulid.ULID // makes a repeated append idempotent; begins with At, but for samples of the use of tokens
	Type     string    // an explicit, versioned name such as lead.created.v1
	At       time.Time // when it happened: UTC, whole milliseconds, never before the previous event of the stream
	Data     []byte    // JSON
	Metadata event.Metadata
}

// Recorded is an event on the log.
type Recorded struct {
	Event
	Stream   string
	Revision Revision
	Position Position
	Erased   bool  // its personal data was erased
	KeyID    int64 // id of the key that sealed it; 0: it is not sealed
}

// After returns what an append expects that follows an event: NoStream for the zero Recorded.
func After(last Recorded) Expected {
	if last.ID.IsZero() {
		return NoStream
	}
	return At(last.Revision)
}

// Fact decodes the event for a fold. The error is event.ErrUnknownType for a type that this program does not know.
func (r Recorded) Fact() (event.Fact, error) {
	data, err := r.Decode()
	if err != nil {
		return event.Fact{}, err
	}
	return event.Fact{ID: r.ID, Stream: r.Stream, At: r.At, Metadata: r.Metadata, Data: data, Erased: r.Erased}, nil
}

// Decode returns the event's data. The error is event.ErrUnknownType for a type that this program does not know.
func (e Event) Decode() (event.Data, error) {
	return event.Decode(e.Type, e.Data)
}

// Write is the part of an append on one stream. Without events it is a check: the append succeeds only if the stream is
// as expected. An append may have at most one Write per stream.
type Write struct {
	Stream string
	Expect Expected
	Events []Event
	// Key is stored in the transaction of the events; nil for most writes. Repeating the append does not restore a key
	// that was destroyed since. Stores that do not store keys ignore it.
	Key *Key
	// Contents are members of the events that are stored like Key, because they are deleted with it.
	Contents []Content
}

// Content is the sealed content of an event, outside of the log.
type Content struct {
	KeyID  int64  // of the key that sealed it
	Hash   []byte // SHA-256 of Sealed
	Sealed []byte
}

// Key seals the personal data of a stream's events, and is itself sealed. It is stored outside of the log, so that
// deleting it erases the person.
type Key struct {
	Stream   string
	ID       int64  // unique among the keys of a stream
	SealedBy string // id of the key that sealed this one
	Sealed   []byte
}

// KeyCommitments returns hashes of keys. They may stay on the log after the keys are deleted.
type KeyCommitments interface {
	// Commitments returns the hashes of the keys of streams, by stream.
	Commitments(ctx context.Context, streams ...string) (map[string][]string, error)
	// CommitmentsBefore returns the hashes of the keys of a stream that seal only events before a revision.
	CommitmentsBefore(ctx context.Context, stream string, before Revision) ([]string, error)
}

// Check is a Write without events.
func Check(stream string, expect Expected) Write { return Write{Stream: stream, Expect: expect} }

// Page is a step of a subscription: events in log order, and the position up to which the log was read. This page and
// earlier ones have all selected events up to Position, so a checkpoint may move to it. A page may have no events.
type Page struct {
	Events   []Recorded // owned by the consumer, who may change them
	Position Position
}

// Filter selects the events of a subscription whose stream begins with one of the prefixes and whose type is one of the
// types. An empty list selects all.
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

// Store is an engine that keeps the log. All methods are safe for concurrent use, also by several processes on one
// engine.
type Store interface {
	// Append adds events to streams and returns the position of the last one; with only checks it returns the head. It
	// applies all writes or none. A check compares the stream as of the append's position on the log: it fails if an
	// append that was completed earlier changed the stream.
	//
	// Repeating an append with the same event ids at the same revisions has no further effect, and returns the same
	// position. The memory that the writes refer to must not be changed afterwards.
	//
	// The error is a *ConflictError if a stream is not as expected, ErrInvalid if the writes are malformed, and
	// ErrUnavailable if the engine cannot be reached, when it is unknown whether the append was stored.
	Append(ctx context.Context, writes ...Write) (Position, error)

	// Read yields a stream's events from a revision on, in order, up to the last one that is durable when the read
	// ends. A stream without events yields nothing.
	Read(ctx context.Context, stream string, from Revision) iter.Seq2[Recorded, error]

	// Last returns a stream's last event, or the zero Recorded if it has none.
	Last(ctx context.Context, stream string) (Recorded, error)

	// Subscribe yields the events after a position: first the recorded ones, then, without end, new ones. It never
	// skips or repeats an event. A page has the events that are available when the consumer asks for it, up to a few
	// thousand events or a few MiB. The sequence ends after an error, or when the consumer stops.
	Subscribe(ctx context.Context, after Position, filter Filter) iter.Seq2[Page, error]

	// Head is the position of the newest event.
	Head(ctx context.Context) (Position, error)

	// Epoch identifies this log. A checkpoint of another log, for example from before a restore, has another epoch.
	Epoch(ctx context.Context) (string, error)
}
