package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// Leaf is the record of an event in the tree over the whole log, in the form of [LogRecord].
type Leaf struct {
	At       string              `json:"at"`
	ID       string              `json:"id"`
	Revision eventstore.Revision `json:"revision"`
	Stored   string              `json:"stored"` // SHA-256, in hexadecimal, of the stored metadata and data
	Stream   string              `json:"stream"`
	Type     string              `json:"type"` // with its version
}

// ParseLeaf parses the record of a leaf, which has exactly one form.
func ParseLeaf(record []byte) (l Leaf, err error) {
	if err := json.Unmarshal(record, &l, json.RejectUnknownMembers(true)); err != nil {
		return Leaf{}, err
	}
	written, err := json.Marshal(l, json.Deterministic(true))
	if err != nil || !bytes.Equal(written, record) {
		return Leaf{}, errors.New("not in canonical form")
	}
	if _, err := time.Parse(time.RFC3339Nano, l.At); err != nil || !event.ValidID(l.ID) ||
		len(l.Stored) != hex.EncodedLen(sha256.Size) || l.Revision < 0 {
		return Leaf{}, errors.New("not the record of an event")
	}
	return l, nil
}

// moment returns the leaf's time in the format of the API.
func (l Leaf) moment() string {
	at, _ := time.Parse(time.RFC3339Nano, l.At) // checked by ParseLeaf
	return FormatTime(at)
}

// Receipt proves that an event is on the log.
type Receipt struct {
	Leaf Leaf
	merkle.Proof
}

// OpenReceipt verifies a receipt without the service: a proof that the log's tree has the leaf of an event. The errors
// are those of merkle.Trust.OpenProof.
func OpenReceipt(text []byte, trust merkle.Trust) (r Receipt, err error) {
	if r.Proof, err = trust.OpenProof(text); err != nil {
		return r, err
	}
	if r.Checkpoint.Account != "" {
		return r, fmt.Errorf("%w: its checkpoint is of the tree of account %s", merkle.ErrProof, r.Checkpoint.Account)
	}
	if r.Leaf, err = ParseLeaf(r.Record); err != nil {
		return r, fmt.Errorf("%w: extra: %w", merkle.ErrProof, err)
	}
	return r, nil
}

// shownEvent is an event in the list of a lead's events, with the fields that a leaf has.
type shownEvent struct {
	ID       *string              `json:"id"`
	Stream   *string              `json:"stream"` // only in the change feed
	Revision *eventstore.Revision `json:"revision"`
	Type     *string              `json:"type"`
	At       *string              `json:"at"`
}

// ErrEvent means that a text is not an event from a list of the service.
var ErrEvent = errors.New("not an event of a list of the service")

// Compare compares the receipt with an event from a list of the service, in JSON. It returns the first difference, as a
// sentence, or an empty string. The error is ErrEvent.
func (r Receipt) Compare(shown []byte) (difference string, err error) {
	var e shownEvent
	if err := json.Unmarshal(shown, &e); err != nil {
		return "", fmt.Errorf("%w: %w", ErrEvent, err)
	}
	if e.ID == nil || e.Revision == nil || e.Type == nil || e.At == nil {
		return "", fmt.Errorf("%w: it must have id, type, revision and at", ErrEvent)
	}
	differs := func(member string, of, leaf any) string {
		return fmt.Sprintf("%s is %v in the event, and %v in the receipt", member, of, leaf)
	}
	switch l := r.Leaf; {
	case *e.ID != l.ID:
		return differs("id", *e.ID, l.ID), nil
	case e.Stream != nil && *e.Stream != l.Stream:
		return differs("stream", *e.Stream, l.Stream), nil
	case *e.Revision != l.Revision:
		return differs("revision", *e.Revision, l.Revision), nil
	case *e.Type != event.PublicName(l.Type):
		return differs("type", *e.Type, event.PublicName(l.Type)), nil
	case *e.At != l.moment():
		return differs("at", *e.At, l.moment()), nil
	}
	return "", nil
}
