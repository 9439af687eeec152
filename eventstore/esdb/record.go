package esdb

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	// epochStream has one event, whose id identifies the log. The stream is not part of the log.
	epochStream = "leadlog-epoch"

	// lockType and closedType are the types of records that are not events of the log.
	lockType   = "leadlog.lock.v1"
	closedType = "leadlog.closed.v1"
)

// errForeign means that an event was not written by leadlog.
var errForeign = errors.New("not an event of leadlog")

// errOld means that a read of a stream returned no positions: the server is older than 22.10.
var errOld = errors.New("the server is too old: it returns no positions of events in streams")

// recordMetadata is a record's metadata on the server.
type recordMetadata struct {
	At time.Time `json:"at"`
	event.Metadata
	Revision eventstore.Revision `json:"rev"` // in its own stream, counting only events that callers see
	// its own stream, if it is stored on that of another write of its append
	Of          string  `json:"of,omitzero"`
	Transaction string  `json:"tx,omitzero"`     // the transaction, if it has locks
	More        int     `json:"more,omitzero"`   // number of records of the same append after this one
	Checks      []check `json:"checks,omitzero"` // of the append; on its last record, the commit record
	// all of these, if AppendRecords has stored the record: the server makes its metadata of properties
	Properties string `json:"leadlog,omitzero"`
}

// metadataProperty is the property that has a record's metadata.
const metadataProperty = "leadlog"

// check is the expected state of a stream that an append does not write to.
type check struct {
	Stream string              `json:"stream"`
	Expect eventstore.Expected `json:"expect"`
	// Number is the number of a record on the server up to which the stream is known to be as expected, or -1. Only
	// records after it are read to validate the check.
	Number eventstore.Expected `json:"number"`
}

// lock is the payload of a lock record. Its event is on the transaction's home, if the transaction commits.
type lock struct {
	Transaction string `json:"tx"`
	Home        string `json:"home"`
	// number on the server after which the transaction's records follow on the home
	Slot  eventstore.Expected `json:"slot"`
	Index int                 `json:"index"` // of the event among those records
	Size  int                 `json:"size"`  // of the transaction, in records
}

// record is an event on the server: an event of the log, a lock, or a closing record.
type record struct {
	eventstore.Recorded
	number      eventstore.Expected // in the stream on the server
	transaction string
	more        int
	checks      []check
	lock        *lock // nil if it is not a lock
	closed      bool
	whole       bool // AppendRecords has stored it, on its own stream
}

// provisional reports whether a record is not an event of the log.
func (r *record) provisional() bool { return r.lock != nil || r.closed }

// of reports whether a record is a lock of the same transaction as another lock.
func (r *record) of(other *record) bool {
	return r.lock != nil && r.lock.Transaction == other.lock.Transaction
}

// bytes is the approximate size of a record in memory.
func (r *record) bytes() int { return len(r.Data) + len(r.Stream) + 1024 + 64*len(r.checks) }

func bytesOf(records []*record) (n int) {
	for _, r := range records {
		n += r.bytes()
	}
	return n
}

// encodeEvents encodes the events of a transaction as one append to its home, write by write.
func encodeEvents(transaction string, home string, writes []target, checks []check) ([]client.EventData, error) {
	left := 0
	for _, w := range writes {
		left += len(w.Events)
	}
	if len(writes) == 1 && len(checks) == 0 {
		left = 0 // each is valid by itself
	}
	var proposed []client.EventData
	size := 0
	for _, w := range writes {
		for i, e := range w.Events {
			meta := recordMetadata{
				At: e.At, Metadata: e.Metadata, Revision: eventstore.Revision(w.tail.end) + 1 + eventstore.Revision(i),
				Transaction: transaction,
			}
			if left > 0 {
				left--
				meta.More = left
			}
			if meta.More == 0 {
				meta.Checks = checks
			}
			if w.Stream != home {
				meta.Of = w.Stream
			}
			encoded, err := json.Marshal(meta)
			if err != nil {
				return nil, fmt.Errorf("%w: metadata of %s: %w", eventstore.ErrInvalid, e.Type, err)
			}
			proposed = append(proposed, client.EventData{
				EventID: uuid.UUID(e.ID), EventType: e.Type, ContentType: client.ContentTypeJson, Data: e.Data,
				Metadata: encoded,
			})
			size += recordSize(e, encoded)
		}
	}
	return proposed, checkSize(size)
}

