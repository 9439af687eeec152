package event

// ClaimTaken records the holder of the stream's claim.
type ClaimTaken struct {
	Kind   string `json:"kind"`   // phone, email, token-slot, webhook-slot
	Holder string `json:"holder"` // id of a lead, token or endpoint
}

// ClaimReleased records that the value is free again.
type ClaimReleased struct {
	Kind   string `json:"kind"`
	Holder string `json:"holder"` // the previous holder
}

// ClaimBound records which request body an idempotency key belongs to, and the outcome of that request; or the arrival
// with a delivery id. It contains neither the key nor the body. A key whose request was quarantined may be bound again,
// to another body.
type ClaimBound struct {
	Kind    string `json:"kind"`    // idempotency or delivery
	Digest  []byte `json:"digest"`  // keyed hash of the body; empty for a delivery id
	Stream  string `json:"stream"`  // of a lead, a refused arrival, or a kept arrival
	EventID string `json:"eventId"` // of the outcome
	// Revision is the outcome's revision in the stream.
	Revision int64 `json:"revision"`
}

// ClaimKeyFixed identifies the key that names the claims of this log, which is the first one it was served with. It is
// the only event on the stream ClaimKeyStream.
type ClaimKeyFixed struct {
	Fingerprint []byte `json:"fingerprint"` // HMAC of a constant under the key
}

func (ClaimKeyFixed) EventType() string { return "claimkey.fixed.v1" }
func (ClaimBound) EventType() string    { return "claim.bound.v1" }
func (ClaimTaken) EventType() string    { return "claim.taken.v1" }
func (ClaimReleased) EventType() string { return "claim.released.v1" }
