package intake

import (
	"cmp"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Record is an intake as answers show it, without its times and its secrets.
type Record struct {
	IntakeID    string            `json:"intakeId"`
	Name        string            `json:"name"`
	Kind        string            `json:"kind"`
	Source      string            `json:"source"`
	URL         string            `json:"url"` // the path of its address, after the base address of the service
	Enabled     bool              `json:"enabled"`
	Origins     []string          `json:"origins"`
	Redirect    *string           `json:"redirect"`
	Honeypot    *string           `json:"honeypot"`
	Challenge   *RecordChallenge  `json:"challenge"`
	RateLimit   *float64          `json:"rateLimit"` // null: the account's
	ExpectEvery *string           `json:"expectEvery"`
	Mapping     map[string]string `json:"mapping"` // expressions that replace the kind's own
	Signature   *RecordSignature  `json:"signature"`
	GraphURL    *string           `json:"graphUrl"` // null: Meta's own
	Each        *string           `json:"each"`
	AcceptGet   bool              `json:"acceptGet"`
	Handshake   string            `json:"handshake"`
	OnInvalid   *string           `json:"onInvalid"` // of kind form
	State       string            `json:"state"`     // active, silent, failing, paused or disabled
}

// RecordChallenge is the provider of a form's challenge.
type RecordChallenge struct {
	Provider string `json:"provider"`
}

// RecordSignature describes how senders to an intake of kind webhook sign.
type RecordSignature struct {
	Scheme          string  `json:"scheme"`
	Header          *string `json:"header"`
	Algorithm       *string `json:"algorithm"`
	Encoding        *string `json:"encoding"`
	Prefix          *string `json:"prefix"`
	Format          *string `json:"format"`
	TimestampHeader *string `json:"timestampHeader"`
	IDHeader        *string `json:"idHeader"`
	Signed          *string `json:"signed"`
	Tolerance       *string `json:"tolerance"`
	Name            *string `json:"name"`
}

// Record returns the record of the intake.
func (s State) Record(id string) Record {
	set := s.Settings
	r := Record{
		IntakeID: id, Name: set.Name, Kind: set.Kind, Source: set.Source, URL: Path(id), Enabled: set.Enabled,
		Origins: set.Origins, Redirect: given(set.Redirect), Honeypot: given(set.Honeypot), RateLimit: set.RateLimit,
		ExpectEvery: given(set.ExpectEvery), Mapping: set.Mapping, Signature: recordOf(set.Signature),
		GraphURL: given(set.GraphURL), Each: given(set.Each), AcceptGet: set.AcceptGet, Handshake: HandshakeOf(set),
		State: s.activity(),
	}
	if set.Kind == Form {
		r.OnInvalid = new(cmp.Or(set.OnInvalid, InvalidAuto))
	}
	if r.Origins == nil {
		r.Origins = []string{}
	}
	if r.Mapping == nil {
		r.Mapping = map[string]string{}
	}
	if set.Challenge != "" {
		r.Challenge = &RecordChallenge{set.Challenge}
	}
	return r
}

func recordOf(s *event.IntakeSignature) *RecordSignature {
	if s == nil {
		return nil
	}
	return &RecordSignature{
		Scheme: s.Scheme, Header: given(s.Header), Algorithm: given(s.Algorithm), Encoding: given(s.Encoding),
		Prefix: given(s.Prefix), Format: given(s.Format), TimestampHeader: given(s.TimestampHeader),
		IDHeader: given(s.IDHeader), Signed: given(s.Signed), Tolerance: given(s.Tolerance), Name: given(s.Name),
	}
}

// given returns nil for an empty text.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
