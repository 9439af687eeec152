// Package intake decides on intakes: addresses at which forms, ads and payment pages deliver leads. It is pure.
package intake

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// The kinds of intakes.
const (
	Form             = "form"
	GoogleLeadForm   = "google_lead_form"
	MetaLeadAds      = "meta_lead_ads"
	Typeform         = "typeform"
	Razorpay         = "razorpay"
	StandardWebhooks = "standard_webhooks"
	Webhook          = "webhook"
	WhatsApp         = "whatsapp"
)

// Kinds returns all kinds.
func Kinds() []string {
	return []string{Form, GoogleLeadForm, MetaLeadAds, Typeform, Razorpay, StandardWebhooks, Webhook, WhatsApp}
}

// DefaultSource returns the source of a kind's leads if the intake's settings name none.
func DefaultSource(kind string) string {
	switch kind {
	case Form, Typeform:
		return "website"
	case GoogleLeadForm:
		return "google_ad"
	case MetaLeadAds:
		return "facebook_ad"
	case Razorpay:
		return "payment_page_drop"
	case WhatsApp:
		return "whatsapp"
	}
	return "webhook"
}

const (
	// MaxPerAccount is how many intakes an account may have.
	MaxPerAccount = 50
	// MaxName is the longest name in characters.
	MaxName = 100
	// MinExpect is the shortest time without an arrival that may be unexpected.
	MinExpect = time.Minute
)

var (
	// ErrNotFound means that there is no such intake, or no longer.
	ErrNotFound = errors.New("intake not found")
	// ErrLimit means that the account's slots are all taken.
	ErrLimit = errors.New("an account may have at most 50 intakes")
	// ErrNoSecrets means that the secrets of an intake are lost, so that no post can be authenticated.
	ErrNoSecrets = errors.New("no secrets of this intake")
)

// State is a fold of an intake's stream.
type State struct {
	Account   string // empty: not created
	Deleted   bool
	Settings  event.IntakeSettings
	Slot      int
	CreatedAt time.Time
	UpdatedAt time.Time // of the latest fact
	EnabledAt time.Time // since when it has been enabled; not reset while it is disabled

	// SecretID is the id of the event that set the intake's secrets. They are stored under it, so that a process which
	// has read the stream up to a revision can only find the secrets of that revision.
	SecretID string
	OldUntil time.Time // until when the secret before the latest rotation holds; zero: it does not

	Silent      bool
	SilentSince time.Time // the latest arrival before the silence, or CreatedAt
	ArrivedAt   time.Time // the latest arrival that the stream knows of

	Failing      bool
	FailingSince time.Time // of the latest failure that was reported, also after it
	LastError    string    // of that failure; empty after it
}

// Live reports whether the intake was created and not deleted.
func (s State) Live() bool { return s.Account != "" && !s.Deleted }

// Evolve folds one fact into the state.
func Evolve(s State, fact event.Fact) State {
	s.UpdatedAt = fact.At
	switch data := fact.Data.(type) {
	case event.IntakeCreated:
		s.Account, s.Slot = fact.Metadata.Account, data.Slot
		s.CreatedAt, s.EnabledAt = fact.At, fact.At
		s.Settings, s.SecretID = data.IntakeSettings, fact.ID.String()
	case event.IntakeChanged:
		if data.Enabled && !s.Settings.Enabled {
			s.EnabledAt = fact.At
		}
		s.Settings = data.IntakeSettings
		s.Silent = s.Silent && s.overdue(s.SilentSince, fact.At)
		if SetsSecrets(data) {
			s.SecretID, s.OldUntil = fact.ID.String(), time.Time{}
		}
	case event.IntakeRotated:
		s.SecretID, s.OldUntil = fact.ID.String(), data.OldUntil
	case event.IntakeSilent:
		s.Silent, s.SilentSince = true, data.Since
		if data.Since.After(s.CreatedAt) {
			s.ArrivedAt = data.Since
		}
	case event.IntakeResumed:
		s.Silent, s.ArrivedAt = false, data.ArrivedAt
	case event.IntakeFailing:
		s.Failing, s.FailingSince, s.LastError = true, data.Since, data.Error
	case event.IntakeRecovered:
		s.Failing, s.LastError = false, ""
	case event.IntakeDeleted:
		s.Deleted = true
	}
	return s
}

// Admits reports whether the intake accepts posts. One that is paused does, and keeps them; a form, whose senders are
// persons, does not.
func (s State) Admits() bool { return s.Live() && (s.Settings.Enabled || s.Settings.Kind != Form) }

// Paused returns why what arrives is quarantined, or nil.
func (s State) Paused() field.Errors {
	if s.Settings.Enabled {
		return nil
	}
	return field.Errors{{Field: pausedField, Message: "was paused when it arrived"}}
}

// pausedField is the reason of arrivals that a pause keeps.
const pausedField = "intake"

func (s State) ownedBy(account string) error {
	if !s.Live() || s.Account != account {
		return ErrNotFound
	}
	return nil
}

// Delete decides that an intake of the account is deleted. The error is ErrNotFound.
func (s State) Delete(account string) (event.IntakeDeleted, error) {
	return event.IntakeDeleted{}, s.ownedBy(account)
}

