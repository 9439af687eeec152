// Package query answers what readers ask: which leads there are and where each came from, which tokens and endpoints an account
// has, and what happened to them. It changes nothing.
//
// Lists come from the views, which package projection maintains; the history of one lead or token is read from its stream. Every
// question is about one account, and what belongs to another is treated as if it did not exist.
//
// The types are those of the API's answers: their JSON is what callers see.
package query

import (
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
)

var (
	// ErrNotFound says that the account does not have what was asked for.
	ErrNotFound = errors.New("not found")
	// ErrCursor says that a cursor is not one that this list gave out.
	ErrCursor = errors.New("not a cursor of this list")
	// ErrBehind says that a view did not reach a position in time.
	ErrBehind = errors.New("view has not reached the position yet")
)

// Timestamp is a time as every answer writes it: UTC, ISO 8601, exactly three decimals. The zero time is null.
type Timestamp time.Time

// MarshalJSON writes the time.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return t.append(make([]byte, 0, 26)), nil
}

// Page asks for a part of a list. Limit is 1 to 200; Cursor is empty or the NextCursor of the part before.
type Page struct {
	Limit  int
	Cursor string
}

// List is a part of a list.
type List[T any] struct {
	Items      []T
	NextCursor string // empty at the end
}

// Lead is a lead as answers show it. Metadata is in the answers of GET alone.
type Lead struct {
	LeadID           string                    `json:"leadId"`
	ContactUID       string                    `json:"contactUID"`
	Name             string                    `json:"name"`
	Phone            string                    `json:"phone"`
	Email            string                    `json:"email"`
	Status           string                    `json:"status"`
	LeadTemperature  string                    `json:"leadTemperature"`
	OpportunityValue jsontext.Value            `json:"opportunityValue"` // a number, or null
	OpportunityID    *string                   `json:"opportunityId"`
	Source           string                    `json:"source"`
	CustomFields     map[string]jsontext.Value `json:"customFields"`
	Metadata         map[string]jsontext.Value `json:"metadata,omitzero"`
	Joined           []string                  `json:"joined,omitzero"`     // leads that are part of this one, in answers of GET
	JoinedInto       string                    `json:"joinedInto,omitzero"` // the lead that this one is part of, likewise
	CreatedAt        Timestamp                 `json:"createdAt"`
	UpdatedAt        Timestamp                 `json:"updatedAt"`
}

// NewLead returns a lead as the answer to a capture shows it, without metadata.
func NewLead(s lead.State) Lead {
	l := Lead{
		LeadID: s.ID, ContactUID: s.ContactUID, Name: s.Name, Phone: s.Phone, Email: s.Email,
		Status: s.Status, LeadTemperature: s.Temperature, OpportunityValue: jsontext.Value("null"),
		Source: s.Source, CustomFields: s.CustomFields,
		CreatedAt: Timestamp(s.CreatedAt), UpdatedAt: Timestamp(s.UpdatedAt),
	}
	if s.OpportunityValue != "" { // an opportunity has one, but of a lead that was never born no id
		id := s.OpportunityID // of its own: a pointer into the lead would keep all of it
		l.OpportunityID = &id
		l.OpportunityValue = jsontext.Value(s.OpportunityValue)
	}
	if l.CustomFields == nil {
		l.CustomFields = map[string]jsontext.Value{}
	}
	return l
}

// SourceEntry is one entry of a source history.
type SourceEntry struct {
	LeadID      string                    `json:"leadId"`
	Source      string                    `json:"source"`
	FirstSeenAt Timestamp                 `json:"firstSeenAt"`
	LastSeenAt  Timestamp                 `json:"lastSeenAt"`
	Arrivals    int                       `json:"arrivals"`
	Credential  Credential                `json:"credential"`
	Metadata    map[string]jsontext.Value `json:"metadata"` // as given
	IP          string                    `json:"ip"`
	UserAgent   string                    `json:"userAgent"`
	RequestID   string                    `json:"requestId"`
	Changed     []string                  `json:"changed"` // the lead's fields that the first arrival from here set
}

// Credential identifies the credential of a caller, without its value.
type Credential struct {
	Kind string `json:"kind"` // token or jwt
	ID   string `json:"id"`   // a token's id, or the JWT's subject
}

// SourceCount counts the arrivals from one source in one interval, by outcome.
type SourceCount struct {
	Source  string    `json:"source"`
	From    Timestamp `json:"from"`    // first moment of the interval
	Created int       `json:"created"` // arrivals that opened a lead: first touches
	Merged  int       `json:"merged"`  // arrivals that merged into a lead: later touches
	Refused int       `json:"refused"` // arrivals that were answered with a conflict
	// Won and Value are about the leads that this source opened in the interval: how many of them are in the stage won
	// now, whenever they came to it, and what these are worth together.
	Won   int            `json:"won"`
	Value jsontext.Value `json:"value"` // an exact number
}

