// Package event is the catalogue of facts: everything that can be on the log, one struct each, under an explicit, versioned name.
//
// A type's name and its JSON are a promise to every existing log. Fields may be added; nothing is renamed, and no meaning
// changes. What must change gets a new version and an upcaster in [Decode]. A golden file for each type in testdata makes sure of
// it.
//
// The package is pure: deciders fold these facts without knowing any store.
package event

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
)

// Data is what happened, as one of the structs of this package.
type Data interface {
	// EventType is the versioned name under which the fact is stored.
	EventType() string
}

// Fact is an event as a fold sees it.
type Fact struct {
	ID       ulid.ULID
	Stream   string
	At       time.Time
	Metadata Metadata
	Data     Data
	Erased   bool // its personal part is gone for good, and Data is the rest
}

// ErrUnknownType says that a stored event has a type this program does not know: it was written by a newer one.
var ErrUnknownType = errors.New("unknown event type")

// Encode returns a fact's stored name and JSON. Equal facts give equal bytes.
func Encode(data Data) (eventType string, encoded []byte, err error) {
	if plain, ok := data.(written); ok {
		w := plain.write(Writer{Buffer: make([]byte, 0, plain.sizeHint())})
		encoded, err = w.Object(0), w.Err
	} else {
		encoded, err = json.Marshal(data, json.Deterministic(true))
	}
	if err != nil {
		return "", nil, fmt.Errorf("encode %s: %w", data.EventType(), err)
	}
	return data.EventType(), encoded, nil
}

// Decode reads a stored fact. The fact may share memory with encoded, which must not be changed any more. The error wraps
// ErrUnknownType when no struct has that name.
func Decode(eventType string, encoded []byte) (Data, error) {
	decode, known := decoders[eventType]
	if !known {
		return nil, fmt.Errorf("%w: %s", ErrUnknownType, eventType)
	}
	data, err := decode(encoded)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", eventType, err)
	}
	return data, nil
}

// decoders is the catalogue. An old version's entry decodes into the newest struct: that is its upcaster.
var decoders = map[string]func([]byte) (Data, error){
	LeadCreated{}.EventType():        decodeCreated,
	LeadMerged{}.EventType():         decodeMerged,
	LeadUpdated{}.EventType():        decode[LeadUpdated],
	LeadReleased{}.EventType():       decode[LeadReleased],
	LeadDeparted{}.EventType():       decode[LeadDeparted],
	LeadJoined{}.EventType():         decode[LeadJoined],
	LeadRefused{}.EventType():        decode[LeadRefused],
	LeadErased{}.EventType():         decode[LeadErased],
	LeadRevealed{}.EventType():       decode[LeadRevealed],
	ClaimTaken{}.EventType():         decode[ClaimTaken],
	ClaimReleased{}.EventType():      decode[ClaimReleased],
	ClaimBound{}.EventType():         decode[ClaimBound],
	ClaimKeyFixed{}.EventType():      decode[ClaimKeyFixed],
	TokenCreated{}.EventType():       decode[TokenCreated],
	TokenRotated{}.EventType():       decode[TokenRotated],
	TokenExpiring{}.EventType():      decode[TokenExpiring],
	TokenDeleted{}.EventType():       decode[TokenDeleted],
	TokenUsed{}.EventType():          decode[TokenUsed],
	TokenRefused{}.EventType():       decode[TokenRefused],
	WebhookRegistered{}.EventType():  decode[WebhookRegistered],
	WebhookUpdated{}.EventType():     decode[WebhookUpdated],
	WebhookDisabled{}.EventType():    decode[WebhookDisabled],
	WebhookEnabled{}.EventType():     decode[WebhookEnabled],
	WebhookRotated{}.EventType():     decode[WebhookRotated],
	WebhookTested{}.EventType():      decode[WebhookTested],
	WebhookRetried{}.EventType():     decode[WebhookRetried],
	WebhookReplayed{}.EventType():    decode[WebhookReplayed],
	WebhookReplayEnded{}.EventType(): decode[WebhookReplayEnded],
	WebhookDeleted{}.EventType():     decode[WebhookDeleted],
	AccountConfigured{}.EventType():  decode[AccountConfigured],
	JWTsRevoked{}.EventType():        decode[JWTsRevoked],
	VisitorActed{}.EventType():       decode[VisitorActed],
	VisitorForgotten{}.EventType():   decode[VisitorForgotten],
}

func decode[T Data](encoded []byte) (Data, error) {
	var data T
	if err := json.Unmarshal(encoded, &data); err != nil {
		return nil, err
	}
	return data, nil
}

// decodeCreated and decodeMerged are faster, for the facts that make up most of a log.
func decodeCreated(encoded []byte) (Data, error) {
	var data LeadCreated
	if readPlain(encoded, data.member) {
		return data, nil
	}
	return decode[LeadCreated](encoded)
}

func decodeMerged(encoded []byte) (Data, error) {
	var data LeadMerged
	if readPlain(encoded, data.member) {
		return data, nil
	}
	return decode[LeadMerged](encoded)
}

// readPlain reads an object with a function for its members, and tells whether all of it was plain. If not, what was read is
// of no use.
func readPlain(encoded []byte, member func(*plain, span)) bool {
	if !isPlain(encoded) {
		return false
	}
	p := plain{encoded: encoded}
	p.expect('{')
	for first := true; p.more(&first, '}'); {
		member(&p, p.name())
	}
	return p.done()
}

// Catalogue lists the stored names of all facts.
func Catalogue() []string { return slices.Sorted(maps.Keys(decoders)) }

// Types lists the stored names of facts, for filters.
func Types(data ...Data) []string {
	names := make([]string, len(data))
	for i, d := range data {
		names[i] = d.EventType()
	}
	return names
}

// PublicName is a type as callers see it, without its version: lead.created for lead.created.v1.
func PublicName(eventType string) string {
	name := strings.TrimRight(eventType, "0123456789")
	if public, versioned := strings.CutSuffix(name, ".v"); versioned && name != eventType {
		return public
	}
	return eventType
}
