// Package webhook decides on webhook endpoints: which may be registered, and when one is gone.
package webhook

import (
	"errors"
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	// MaxPerAccount is how many endpoints an account may have.
	MaxPerAccount = 50
	// MaxDescription is the longest description in characters.
	MaxDescription = 500
)

var (
	// ErrNotFound says that there is no such endpoint, or not any more.
	ErrNotFound = errors.New("webhook endpoint not found")
	// ErrLimit says that the account's slots are all taken.
	ErrLimit = errors.New("an account may have at most 50 webhook endpoints")
)

// EventTypes are the public types that an endpoint may ask for by name. "*" asks for all of them.
func EventTypes() []string {
	return []string{
		"lead.created", "lead.merged", "lead.updated", "lead.erased",
		"token.created", "token.rotated", "token.deleted",
	}
}

// Phase is where an endpoint is in its life.
type Phase int

// An endpoint's phases.
const (
	Unborn Phase = iota
	Live
	Deleted
	Abandoned
)

// State is a fold of an endpoint's stream.
type State struct {
	Phase       Phase
	Account     string
	URL         string
	Events      []string
	Description string
	Slot        int
	UpdatedAt   time.Time // of the latest fact
}

// Evolve folds one fact into the state.
func Evolve(s State, fact event.Fact) State {
	s.UpdatedAt = fact.At
	switch data := fact.Data.(type) {
	case event.WebhookRegistered:
		s.Phase, s.Account = Live, fact.Metadata.Account
		s.URL, s.Events, s.Description, s.Slot = data.URL, data.Events, data.Description, data.Slot
	case event.WebhookDeleted:
		s.Phase = Deleted
	case event.WebhookAbandoned:
		s.Phase = Abandoned
	}
	return s
}

// HoldsSlot tells whether a slot claimed for this endpoint is taken.
func (s State) HoldsSlot() bool { return s.Phase == Live }

// Delete decides on the end of an endpoint of the account.
func (s State) Delete(account string) (event.WebhookDeleted, error) {
	if s.Phase != Live || s.Account != account {
		return event.WebhookDeleted{}, ErrNotFound
	}
	return event.WebhookDeleted{}, nil
}
