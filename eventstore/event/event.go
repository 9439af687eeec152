// Package event is the catalogue of facts: each kind of event on the log is a struct with an explicit, versioned name.
//
// Existing logs fix a type's name and JSON. Fields may be added; nothing is renamed, and no meaning changes. An
// incompatible change needs a new version and an upcaster in [Decode]. A golden file for each type in testdata checks
// this.
//
// The package is pure: deciders fold these facts without knowing any store.
package event

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
)

// Data is a fact, as one of the structs of this package.
type Data interface {
	// EventType is the versioned name under which the fact is stored.
	EventType() string
}

// Fact is an event in the form that folds use.
type Fact struct {
	ID       ulid.ULID
	Stream   string
	At       time.Time
	Metadata Metadata
	Data     Data
	Erased   bool // its personal data cannot be read, and Data has only the rest
}

// ErrUnknownType means that a stored event has a type that this program does not know: a newer version wrote it.
var ErrUnknownType = errors.New("unknown event type")

// errNUL means that a text has a NUL, which PostgreSQL cannot store. Commands reject it earlier, with the name of the
// field.
var errNUL = errors.New("text contains NUL")

// Text returns a text that facts can have: bytes that are not UTF-8, and NUL, are replaced by U+FFFD.
func Text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Encode returns a fact's stored name and JSON. Equal facts have equal encodings. It fails for text that views could
// not store.
func Encode(data Data) (eventType string, encoded []byte, err error) {
	eventType = data.EventType()
	if _, known := catalogue[eventType]; !known {
		return "", nil, fmt.Errorf("%w: %s", ErrUnknownType, eventType)
	}
	if encoded, err = json.Marshal(data, encoding); err == nil && hasNUL(encoded) {
		err = errNUL
	}
	if err != nil {
		return "", nil, fmt.Errorf("encode %s: %w", eventType, err)
	}
	return eventType, encoded, nil
}

// hasNUL reports whether a string in encoded JSON has a NUL. In JSON it is always escaped.
func hasNUL(encoded []byte) bool {
	escape := []byte(`\u0000`)
	for {
		at := bytes.Index(encoded, escape)
		if at < 0 {
			return false
		}
		before := bytes.TrimRight(encoded[:at], `\`)
		if (at-len(before))%2 == 0 { // otherwise the backslash is itself escaped
			return true
		}
		encoded = encoded[at+len(escape):]
	}
}

// Decode decodes a stored fact. The error wraps ErrUnknownType if no struct has that name.
func Decode(eventType string, encoded []byte) (Data, error) {
	entry, known := catalogue[eventType]
	if !known {
		return nil, fmt.Errorf("%w: %s", ErrUnknownType, eventType)
	}
	data, err := entry.decode(encoded)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", eventType, err)
	}
	return data, nil
}

// catalogue has an entry for each type, by its stored name.
var catalogue = newCatalogue(
	entryOf[LeadCreated](),
	entryOf[LeadMerged](),
	entryOf[LeadUpdated](),
	entryOf[LeadReleased](),
	entryOf[LeadConsented](),
	entryOf[LeadJoinedInto](),
	entryOf[LeadJoined](),
	entryOf[LeadSplit](),
	entryOf[LeadRefused](),
	entryOf[LeadErased](),
	entryOf[DataRevealed](),
	entryOf[DataExported](),
	entryOf[DataSearched](),
	entryOf[ImportStarted](),
	entryOf[ImportFinished](),
	entryOf[ImportUndone](),
	entryOf[ClaimTaken](),
	entryOf[ClaimReleased](),
	entryOf[ClaimBound](),
	entryOf[ClaimKeyFixed](),
	entryOf[OriginFixed](),
	entryOf[TokenCreated](),
	entryOf[TokenRotated](),
	entryOf[TokenExpiring](),
	entryOf[TokenDeleted](),
	entryOf[TokenUsed](),
	entryOf[TokenRefused](),
	entryOf[WebhookRegistered](),
	entryOf[WebhookUpdated](),
	entryOf[WebhookDisabled](),
	entryOf[WebhookEnabled](),
	entryOf[WebhookRotated](),
	entryOf[WebhookTested](),
	entryOf[WebhookRetried](),
	entryOf[WebhookReplayed](),
	entryOf[WebhookReplayEnded](),
	entryOf[WebhookDeleted](),
	entryOf[IntakeCreated](),
	entryOf[IntakeChanged](),
	entryOf[IntakeRotated](),
	entryOf[IntakeDeleted](),
	entryOf[IntakeSilent](),
	entryOf[IntakeResumed](),
	entryOf[IntakeFailing](),
	entryOf[IntakeRecovered](),
	entryOf[AccountConfigured](),
	entryOf[JWTsRevoked](),
	entryOf[StorageLow](),
	entryOf[SpendSet](),
	entryOf[VisitorActed](),
	entryOf[VisitorForgotten](),
	entryOf[ArrivalReceived](),
	entryOf[ArrivalFetched](),
	entryOf[ArrivalRedelivered](),
	entryOf[ArrivalCaptured](),
	entryOf[ArrivalRefused](),
	entryOf[ArrivalQuarantined](),
	entryOf[ArrivalResubmitted](),
	entryOf[ArrivalDiscarded](),
	entryOf[ArrivalExpired](),
)

type entry struct {
	eventType string
	classes   map[string]Class
	decode    func([]byte) (Data, error)
}

func entryOf[T Data]() entry {
	return entry{
		eventType: (*new(T)).EventType(),
		classes:   classesOf(reflect.TypeFor[T]()),
		decode: func(encoded []byte) (Data, error) {
			var fact T
			err := json.Unmarshal(encoded, &fact)
			return fact, err
		},
	}
}

func newCatalogue(entries ...entry) map[string]entry {
	all := make(map[string]entry, len(entries))
	for _, e := range entries {
		all[e.eventType] = e
	}
	return all
}

// Catalogue lists the stored names of all facts.
func Catalogue() []string { return slices.Sorted(maps.Keys(catalogue)) }

// Types lists the stored names of facts, for filters.
func Types(data ...Data) []string {
	names := make([]string, len(data))
	for i, d := range data {
		names[i] = d.EventType()
	}
	return names
}

// Matches reports whether a public name is the one of a pattern or, if the pattern ends with *, begins as it does.
func Matches(name, pattern string) bool {
	if begin, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, begin)
	}
	return name == pattern
}

// PublicName returns the name of a type in the API, without its version: lead.created for lead.created.v1.
func PublicName(eventType string) string {
	name := strings.TrimRight(eventType, "0123456789")
	if public, versioned := strings.CutSuffix(name, ".v"); versioned && name != eventType {
		return public
	}
	return eventType
}
