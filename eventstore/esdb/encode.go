package esdb

import (
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
	// epochStream holds the one event whose id identifies the log. It is no stream of the log's own.
	epochStream = "leadlog-epoch"

	// maxAppend is what a server takes in one append to a stream unless it is configured otherwise.
	maxAppend = 1 << 20
)

// errForeign says that an event was not written by a leadlog.
var errForeign = errors.New("not an event of leadlog")

// errOld says that a read of a stream told no positions, as servers before 22.10 do not.
var errOld = errors.New("the server is too old: it tells no positions of events in streams")

// envelope is an event's metadata as it stands on the server.
type envelope struct {
	At time.Time `json:"at"`
	event.Metadata
}

// proposals encodes the events of a write.
func proposals(w eventstore.Write) ([]client.EventData, error) {
	proposed := make([]client.EventData, len(w.Events))
	size := 0
	for i, e := range w.Events {
		encoded, err := json.Marshal(envelope{At: e.At, Metadata: e.Metadata})
		if err != nil {
			return nil, fmt.Errorf("%w: metadata of %s: %w", eventstore.ErrInvalid, e.Type, err)
		}
		proposed[i] = client.EventData{
			EventID: uuid.UUID(e.ID), EventType: e.Type, ContentType: client.ContentTypeJson, Data: e.Data, Metadata: encoded,
		}
		size += len(e.Data) + len(encoded) + 2*len(e.Type)
	}
	if size > maxAppend {
		return nil, fmt.Errorf("%w: %d bytes of events for stream %s, at most %d", eventstore.ErrInvalid, size, w.Stream, maxAppend)
	}
	return proposed, nil
}

// decode turns what the server holds into an event, or says that it is not one of ours.
func (s *Store) decode(r *client.RecordedEvent) (*eventstore.Recorded, error) {
	var meta envelope
	if err := json.Unmarshal(r.UserMetadata, &meta); err != nil || meta.At.IsZero() {
		return nil, fmt.Errorf("%w: %s on %s at revision %d", errForeign, r.EventType, r.StreamID, r.EventNumber)
	}
	if r.Position.Commit == math.MaxUint64 {
		return nil, errOld
	}
	return &eventstore.Recorded{
		Event: eventstore.Event{
			ID: ulid.ULID(r.EventID), Type: r.EventType, At: meta.At.UTC(), Data: r.Data, Metadata: meta.Metadata,
		},
		Stream:   r.StreamID[len(s.namespace):],
		Revision: eventstore.Revision(r.EventNumber),
		Position: eventstore.Position(r.Position.Commit),
	}, nil
}

// name is a stream's name on the server.
func (s *Store) name(stream string) string { return s.namespace + stream }

// own tells the events of this log from the server's own, from links and from those of other namespaces.
func (s *Store) own(r *client.RecordedEvent) bool {
	return strings.HasPrefix(r.StreamID, s.namespace) && !strings.HasPrefix(r.EventType, "$") &&
		!reserved(r.StreamID[len(s.namespace):])
}

// reserved tells names that no stream of the log can have.
func reserved(stream string) bool { return strings.HasPrefix(stream, "$") || stream == epochStream }

func validateNamespace(namespace string) error {
	if strings.HasPrefix(namespace, "$") || strings.ContainsRune(namespace, 0) {
		return errors.New("event store namespace: it begins with $, or is not text")
	}
	return nil
}

// validateNames refuses, as ErrInvalid, what the server keeps for itself.
func validateNames(writes []eventstore.Write) error {
	for _, w := range writes {
		if reserved(w.Stream) {
			return fmt.Errorf("%w: the stream name %s is reserved", eventstore.ErrInvalid, w.Stream)
		}
		for _, e := range w.Events {
			if strings.HasPrefix(e.Type, "$") {
				return fmt.Errorf("%w: the event type %s is reserved", eventstore.ErrInvalid, e.Type)
			}
		}
	}
	return nil
}