// States of an intake in answers.
const (
	Active   = "active"
	Silent   = "silent"
	Disabled = "disabled" // a form, whose posts are not found
	Paused   = "paused"   // what arrives is quarantined
	Failing  = "failing"  // the latest arrivals were quarantined
)

// activity returns the state of an intake in answers.
func (s State) activity() string {
	switch {
	case !s.Settings.Enabled && s.Settings.Kind == Form:
		return Disabled
	case !s.Settings.Enabled:
		return Paused
	case s.Failing:
		return Failing
	case s.Silent:
		return Silent
	}
	return Active
}

// NeedsSecrets reports whether the intake has secrets. A form without a challenge has none: its address is public.
func (s State) NeedsSecrets() bool { return s.Settings.Kind != Form || s.Settings.Challenge != "" }

// Path returns the path of an intake's address.
func Path(id string) string { return "/in/" + id }

// expectEvery returns the longest expected time between arrivals; zero: none is expected.
func (s State) expectEvery() time.Duration {
	every, _ := time.ParseDuration(s.Settings.ExpectEvery) // validated when it was set
	return every
}

// overdue reports whether nothing has arrived for too long at a time.
func (s State) overdue(last, now time.Time) bool {
	every := s.expectEvery()
	return every > 0 && now.Sub(last) >= every
}

// ReportSilence decides whether to report now that the intake is silent, given the time of its latest arrival, zero if
// there was none. A silence is reported once, until the next arrival. Time during which the intake was disabled does
// not count.
func (s State) ReportSilence(arrived, now time.Time) (event.IntakeSilent, bool) {
	since := latest(s.CreatedAt, arrived)
	due := s.Admits() && s.Settings.Enabled && !s.Silent && s.overdue(latest(since, s.EnabledAt), now)
	return event.IntakeSilent{Since: since}, due
}

// Resume decides whether to report that an arrival ended a silence. It is reported once.
func (s State) Resume(arrived time.Time) (event.IntakeResumed, bool) {
	return event.IntakeResumed{ArrivedAt: arrived}, s.Live() && s.Silent && arrived.After(s.SilentSince)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Secrets prove that a sender may deliver, or let the service ask others. They are stored sealed, outside of the log,
// and never printed.
type Secrets struct {
	Secret      string `json:"secret,omitzero"`
	AppSecret   string `json:"appSecret,omitzero"`   // of kind meta_lead_ads: signs; absent: Secret
	VerifyToken string `json:"verifyToken,omitzero"` // of kind meta_lead_ads: answers the challenge; absent: Secret
	AccessToken string `json:"accessToken,omitzero"` // of kind meta_lead_ads: fetches leads
	Challenge   string `json:"challenge,omitzero"`   // of the provider of a form's challenge

	Old      string    `json:"old,omitzero"`      // the secret before a rotation with an overlap
	OldUntil time.Time `json:"oldUntil,omitzero"` // until when it holds
}

// at returns the secrets by which posts are proven at a time.
func (s Secrets) at(now time.Time) []string {
	secrets := []string{s.Signing()}
	if s.Old != "" && now.Before(s.OldUntil) {
		secrets = append(secrets, s.Old)
	}
	return secrets
}

// Signing returns the secret that proves posts: the one that signs them, for Meta.
func (s Secrets) Signing() string { return cmp.Or(s.AppSecret, s.Secret) }

// Verifying returns the token of the challenge of kind meta_lead_ads.
func (s Secrets) Verifying() string { return cmp.Or(s.VerifyToken, s.Secret) }

// String returns a text without secrets.
func (Secrets) String() string { return "[secrets]" }

// GoString returns a text without secrets.
func (Secrets) GoString() string { return "[secrets]" }

// LogValue returns a text without secrets.
func (Secrets) LogValue() slog.Value { return slog.StringValue("[secrets]") }

// Names of secrets in IntakeChanged.Changed.
const (
	nameSecret          = "secret"
	nameAppSecret       = "appSecret"
	nameVerifyToken     = "verifyToken"
	nameAccessToken     = "accessToken"
	nameChallengeSecret = "challenge.secret"
)

// SetsSecrets reports whether a change replaces the intake's secrets by those stored under its id.
func SetsSecrets(changed event.IntakeChanged) bool {
	return slices.ContainsFunc(changed.Changed, isSecret)
}

func isSecret(name string) bool {
	switch name {
	case nameSecret, nameAppSecret, nameVerifyToken, nameAccessToken, nameChallengeSecret:
		return true
	}
	return false
}

// differences returns the names of the secrets that differ.
func (s Secrets) differences(other Secrets) (names []string) {
	for _, pair := range [...]struct{ name, a, b string }{
		{nameSecret, s.Secret, other.Secret}, {nameAppSecret, s.AppSecret, other.AppSecret},
		{nameVerifyToken, s.VerifyToken, other.VerifyToken}, {nameAccessToken, s.AccessToken, other.AccessToken},
		{nameChallengeSecret, s.Challenge, other.Challenge},
	} {
		if subtle.ConstantTimeCompare([]byte(pair.a), []byte(pair.b)) == 0 {
			names = append(names, pair.name)
		}
	}
	return names
}
