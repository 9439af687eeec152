package event

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ArrivalReceived records that a post was accepted: by an intake, or by the API when its fields were invalid and the
// account quarantines such posts. The outcome follows on the arrival's stream.
type ArrivalReceived struct {
	IntakeID   string     `json:"intakeId,omitzero" personal:"no"` // absent: captured by the API
	TokenID    string     `json:"tokenId,omitzero" personal:"no"`  // of the API token; absent for intakes and JWTs
	ReceivedAt time.Time  `json:"receivedAt" personal:"no"`
	ExpiresAt  time.Time  `json:"expiresAt" personal:"no"`            // when the posted content is deleted
	DeliveryID string     `json:"deliveryId,omitzero" personal:"yes"` // the sender's: makes the arrival idempotent
	Raw        ArrivalRaw `json:"raw" personal:"content"`
}

// ArrivalRaw is a post as received, without the sender's credentials.
type ArrivalRaw struct {
	ContentType string            `json:"contentType,omitzero"`
	Body        string            `json:"body,omitzero"`
	Compressed  []byte            `json:"compressed,omitzero"` // gzip, instead of the body
	Headers     map[string]string `json:"headers,omitzero"`    // by lower-case name
	Query       map[string]string `json:"query,omitzero"`
	Item        bool              `json:"item,omitzero"` // the body is one element of a post with several arrivals
	Post        string            `json:"post,omitzero"` // JSON of that post, without its lists
}

// ArrivalFetched records that the arrival's content was fetched from its provider. It replaces the posted content.
type ArrivalFetched struct {
	Raw ArrivalRaw `json:"raw" personal:"content"`
}

// ArrivalRedelivered records that the sender delivered a quarantined arrival again. It replaces the content.
type ArrivalRedelivered struct {
	Raw ArrivalRaw `json:"raw" personal:"content"`
}

// ArrivalCaptured records that the arrival became a lead or was merged into one.
type ArrivalCaptured struct {
	LeadID  string `json:"leadId" personal:"no"`
	EventID string `json:"eventId" personal:"no"` // of the resulting lead event
	Merged  bool   `json:"merged,omitzero" personal:"no"`

	Warnings []ArrivalWarning `json:"warnings,omitzero" personal:"no"`
}

// ArrivalRefused records that the arrival conflicts with an existing lead.
type ArrivalRefused struct {
	Code   string `json:"code" personal:"no"` // like the lead ids, as in LeadRefused
	LeadID string `json:"leadId" personal:"no"`
	Other  string `json:"other,omitzero" personal:"no"`
}

// ArrivalQuarantined records that the arrival is kept until its fields are corrected. It has what the arrival's record
// shows.
type ArrivalQuarantined struct {
	IntakeID   string           `json:"intakeId,omitzero" personal:"no"` // like the next three, as in ArrivalReceived
	TokenID    string           `json:"tokenId,omitzero" personal:"no"`
	ReceivedAt time.Time        `json:"receivedAt" personal:"no"`
	ExpiresAt  time.Time        `json:"expiresAt" personal:"no"`
	Reasons    []ArrivalReason  `json:"reasons" personal:"no"`
	Warnings   []ArrivalWarning `json:"warnings,omitzero" personal:"no"`
}

// ArrivalWarning says what was taken in another way than its sender most likely meant. It contains no personal value.
type ArrivalWarning struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// ArrivalReason says why one field is invalid. It contains no personal value.
type ArrivalReason struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// ArrivalResubmitted records that a user requested to capture the arrival again.
type ArrivalResubmitted struct {
	Set   map[string]jsontext.Value `json:"set,omitzero" personal:"yes"`  // members that replace the arrival's
	Fetch bool                      `json:"fetch,omitzero" personal:"no"` // its content is fetched again first
}

// ArrivalDiscarded records that the arrival is not captured.
type ArrivalDiscarded struct {
	Reason string `json:"reason" personal:"no"` // owner, test, skip or erased
}

// Reasons of ArrivalDiscarded. With DiscardedByOwner and DiscardedErased, the posted content is deleted at once.
const (
	DiscardedByOwner = "owner"
	DiscardedTest    = "test"   // the sender marked it as a test
	DiscardedSkip    = "skip"   // the intake's mapping excluded it
	DiscardedErased  = "erased" // the person was erased
)

// ArrivalExpired records that the posted content is deleted because its retention has ended.
type ArrivalExpired struct{}

func (ArrivalReceived) EventType() string    { return "arrival.received.v1" }
func (ArrivalFetched) EventType() string     { return "arrival.fetched.v1" }
func (ArrivalRedelivered) EventType() string { return "arrival.redelivered.v1" }
func (ArrivalCaptured) EventType() string    { return "arrival.captured.v1" }
func (ArrivalRefused) EventType() string     { return "arrival.refused.v1" }
func (ArrivalQuarantined) EventType() string { return "arrival.quarantined.v1" }
func (ArrivalResubmitted) EventType() string { return "arrival.resubmitted.v1" }
func (ArrivalDiscarded) EventType() string   { return "arrival.discarded.v1" }
func (ArrivalExpired) EventType() string     { return "arrival.expired.v1" }

// plainBody is the maximum size in bytes of an uncompressed body. Compressing smaller ones costs more than it saves.
const plainBody = 4 << 10

// WithBody returns the raw arrival with a body, which is compressed if it is large or not text.
func (r ArrivalRaw) WithBody(body []byte) ArrivalRaw {
	r.Body, r.Compressed = "", nil
	if len(body) <= plainBody && utf8.Valid(body) && bytes.IndexByte(body, 0) < 0 {
		r.Body = string(body)
		return r
	}
	var packed bytes.Buffer
	// the level is valid; the fastest one, because anyone may post
	writer, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	_, _ = writer.Write(body) // a buffer never fails
	_ = writer.Close()
	r.Compressed = packed.Bytes()
	return r
}

// maxBody is the maximum size in bytes of a decompressed body. Larger ones are never received.
const maxBody = 4 << 20

// Bytes returns the body as received.
func (r ArrivalRaw) Bytes() ([]byte, error) {
	if r.Compressed == nil {
		return []byte(r.Body), nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(r.Compressed))
	if err != nil {
		return nil, fmt.Errorf("body of an arrival: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(reader, maxBody))
	if err != nil {
		return nil, fmt.Errorf("body of an arrival: %w", err)
	}
	return body, nil
}
