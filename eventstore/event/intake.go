package event

import "time"

// IntakeSettings are the settings of an intake, an address to which forms, ads and payment pages post leads. Secrets
// are stored elsewhere, sealed.
type IntakeSettings struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	Source    string   `json:"source"` // canonical; the source of its arrivals
	Enabled   bool     `json:"enabled"`
	Origins   []string `json:"origins,omitzero"`   // web origins whose pages may post to a form; none: any
	Redirect  string   `json:"redirect,omitzero"`  // URL to which a form redirects the browser
	Honeypot  string   `json:"honeypot,omitzero"`  // name of a form field that people leave empty
	Challenge string   `json:"challenge,omitzero"` // provider: turnstile or hcaptcha
	// arrivals a second and address; 0 is no limit, absent the account's
	RateLimit *float64 `json:"rateLimit,omitzero"`
	// a Go duration; without an arrival for that long, the intake is silent
	ExpectEvery string `json:"expectEvery,omitzero"`
	// CEL by field of a lead; absent fields have the kind's default
	Mapping   map[string]string `json:"mapping,omitzero"`
	Signature *IntakeSignature  `json:"signature,omitzero"` // of kind webhook
	GraphURL  string            `json:"graphUrl,omitzero"`  // of kind meta_lead_ads; absent: Meta's own
	// CEL: the list of a post's arrivals; absent: a JSON list's elements, else one
	Each string `json:"each,omitzero"`
	// of kind webhook: a GET is an arrival, whose body is its query
	AcceptGet bool `json:"acceptGet,omitzero"`
	// of kind webhook: meta, linkedin or challenge; absent: none
	Handshake string `json:"handshake,omitzero"`
	OnInvalid string `json:"onInvalid,omitzero"` // of kind form: reject or keep; absent: auto
}

// IntakeSignature describes how a sender authenticates to an intake of kind webhook with its secret.
type IntakeSignature struct {
	Header    string `json:"header,omitzero"`    // of schemes hmac and header
	Algorithm string `json:"algorithm,omitzero"` // sha256, sha1 or sha512
	Encoding  string `json:"encoding,omitzero"`  // hex or base64
	Prefix    string `json:"prefix,omitzero"`    // in the header, before the signature
	Scheme    string `json:"scheme"`             // hmac, bearer, basic, header or query

	// Format is how the header stands, such as t={timestamp},v1={signature}; empty is the prefix and the signature.
	Format          string `json:"format,omitzero"`
	TimestampHeader string `json:"timestampHeader,omitzero"`
	IDHeader        string `json:"idHeader,omitzero"`
	Signed          string `json:"signed,omitzero"` // what is signed, such as {timestamp}.{body}; empty is {body}
	// a Go duration: how far a signed timestamp may be from now; empty is 5m
	Tolerance string `json:"tolerance,omitzero"`
	Name      string `json:"name,omitzero"` // of the query parameter that is the secret
}

// IntakeCreated records that an account has a new intake.
type IntakeCreated struct {
	IntakeSettings
	Slot int  `json:"slot"`          // the account's slot that it holds, from 1; 0 for demo data
	Demo bool `json:"demo,omitzero"` // it contains the account's demo data
}

// IntakeChanged records that an intake's owner changed it. It has all of the intake's settings.
type IntakeChanged struct {
	IntakeSettings
	Changed []string `json:"changed"` // names of the changed fields, secrets included
}

// IntakeRotated records that an intake has a new secret. The previous one is refused, at once or after an overlap.
type IntakeRotated struct {
	OldUntil time.Time `json:"oldSecretUntil,omitzero"` // until when the previous secret holds too
}

// IntakeDeleted records that an intake was permanently deleted.
type IntakeDeleted struct{}

// IntakeSilent records that an intake had no arrival for longer than its owner expects.
type IntakeSilent struct {
	Since time.Time `json:"since"` // time of the latest arrival, or of the intake's creation
}

// IntakeResumed records that a silent intake had an arrival.
type IntakeResumed struct {
	ArrivedAt time.Time `json:"arrivedAt"`
}

// IntakeFailing records that arrivals at an intake were quarantined one after the other.
type IntakeFailing struct {
	Since     time.Time `json:"since"`     // when the first of them was quarantined
	ArrivalID string    `json:"arrivalId"` // the latest of them
	Error     string    `json:"error"`     // why it was quarantined; not personal
}

// IntakeRecovered records that an arrival at a failing intake was captured.
type IntakeRecovered struct {
	CapturedAt time.Time `json:"capturedAt"`
}

func (IntakeCreated) EventType() string   { return "intake.created.v1" }
func (IntakeChanged) EventType() string   { return "intake.changed.v1" }
func (IntakeRotated) EventType() string   { return "intake.rotated.v1" }
func (IntakeDeleted) EventType() string   { return "intake.deleted.v1" }
func (IntakeSilent) EventType() string    { return "intake.silent.v1" }
func (IntakeResumed) EventType() string   { return "intake.resumed.v1" }
func (IntakeFailing) EventType() string   { return "intake.failing.v1" }
func (IntakeRecovered) EventType() string { return "intake.recovered.v1" }
