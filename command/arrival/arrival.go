// Package arrival folds the stream of an arrival: a post that an intake accepted, or that the API kept because its
// fields were invalid. It decides whether one can be resubmitted, discarded, expired or erased. It is pure.
package arrival

import (
	"errors"
	"maps"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// States of an arrival.
const (
	Received    = "received"    // its content has not been fetched yet
	Captured    = "captured"    // it created a lead or was merged into one
	Refused     = "refused"     // it conflicts with a lead
	Quarantined = "quarantined" // it is kept until its fields are corrected
	Discarded   = "discarded"   // it is not captured
	Expired     = "expired"     // it was not captured in time, and its content is deleted
)

// States returns all states.
func States() []string {
	return []string{Received, Captured, Refused, Quarantined, Discarded, Expired}
}

var (
	// ErrNotFound means that the account has no such arrival.
	ErrNotFound = errors.New("arrival not found")
	// ErrDiscarded means that an arrival was discarded.
	ErrDiscarded = errors.New("the arrival was discarded")
	// ErrExpired means that the content of an arrival was deleted when it expired, and was not captured before.
	ErrExpired = errors.New("the arrival has expired")
	// ErrPending means that the content of an arrival has not been fetched yet.
	ErrPending = errors.New("the content of the arrival has not been fetched yet")
)

// Arrival is a fold of an arrival's stream.
type Arrival struct {
	ID         string
	Account    string
	State      string         // empty: there is no such arrival
	Metadata   event.Metadata // of the request that it arrived by
	IntakeID   string
	TokenID    string
	ReceivedAt time.Time
	ExpiresAt  time.Time
	Raw        event.ArrivalRaw // zero when it is deleted
	Fetched    bool             // the raw arrival was fetched, not posted
	Deleted    bool             // the content was deleted by its owner, by an erasure, or because it expired
	Lost       bool             // the content cannot be read because its key does not exist
	Reasons    []event.ArrivalReason
	Warnings   []event.ArrivalWarning
	Code       string // of a refusal
	LeadID     string // that it was captured into, or conflicts with
	Other      string // a second lead that it conflicts with
	EventID    string // of the lead's event that it became
	Merged     bool
	Discarded  string // why
	Resubmits  int
	UpdatedAt  time.Time // of the latest fact
}

// Evolve folds one fact into an arrival.
func Evolve(a Arrival, fact event.Fact) Arrival {
	a = evolve(a, fact)
	a.UpdatedAt = fact.At
	if fact.Erased {
		a.Lost = true
	}
	return a
}

func evolve(a Arrival, fact event.Fact) Arrival {
	switch data := fact.Data.(type) {
	case event.ArrivalReceived:
		a = Arrival{
			ID: event.ArrivalID(fact.Stream), Account: fact.Metadata.Account, State: Received, Metadata: fact.Metadata,
			IntakeID: data.IntakeID, TokenID: data.TokenID, ReceivedAt: data.ReceivedAt, ExpiresAt: data.ExpiresAt,
			Raw: data.Raw,
		}
	case event.ArrivalFetched:
		a.Raw, a.Fetched = data.Raw, true
	case event.ArrivalRedelivered:
		a.Raw, a.Fetched = data.Raw, false
	case event.ArrivalCaptured:
		a.become(Captured)
		a.LeadID, a.EventID, a.Merged, a.Warnings = data.LeadID, data.EventID, data.Merged, data.Warnings
	case event.ArrivalRefused:
		a.become(Refused)
		a.Code, a.LeadID, a.Other = data.Code, data.LeadID, data.Other
	case event.ArrivalQuarantined:
		a.become(Quarantined)
		a.Reasons, a.Warnings = data.Reasons, data.Warnings
	case event.ArrivalResubmitted:
		a.Resubmits++
		if data.Fetch {
			a.become(Received)
		}
	case event.ArrivalDiscarded:
		a.Discarded = data.Reason
		if data.Reason == event.DiscardedErased {
			a.LeadID, a.Other, a.EventID = "", "", ""
		}
		a.State, a.Reasons, a.Warnings, a.Code = Discarded, nil, nil, ""
		if data.Reason == event.DiscardedByOwner || data.Reason == event.DiscardedErased {
			a.delete()
		}
	case event.ArrivalExpired:
		if a.State == Received || a.State == Quarantined {
			a.State = Expired
		}
		a.delete()
	}
	return a
}

// become changes the state and clears the fields of the previous one.
func (a *Arrival) become(state string) {
	a.State, a.Reasons, a.Warnings, a.Code, a.LeadID, a.Other = state, nil, nil, "", "", ""
}

func (a *Arrival) delete() { a.Raw, a.Deleted = event.ArrivalRaw{}, true }

// Of returns ErrNotFound unless the arrival exists and is of the account.
func (a Arrival) Of(account string) error {
	if a.State == "" || a.Account != account {
		return ErrNotFound
	}
	return nil
}

// Resubmit returns why an arrival cannot be captured, or nil.
func (a Arrival) Resubmit() error {
	switch {
	case a.State == Discarded:
		return ErrDiscarded
	case (a.Deleted || a.Lost) && a.State != Captured:
		return ErrExpired
	case a.State == Received:
		return ErrPending
	}
	return nil
}

// Discard decides that the owner of an arrival discards it. Done reports that its content was deleted before. The
// errors are ErrNotFound and ErrExpired.
func (a Arrival) Discard(account string) (fact event.ArrivalDiscarded, done bool, err error) {
	if err := a.Of(account); err != nil {
		return fact, false, err
	}
	if a.Deleted && a.State != Discarded {
		return fact, false, ErrExpired
	}
	return event.ArrivalDiscarded{Reason: event.DiscardedByOwner}, a.Deleted, nil
}

// Expire decides that the content of an arrival is deleted. Due is false before ExpiresAt, and when the content was
// deleted before.
func (a Arrival) Expire(now time.Time) (fact event.ArrivalExpired, due bool) {
	return fact, a.State != "" && !a.Deleted && !now.Before(a.ExpiresAt)
}

// Erase decides that an arrival is discarded because its person is forgotten. Due is false when its content was deleted
// before.
func (a Arrival) Erase() (fact event.ArrivalDiscarded, due bool) {
	return event.ArrivalDiscarded{Reason: event.DiscardedErased}, a.State != "" && !a.Deleted
}

// Reasons returns the errors of an arrival's fields as they are stored and listed. Senders choose the names of custom
// fields; a name that may be about a person is not stored.
func Reasons(wrong field.Errors) []event.ArrivalReason {
	reasons := make([]event.ArrivalReason, len(wrong))
	for i, e := range wrong {
		reasons[i] = event.ArrivalReason{Field: e.Field, Message: e.Message}
		reasons[i].Field = storedName(e.Field)
	}
	return reasons
}

// Warnings returns the warnings of an arrival as they are stored and listed, with names like those of Reasons.
func Warnings(warnings field.Warnings) []event.ArrivalWarning {
	var stored []event.ArrivalWarning
	for _, w := range warnings {
		stored = append(stored, event.ArrivalWarning{Field: storedName(w.Field), Code: w.Code, Message: w.Message})
	}
	return stored
}

func storedName(name string) string {
	if plainName(name) {
		return name
	}
	return "customFields"
}

// Errors returns stored reasons as errors of fields.
func Errors(reasons []event.ArrivalReason) field.Errors {
	wrong := make(field.Errors, len(reasons))
	for i, reason := range reasons {
		wrong[i] = field.Error(reason)
	}
	return wrong
}

// plainName reports whether the name of a field consists of letters, few digits, and characters that join words.
func plainName(name string) bool {
	const maxDigits = 4
	digits := 0
	for _, r := range name {
		switch {
		case r >= '0' && r <= '9':
			digits++
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '_', r == '-', r == '.':
		default:
			return false
		}
	}
	return name != "" && len(name) <= 100 && digits <= maxDigits
}

// Set overwrites fields of a capture's body. Members that are null remove a field.
func Set(body, set map[string]jsontext.Value) map[string]jsontext.Value {
	if len(set) == 0 {
		return body
	}
	merged := make(map[string]jsontext.Value, len(body)+len(set))
	maps.Copy(merged, body)
	maps.Copy(merged, set)
	return merged
}
