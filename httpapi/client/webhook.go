package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Webhook is a verified delivery.
type Webhook struct {
	// webhook-id, the same for each attempt: if you have processed it, answer 200 and do nothing
	DeliveryID string          `json:"-"`
	ID         string          `json:"id"` // of the event
	Type       string          `json:"type"`
	Timestamp  time.Time       `json:"timestamp"`
	Sequence   uint64          `json:"sequence"` // grows in the order of the log
	Data       json.RawMessage `json:"data"`     // of an event of a lead: the Lead as of the event
	Changes    []Change        `json:"changes"`  // of an event of a lead: what it changed
	// of lead.created and lead.merged: the arrival, as a row of GET /api/v1/crm/touches
	Touch json.RawMessage `json:"touch"`
}

// Change is a member of a lead that an event changed. A value is null when it is not set.
type Change struct {
	Field string          `json:"field"` // a member of Data, customFields.{key} or metadata.{key}
	Old   json.RawMessage `json:"old"`
	New   json.RawMessage `json:"new"`
}

// ErrSignature means that a request was not signed with the secret, or more than 5 minutes ago. Answer it with 401.
var ErrSignature = errors.New("leadlog: the webhook's signature is wrong or too old")

const (
	signatureTolerance = 5 * time.Minute
	maxWebhook         = 16 << 20 // bytes, far beyond any delivery
)

// ReadWebhook reads and verifies a request that leadlog sent to an endpoint with this whsec_ secret, by the Standard
// Webhooks specification (www.standardwebhooks.com). For 24 hours after a rotation of the secret, the old and the new
// one verify.
func ReadWebhook(r *http.Request, secret string) (*Webhook, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxWebhook))
	if err != nil {
		return nil, err
	}
	if err := Verify(r.Header, body, secret, time.Now()); err != nil {
		return nil, err
	}
	w := &Webhook{DeliveryID: r.Header.Get("webhook-id")}
	if err := json.Unmarshal(body, w); err != nil {
		return nil, fmt.Errorf("leadlog: the webhook's body: %w", err)
	}
	return w, nil
}

// Verify verifies the signature of a webhook that was received at a time. It returns ErrSignature unless one of the
// signatures is valid.
func Verify(header http.Header, body []byte, secret string, received time.Time) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return errors.New("leadlog: the secret of the webhook endpoint must be whsec_ and base64")
	}
	id, sent := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if err != nil || received.Sub(time.Unix(seconds, 0)).Abs() > signatureTolerance {
		return ErrSignature
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.", id, sent)
	mac.Write(body)
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for signature := range strings.FieldsSeq(header.Get("webhook-signature")) { // several during a rotation
		if hmac.Equal([]byte(signature), want) {
			return nil
		}
	}
	return ErrSignature
}
