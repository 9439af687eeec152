// Package webhook decides on webhook endpoints: valid URLs and event types, and changes of an endpoint. It is pure.
// Package projection/delivery sends the webhooks.
package webhook

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

const (
	// MaxPerAccount is how many endpoints an account may have.
	MaxPerAccount = 50
	// MaxDescription is the longest description in characters.
	MaxDescription = 500
	// Overlap is how long a replaced secret still signs.
	Overlap = 24 * time.Hour
	// SecretPrefix begins a secret of the Standard Webhooks specification; the key follows in base64.
	SecretPrefix = "whsec_"
)

var (
	// ErrNotFound means that there is no such endpoint, or no longer.
	ErrNotFound = errors.New("webhook endpoint not found")
	// ErrDisabled means that nothing can be sent to an endpoint before it is enabled again.
	ErrDisabled = errors.New("webhook endpoint is disabled")
	// ErrReplayRunning means that an earlier replay of an endpoint has not ended.
	ErrReplayRunning = errors.New("a replay of the webhook endpoint is running")
	// ErrLimit means that the account's slots are all taken.
	ErrLimit = errors.New("an account may have at most 50 webhook endpoints")
)

// Why an endpoint is disabled.
const (
	ByOwner = "owner"   // its owner disabled it
	Gone    = "gone"    // its URL answered 410
	Failing = "failing" // every delivery has failed for days
)

// sentFacts are the events that endpoints get under their own public type.
var sentFacts = []event.Data{
	event.LeadCreated{}, event.LeadMerged{}, event.LeadUpdated{}, event.LeadReleased{}, event.LeadErased{},
	event.TokenCreated{}, event.TokenRotated{}, event.TokenExpiring{}, event.TokenDeleted{},
	event.IntakeSilent{}, event.IntakeResumed{}, event.IntakeFailing{}, event.IntakeRecovered{},
	event.ArrivalQuarantined{},
}

// LeadConsent is the public type of a change of one of a lead's consents, whatever event it came with.
const LeadConsent = "lead.consent"

// EventTypes returns the public types that an endpoint may subscribe to by name or by a pattern; "*" selects all of
// them. A webhook.test is not one of them: it is sent to the endpoint that it tests, whatever types the endpoint
// subscribes to.
func EventTypes() []string {
	names := make([]string, len(sentFacts))
	for i, data := range sentFacts {
		names[i] = event.PublicName(data.EventType())
	}
	return append(names, LeadConsent)
}

// sentAs has the stored types that endpoints get, each with its public type.
var sentAs = func() map[string]string {
	public := map[string]string{}
	for _, data := range sentFacts {
		public[data.EventType()] = event.PublicName(data.EventType())
	}
	// of the surviving lead; the source lead has no more events
	public[event.LeadJoined{}.EventType()] = event.PublicName(event.LeadUpdated{}.EventType())
	public[event.LeadSplit{}.EventType()] = event.PublicName(event.LeadUpdated{}.EventType())
	return public
}()

// Message is what endpoints get of an event: the event itself, or one of the consents that it changed.
type Message struct {
	Type string // public
	Part int    // 0: the event itself; from 1 on: the consents that it changed, in their order
}

// Messages returns what endpoints get of an event.
func Messages(data event.Data) (messages []Message) {
	name, sent := sentAs[data.EventType()]
	if split, is := data.(event.LeadSplit); is && split.From != "" && !split.Undone { // a new lead
		name = sentAs[event.LeadCreated{}.EventType()]
	}
	if sent {
		messages = append(messages, Message{Type: name})
	}
	for i := range event.PurposesOf(data).ChangedConsents {
		messages = append(messages, Message{LeadConsent, i + 1})
	}
	return messages
}

// SentTypes returns, for an endpoint with these events, the stored types that it can get messages of.
func SentTypes(events []string) (types []string) {
	for stored, name := range sentAs {
		if Subscribes(events, name) {
			types = append(types, stored)
		}
	}
	if Subscribes(events, sentAs[event.LeadCreated{}.EventType()]) {
		types = append(types, event.LeadSplit{}.EventType()) // a new lead
	}
	if Subscribes(events, LeadConsent) {
		types = append(types, event.Types(event.LeadCreated{}, event.LeadMerged{}, event.LeadConsented{},
			event.LeadJoined{}, event.LeadSplit{})...)
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// Subscribes reports whether an endpoint with these events gets a public type.
func Subscribes(events []string, name string) bool {
	return slices.ContainsFunc(events, func(pattern string) bool { return event.Matches(name, pattern) })
}

// SubscribesToLeads reports whether an endpoint with these events is sent events of leads.
func SubscribesToLeads(events []string) bool {
	return slices.ContainsFunc(EventTypes(), func(name string) bool { return OfLead(name) && Subscribes(events, name) })
}

// OfLead reports whether deliveries of a public type have the data of a lead.
func OfLead(name string) bool { return strings.HasPrefix(name, "lead.") }

// State is a fold of an endpoint's stream.
type State struct {
	event.WebhookSettings
	Account   string // empty: not created
	Deleted   bool
	Slot      int
	CreatedAt time.Time
	UpdatedAt time.Time // of the latest fact

	DisabledReason string // empty: enabled
	DisabledAt     time.Time
	Since          time.Time // since when it has been enabled with this URL; failures that began earlier do not count
	Replays        int       // number of requested replays
	Replaying      bool      // the latest of them has not ended
	SentLeads      bool      // it has been sent events of leads, so deliveries may have their data
}

// Live reports whether the endpoint was created and not deleted.
func (s State) Live() bool { return s.Account != "" && !s.Deleted }

// Evolve folds one fact into the state.
func Evolve(s State, fact event.Fact) State {
	s.UpdatedAt = fact.At
	switch data := fact.Data.(type) {
	case event.WebhookRegistered:
		s.Account, s.CreatedAt, s.Since = fact.Metadata.Account, fact.At, fact.At
		s.WebhookSettings, s.Slot = data.WebhookSettings, data.Slot
		s.SentLeads = SubscribesToLeads(data.Events)
	case event.WebhookUpdated:
		if data.URL != s.URL {
			s.Since = fact.At
		}
		s.WebhookSettings = data.WebhookSettings
		s.SentLeads = s.SentLeads || SubscribesToLeads(data.Events)
	case event.WebhookDisabled:
		s.DisabledReason, s.DisabledAt, s.Replaying = data.Reason, fact.At, false
	case event.WebhookEnabled:
		s.DisabledReason, s.DisabledAt, s.Since = "", time.Time{}, fact.At
	case event.WebhookReplayed:
		s.Replays, s.Replaying = data.Generation, true
	case event.WebhookReplayEnded:
		s.Replaying = s.Replaying && s.Replays != data.Generation
	case event.WebhookDeleted:
		s.Deleted = true
	}
	return s
}

// Delete decides on the end of an endpoint of the account.
func (s State) Delete(account string) (event.WebhookDeleted, error) {
	return event.WebhookDeleted{}, s.ownedBy(account)
}

// Rotate decides on a new signing secret for an endpoint of the account.
func (s State) Rotate(account string, now time.Time) (event.WebhookRotated, error) {
	return event.WebhookRotated{PreviousUntil: now.Add(Overlap)}, s.ownedBy(account)
}

func (s State) ownedBy(account string) error {
	if !s.Live() || s.Account != account {
		return ErrNotFound
	}
	return nil
}
