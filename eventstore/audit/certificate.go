package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// ErrCertificate means that a text is not a certificate of an erasure, or does not match its proof.
var ErrCertificate = errors.New("not a certificate of an erasure")

// Certificate certifies that a person was erased. Proof proves that lead.erased is on the log, with the hashes of the
// destroyed keys. The rest is stated by the service without proof.
type Certificate struct {
	LeadID         string                `json:"leadId"`
	JoinedLeads    []string              `json:"joinedLeads"` // erased together with the lead
	Erasure        CertifiedErasure      `json:"erasure"`
	KeyCommitments []event.KeyCommitment `json:"keyCommitments"`
	// Endpoints are the account's endpoints with the outcome of lead.erased. Null: there is no record.
	Endpoints []NotifiedEndpoint `json:"endpoints"`
	// Proof is the receipt of lead.erased.
	Proof       string   `json:"proof"`
	CannotProve []string `json:"cannotProve"`
	IssuedAt    string   `json:"issuedAt"`
}

// CertifiedErasure is the event lead.erased.
type CertifiedErasure struct {
	ID       string              `json:"id"`
	Type     string              `json:"type"`
	Stream   string              `json:"stream"`
	Revision eventstore.Revision `json:"revision"`
	At       string              `json:"at"`
	Actor    string              `json:"actor"`
	// Stored is the event's stored metadata and data, whose hash is in the leaf. In base64.
	Stored []byte `json:"stored"`
}

// Outcomes of lead.erased at an endpoint.
const (
	Acknowledged = "acknowledged"
	Pending      = "pending" // it will be sent or retried
	Failed       = "failed"  // no retry is left
	Cancelled    = "cancelled"
	NotSent      = "not_sent" // the endpoint was not subscribed to lead.erased, or was disabled
)

// NotifiedEndpoint is an endpoint with the outcome of lead.erased.
type NotifiedEndpoint struct {
	WebhookID      string  `json:"webhookId"`
	Host           string  `json:"host"`
	State          string  `json:"state"`
	AcknowledgedAt *string `json:"acknowledgedAt"`
	Attempts       int     `json:"attempts"`
	Status         int     `json:"status"` // of the last response; 0: none
}

// cannotProve lists facts that no certificate proves.
func cannotProve() []string {
	return []string{
		"That no copy of the key was kept: a key can be copied before it is destroyed. Backups of the key's database " +
			"from before the erasure have it, until they are deleted.",
		"What receivers did: an endpoint that acknowledged lead.erased may still have what it was sent before, and " +
			"so may one that did not.",
		"What was exported, read or copied before the erasure: files, reports and screens keep what they show.",
		"That the deliveries and the time of issue are as stated here: they are the service's own record, and not " +
			"in the tree.",
		"That the log has no other data of the person: events from before there were keys, and what was written into " +
			"the wrong person's lead.",
	}
}

// NewCertificate returns the certificate of an erasure, without endpoints. The event is in stored form.
func NewCertificate(erased eventstore.Recorded, proof []byte, now time.Time) (c Certificate, err error) {
	content, err := storedContent(erased)
	if err != nil {
		return c, err
	}
	fact, metadata, err := readErasure(content)
	c = Certificate{
		LeadID: event.LeadID(erased.Stream), Proof: string(proof), CannotProve: cannotProve(),
		IssuedAt: FormatTime(now),
		Erasure: CertifiedErasure{
			ID: erased.ID.String(), Type: event.PublicName(erased.Type), Stream: erased.Stream,
			Revision: erased.Revision, At: FormatTime(erased.At), Actor: metadata.Actor, Stored: content,
		},
	}
	c.JoinedLeads, c.KeyCommitments = named(fact)
	return c, err
}

// readErasure reads the stored content of lead.erased.
func readErasure(content []byte) (fact event.LeadErased, metadata event.Metadata, err error) {
	before, data, _ := bytes.Cut(content, []byte{'\n'})
	decoded, err := event.Decode(event.LeadErased{}.EventType(), data)
	if err != nil {
		return fact, metadata, err
	}
	fact, _ = decoded.(event.LeadErased)
	metadata, err = event.DecodeMetadata(before)
	return fact, metadata, err
}

// named returns the lists of the fact that a certificate repeats. They are not nil, so that JSON has [].
func named(fact event.LeadErased) ([]string, []event.KeyCommitment) {
	return append([]string{}, fact.Leads...), append([]event.KeyCommitment{}, fact.KeyCommitments...)
}

// OpenCertificate verifies a certificate, or the JSON response that contains one, without the service: its proof must
// be valid, and match the certificate. The errors are ErrCertificate and those of OpenReceipt.
func OpenCertificate(text []byte, trust merkle.Trust) (c Certificate, r Receipt, err error) {
	var answer struct {
		Data *Certificate `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return c, r, fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	if answer.Data != nil {
		c = *answer.Data
	} else if err := json.Unmarshal(text, &c); err != nil {
		return c, r, fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	if r, err = OpenReceipt([]byte(c.Proof), trust); err != nil {
		return c, r, err
	}
	if difference := c.differs(r.Leaf); difference != "" {
		return c, r, fmt.Errorf("%w: %s", ErrCertificate, difference)
	}
	return c, r, nil
}

// differs returns the first difference between a certificate and the leaf of its proof, or an empty string.
func (c Certificate) differs(leaf Leaf) string {
	e := c.Erasure
	if leaf.Type != (event.LeadErased{}).EventType() {
		return "its proof is of an event of type " + event.PublicName(leaf.Type)
	}
	fact, metadata, err := readErasure(e.Stored)
	sum := sha256.Sum256(e.Stored)
	leads, commitments := named(fact)
	for _, member := range []struct {
		name string
		same bool
	}{
		{"leadId", event.LeadStream(c.LeadID) == leaf.Stream},
		{"erasure.id", e.ID == leaf.ID},
		{"erasure.type", e.Type == event.PublicName(leaf.Type)},
		{"erasure.stream", e.Stream == leaf.Stream},
		{"erasure.revision", e.Revision == leaf.Revision},
		{"erasure.at", e.At == leaf.moment()},
		{"erasure.stored", err == nil && hex.EncodeToString(sum[:]) == leaf.Stored},
		{"erasure.actor", e.Actor == metadata.Actor},
		{"joinedLeads", reflect.DeepEqual(append([]string{}, c.JoinedLeads...), leads)},
		{"keyCommitments", reflect.DeepEqual(append([]event.KeyCommitment{}, c.KeyCommitments...), commitments)},
	} {
		if !member.same {
			return member.name + " is not what the proof says"
		}
	}
	return ""
}