// Event is one event of a stream.
type Event struct {
	ID        string              `json:"id"`
	Type      string              `json:"type"` // public: without version
	Revision  eventstore.Revision `json:"revision"`
	Position  eventstore.Position `json:"position"`
	At        Timestamp           `json:"at"`
	Actor     string              `json:"actor"`
	RequestID string              `json:"requestId"`
	Data      jsontext.Value      `json:"data"`
}

// Token is a token's record. It has neither the value nor its hash.
type Token struct {
	TokenID    string    `json:"tokenId"`
	Name       string    `json:"name"`
	Prefix     string    `json:"prefix"`
	Status     string    `json:"status"` // active, expired or deleted
	ExpiresAt  Timestamp `json:"expiresAt"`
	CreatedAt  Timestamp `json:"createdAt"`
	CreatedBy  string    `json:"createdBy"` // an actor
	RotatedAt  Timestamp `json:"rotatedAt"`
	DeletedAt  Timestamp `json:"deletedAt"`
	LastUsedAt Timestamp `json:"lastUsedAt"`
}

// TokenEvent is one event of a token, for those who audit. Data has no hash of a value.
type TokenEvent = audit.Entry

// Endpoint is a webhook endpoint's record, without its secret.
type Endpoint struct {
	WebhookID      string          `json:"webhookId"`
	URL            string          `json:"url"`
	Events         []string        `json:"events"`
	Description    string          `json:"description"`
	State          string          `json:"state"`          // enabled or disabled
	DisabledReason *string         `json:"disabledReason"` // owner, gone or failing
	DisabledAt     Timestamp       `json:"disabledAt"`
	CreatedAt      Timestamp       `json:"createdAt"`
	LastSuccessAt  Timestamp       `json:"lastSuccessAt"`
	LastFailureAt  Timestamp       `json:"lastFailureAt"`
	FailingSince   Timestamp       `json:"failingSince"` // the first failure after the last success
	Queued         int             `json:"queued"`       // deliveries still to be made; more than 10,000 are not counted
	Replay         *EndpointReplay `json:"replay"`       // the latest; null: there was none
}

// EndpointReplay is a request to send the events of a span of time to an endpoint again.
type EndpointReplay struct {
	Generation int       `json:"generation"` // the endpoint's first is 1
	State      string    `json:"state"`      // running, finished or failed
	Since      Timestamp `json:"since"`
	Until      Timestamp `json:"until"`      // null: up to the request
	Queued     int64     `json:"queued"`     // deliveries that it made
	FinishedAt Timestamp `json:"finishedAt"` // null: it is running
	Error      *string   `json:"error"`      // why it failed
}

// Account is an account's plan and settings.
type Account struct {
	AccountID string   `json:"accountId"`
	Name      string   `json:"name"`
	Features  []string `json:"features"`
	Stages    []string `json:"stages"`
	Region    string   `json:"region"`
	RateLimit *float64 `json:"rateLimit"` // null: the service's default
	RateBurst *int     `json:"rateBurst"`
	// TokensSeeLeads lets answers to API tokens show what earlier arrivals stored.
	TokensSeeLeads bool `json:"tokensSeeLeads"`
	// VisitorDays is how long a visitor whom no lead is linked with is remembered after the last activity.
	VisitorDays int `json:"visitorDays"`
	// JWTNotBefore is the time before which JWTs must not have been issued; null: they may be of any time.
	JWTNotBefore Timestamp `json:"jwtNotBefore"`
	CreatedAt    Timestamp `json:"createdAt"`
	UpdatedAt    Timestamp `json:"updatedAt"`
}

// LeadFilter selects leads. Empty fields select all.
type LeadFilter struct {
	Status          string // in any letter case
	Source          string // the first touch
	LeadTemperature string
	Q               string    // part of name, phone or email, in any letter case; a whole phone or email finds only who has it, if anybody has
	Region          string    // the account's, by which a phone in Q is read
	Phone           string    // E.164, as lead.ParsePhone makes it: the caller knows the account's region
	Email           string    // canonical, as lead.ParseEmail makes it
	CreatedSince    time.Time // inclusive
	CreatedUntil    time.Time // exclusive
}

// SourceFilter selects entries of the source history by when they were first seen. Empty fields select all.
type SourceFilter struct {
	Source string
	Since  time.Time // inclusive
	Until  time.Time // exclusive
}

// Intervals of a report. Days are UTC's, weeks begin on Monday.
const (
	Day   = "day"
	Week  = "week"
	Month = "month"
	Year  = "year"
)

// ReportFilter says what a report counts. It counts whole days: from the one that Since is in to the last one that begins before
// Until. The first and the last interval count only their days within these bounds.
type ReportFilter struct {
	Interval string // Day, Week, Month or Year
	Source   string
	Since    time.Time
	Until    time.Time
}

// TokenEventTypes returns the public names of the events in the audit trail.
func TokenEventTypes() []string {
	return []string{"token.created", "token.rotated", "token.expiring", "token.deleted", "token.refused"}
}

// AuditFilter selects token events. Empty fields select all.
type AuditFilter struct {
	TokenID string
	Type    string    // public name, such as token.rotated
	Since   time.Time // inclusive
	Until   time.Time // exclusive
}
