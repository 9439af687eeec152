package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// ErrEvidence means that a text is not evidence of an event, or that its event is not the one that its receipt proves.
var ErrEvidence = errors.New("not evidence of this event")

// Evidence proves the content of an event: what was captured, when and by whom. The receipt proves that the log has
// the stored event, whose metadata have the commitment, and the nonce opens the commitment to the content.
type Evidence struct {
	Event   jsontext.Value `json:"event"` // as in the list of a lead's events
	Opening Opening        `json:"opening"`
	Receipt string         `json:"receipt"`
}

// Opening opens the commitment of an event.
type Opening struct {
	Nonce string `json:"nonce"` // in hexadecimal
	// Stored is the event's stored metadata and data, whose hash is in the leaf. In base64.
	Stored []byte `json:"stored"`
}

// NewEvidence returns the evidence of an event, given in stored form and as callers see it.
func NewEvidence(stored eventstore.Recorded, shown jsontext.Value, nonce, receipt []byte) (Evidence, error) {
	content, err := storedContent(stored)
	return Evidence{Event: shown, Opening: Opening{hex.EncodeToString(nonce), content}, Receipt: string(receipt)}, err
}

// uncovered are the members of an event that its commitment does not cover.
func uncovered() []string { return []string{"position", "requestId"} }

// OpenEvidence verifies evidence, or the JSON response that contains it, without the service. Any change of the event
// is detected, except of its position and request id. The errors are ErrEvidence and those of OpenReceipt.
func OpenEvidence(text []byte, trust merkle.Trust) (e Evidence, r Receipt, err error) {
	var answer struct {
		Data *Evidence `json:"data"`
		Evidence
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return e, r, fmt.Errorf("%w: %w", ErrEvidence, err)
	}
	if e = answer.Evidence; answer.Data != nil {
		e = *answer.Data
	}
	if r, err = OpenReceipt([]byte(e.Receipt), trust); err != nil {
		return e, r, err
	}
	metadata, err := e.metadata(r.Leaf)
	if err != nil {
		return e, r, fmt.Errorf("%w: %w", ErrEvidence, err)
	}
	difference, err := r.Compare(e.Event)
	if err == nil && difference == "" {
		difference, err = e.differs(r.Leaf, metadata)
	}
	if err == nil && difference != "" {
		err = errors.New(difference)
	}
	if err != nil {
		return e, r, fmt.Errorf("%w: %w", ErrEvidence, err)
	}
	return e, r, nil
}

// metadata returns the metadata of the event that the leaf is of.
func (e Evidence) metadata(leaf Leaf) (event.Metadata, error) {
	if sum := sha256.Sum256(e.Opening.Stored); hex.EncodeToString(sum[:]) != leaf.Stored {
		return event.Metadata{}, errors.New("opening.stored is not what the receipt is of")
	}
	encoded, _, _ := bytes.Cut(e.Opening.Stored, []byte{'\n'})
	return event.DecodeMetadata(encoded)
}

// differs returns the first difference between the event and what the log committed to, or an empty string.
func (e Evidence) differs(leaf Leaf, metadata event.Metadata) (difference string, err error) {
	members := map[string]jsontext.Value{}
	if err := json.Unmarshal(e.Event, &members); err != nil {
		return "", err
	}
	for _, name := range uncovered() {
		delete(members, name)
	}
	if _, given := members["stream"]; given {
		return "the member stream was added to the event", nil
	}
	if actor, err := json.Marshal(metadata.Actor); err != nil || !bytes.Equal(members["actor"], actor) {
		return fmt.Sprintf("actor is %s in the event, and %s on the log", members["actor"], actor), err
	}
	if members["stream"], err = json.Marshal(leaf.Stream); err != nil {
		return "", err
	}
	canonical, err := json.Marshal(members)
	if err == nil {
		err = event.Canonicalize((*jsontext.Value)(&canonical))
	}
	if err != nil {
		return "", err
	}
	nonce, err := hex.DecodeString(e.Opening.Nonce)
	if err != nil {
		return "opening.nonce is not hexadecimal", nil
	}
	if len(nonce) != event.NonceSize || event.CommitmentOf(nonce, canonical) != metadata.Commitment {
		return "the content of the event is not what the log committed to: " +
			"data was changed, or another member was added or removed", nil
	}
	return "", nil
}