// recordSize is an event's part of the size of an append, which the server limits.
func recordSize(e eventstore.Event, metadata []byte) int {
	return len(e.Data) + len(metadata) + 2*len(e.Type)
}

func checkSize(size int) error {
	if size > eventstore.MaxAnywhere {
		return fmt.Errorf("%w: an append of %d bytes, at most %d", eventstore.ErrInvalid, size, eventstore.MaxAnywhere)
	}
	return nil
}

// encodeProvisional encodes a lock or a closing record. Its id is a hash of its transaction, stream and index, so that
// the server detects a repeated record, but does not confuse records of two attempts.
func encodeProvisional(
	recordType string, l lock, stream string, at time.Time, rev eventstore.Revision,
) (client.EventData, error) {
	data, err := json.Marshal(l)
	if err != nil {
		return client.EventData{}, fmt.Errorf("encode a lock: %w", err)
	}
	metadata, err := json.Marshal(recordMetadata{At: at, Revision: rev})
	if err != nil {
		return client.EventData{}, fmt.Errorf("encode a lock: %w", err)
	}
	id := uuid.NewSHA1(uuid.Nil, fmt.Appendf(nil, "%s %s %s %d", recordType, l.Transaction, stream, l.Index))
	return client.EventData{
		EventID: id, EventType: recordType, ContentType: client.ContentTypeJson, Data: data, Metadata: metadata,
	}, nil
}

// decode decodes a record. The error is errForeign if leadlog did not write it.
func (s *Store) decode(stored *client.RecordedEvent) (*record, error) {
	var meta recordMetadata
	err := json.Unmarshal(stored.UserMetadata, &meta)
	whole := meta.Properties != ""
	if err == nil && whole {
		err = json.Unmarshal([]byte(meta.Properties), &meta)
	}
	if err != nil || meta.At.IsZero() {
		return nil, fmt.Errorf("%w: %s on %s at revision %d", errForeign, stored.EventType,
			stored.StreamID, stored.EventNumber)
	}
	if stored.Position.Commit == math.MaxUint64 {
		return nil, errOld
	}
	r := &record{
		Recorded: eventstore.Recorded{
			Event: eventstore.Event{
				ID: ulid.ULID(stored.EventID), Type: stored.EventType, At: meta.At.UTC(), Data: stored.Data,
				Metadata: meta.Metadata,
			},
			Stream:   cmp.Or(meta.Of, stored.StreamID[len(s.namespace):]),
			Revision: meta.Revision,
			Position: eventstore.Position(stored.Position.Commit),
		},
		number: eventstore.Expected(stored.EventNumber), transaction: meta.Transaction, more: meta.More,
		checks: meta.Checks,
		closed: stored.EventType == closedType, whole: whole,
	}
	if stored.EventType == lockType {
		r.lock = new(lock)
		if err := json.Unmarshal(stored.Data, r.lock); err != nil {
			return nil, fmt.Errorf("%w: a lock on %s at %d", errForeign, stored.StreamID, stored.EventNumber)
		}
	}
	s.noteSeen(r.Position)
	return r, nil
}

// name returns a stream's name on the server.
func (s *Store) name(stream string) string { return s.namespace + stream }

// isOfLog reports whether a record is of this log: not a system event, not a link, and not of another namespace.
func (s *Store) isOfLog(r *client.RecordedEvent) bool {
	return strings.HasPrefix(r.StreamID, s.namespace) && !strings.HasPrefix(r.EventType, "$") &&
		!reserved(r.StreamID[len(s.namespace):])
}

// reserved reports whether a name is not available for streams of the log.
func reserved(stream string) bool { return strings.HasPrefix(stream, "$") || stream == epochStream }

func validateNamespace(namespace string) error {
	if strings.HasPrefix(namespace, "$") || strings.ContainsRune(namespace, 0) {
		return errors.New("event store namespace: it begins with $ or contains a null character")
	}
	return nil
}

// validateNames returns ErrInvalid for names that the server or this package reserves.
func validateNames(writes []eventstore.Write) error {
	for _, w := range writes {
		if reserved(w.Stream) {
			return fmt.Errorf("%w: the stream name %s is reserved", eventstore.ErrInvalid, w.Stream)
		}
		for _, e := range w.Events {
			if strings.HasPrefix(e.Type, "$") || e.Type == lockType || e.Type == closedType {
				return fmt.Errorf("%w: the event type %s is reserved", eventstore.ErrInvalid, e.Type)
			}
		}
	}
	return nil
}
