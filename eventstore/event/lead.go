package event

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// LeadFields are the fields of a lead that an arrival or a manual change can set. In a fact that changes a lead, an empty field changes
// nothing.
type LeadFields struct {
	Name             string                    `json:"name,omitzero"`
	Phone            string                    `json:"phone,omitzero"` // E.164
	Email            string                    `json:"email,omitzero"` // canonical
	Status           string                    `json:"status,omitzero"`
	Temperature      string                    `json:"leadTemperature,omitzero"`
	OpportunityID    string                    `json:"opportunityId,omitzero"`    // set when the opportunity opens
	OpportunityValue string                    `json:"opportunityValue,omitzero"` // exact decimal; "0" is a value
	CustomFields     map[string]jsontext.Value `json:"customFields,omitzero"`
}

// KeptArrival names the arrival that caused a lead's fact, if the arrival has a stream of its own: arrivals at intakes and resubmitted
// ones. It is empty for others.
type KeptArrival struct {
	IntakeID   string    `json:"intakeId,omitzero"`
	ArrivalID  string    `json:"arrivalId,omitzero"`
	ReceivedAt time.Time `json:"receivedAt,omitzero"` // may be earlier than the fact
}

// SeenAt returns when the person arrived, given the time of the fact.
func (a KeptArrival) SeenAt(fact time.Time) time.Time {
	if a.ReceivedAt.IsZero() {
		return fact
	}
	return a.ReceivedAt
}

// Campaign is the campaign of an arrival or a visit, in the terms of the utm parameters. It has no personal data: the creator of a fact
// leaves out values that could name a person.
type Campaign struct {
	UTMSource   string `json:"utmSource,omitzero"`
	UTMMedium   string `json:"utmMedium,omitzero"`
	UTMCampaign string `json:"utmCampaign,omitzero"`
	UTMID       string `json:"utmId,omitzero"`
}

// LeadCreated records that a new person arrived. All values are as decided at the time, with defaults filled in for stage, temperature and
// source, so that a later change of the account's settings does not change history.
type LeadCreated struct {
	ContactUID string `json:"contactUID"`
	LeadFields
	NameDerived bool                      `json:"nameDerived,omitzero"` // derived from the email or phone; any real name replaces it
	Source      string                    `json:"source"`               // canonical
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero"`    // as given, source included
	IP          string                    `json:"ip,omitzero"`          // of the person, as given or from the connection
	UserAgent   string                    `json:"userAgent,omitzero"`   // likewise
	VisitorID   string                    `json:"visitorId,omitzero"`
	Visitor     string                    `json:"visitor,omitzero"` // the visitor's stream, which has no personal data
	Changed     []string                  `json:"changed,omitzero"` // names of the lead's fields in the arrival
	Campaign
	KeptArrival
}

// LeadMerged records that a known person arrived again. A field is set if the arrival's value is accepted; folding sets these fields.
type LeadMerged struct {
	Source    string `json:"source"`             // canonical
	NewSource bool   `json:"newSource,omitzero"` // the lead's history gains an entry
	LeadFields
	EmailHeldBy string                    `json:"emailHeldBy,omitzero"` // another lead holds the arrival's email, and keeps it
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero"`
	IP          string                    `json:"ip,omitzero"`
	UserAgent   string                    `json:"userAgent,omitzero"`
	VisitorID   string                    `json:"visitorId,omitzero"`
	Visitor     string                    `json:"visitor,omitzero"` // the visitor's stream, which has no personal data
	Changed     []string                  `json:"changed,omitzero"` // names of the lead's fields whose value this changed
	Campaign
	KeptArrival
}

// LeadUpdated records that a user changed a lead manually. It has the fields that were given; folding sets these fields.
type LeadUpdated struct {
	LeadFields
	RemovedFields []string `json:"removedFields,omitzero"` // keys of removed custom fields
	Changed       []string `json:"changed,omitzero"`       // names of the lead's fields whose value this changed
}

// LeadReleased records that a lead no longer has a phone or email. Exactly one of the two is set.
type LeadReleased struct {
	Field   string   `json:"field"` // phone or email; known after an erasure too
	Phone   string   `json:"phone,omitzero"`
	Email   string   `json:"email,omitzero"`
	Current string   `json:"current,omitzero"` // the lead's new phone, or email; absent when it has none
	Name    string   `json:"name,omitzero"`    // the new derived name, if the name was derived from the released value
	Changed []string `json:"changed,omitzero"` // names of the lead's fields whose value this changed
}

// LeadJoinedInto ends the stream of a lead that was joined into another, the surviving lead, because both are the same person.
type LeadJoinedInto struct {
	Into string `json:"into"` // id of the other lead
}

// LeadJoined records that another lead, the source lead, was joined into this one. This lead keeps the fields that it has; folding takes
// fields that it lacks from the source lead.
type LeadJoined struct {
	From    string       `json:"from"`             // id of the other lead
	Joined  []string     `json:"joined,omitzero"`  // ids of leads that were joined into the other one before
	Was     LeadSnapshot `json:"was"`              // the source lead at that time
	Changed []string     `json:"changed,omitzero"` // names of this lead's fields whose value this changed
	// OpportunityValue is the value that this lead takes from Was because it had none. It is kept after an erasure, like other values.
	OpportunityValue string `json:"opportunityValue,omitzero"`
}

// LeadSnapshot is the personal data of LeadJoined: the source lead.
type LeadSnapshot struct {
	ContactUID string `json:"contactUID"`
	LeadFields
	NameDerived bool                      `json:"nameDerived,omitzero"`
	Phones      []string                  `json:"phones,omitzero"` // all that are claimed for it
	Emails      []string                  `json:"emails,omitzero"` // likewise
	Source      string                    `json:"source"`
	Sources     []SourceSnapshot          `json:"sources"`
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero"`
	VisitorIDs  []string                  `json:"visitorIds,omitzero"`
	CreatedAt   time.Time                 `json:"createdAt"`
}

// SourceSnapshot is an entry of a source history at the time of a join.
type SourceSnapshot struct {
	Source      string                    `json:"source"`
	FirstSeenAt time.Time                 `json:"firstSeenAt"`
	LastSeenAt  time.Time                 `json:"lastSeenAt"`
	Arrivals    int                       `json:"arrivals"`
	Credential  string                    `json:"credential"`
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero"`
	IP          string                    `json:"ip,omitzero"`
	UserAgent   string                    `json:"userAgent,omitzero"`
	RequestID   string                    `json:"requestId"`
	Changed     []string                  `json:"changed,omitzero"`
}

// LeadRefused records that an arrival was refused with a conflict. It is on a stream of its own, changes no lead and contains no personal
// data.
type LeadRefused struct {
	Source string `json:"source"`
	Code   string `json:"code"`           // DUPLICATE_LEAD_SOURCE or DUPLICATE_LEAD_EMAIL
	LeadID string `json:"leadId"`         // the existing lead
	Other  string `json:"other,omitzero"` // a second lead, if phone and email belong to different leads
}

// LeadErased records that a person is erased: the personal data in earlier events must no longer be read, and no event follows. It names
// everything else to erase, so that an interrupted erasure can be finished although the values behind the names are gone.
type LeadErased struct {
	Leads    []string `json:"leads,omitzero"`    // ids of leads that were joined into this one
	Claims   []string `json:"claims,omitzero"`   // streams of the claims on all phones and emails of the lead
	Visitors []string `json:"visitors,omitzero"` // streams of the visitors linked with the lead
	// KeyCommitments are the hashes of the keys that seal the personal data of the lead and of those that were joined into it.
	KeyCommitments []KeyCommitment `json:"keyCommitments,omitzero"`
}

// KeyCommitment is the hash of a key. The key is destroyed after the hash was written to the log. A key that is found later is the same if
// its hash is; the key cannot be computed from the hash.
type KeyCommitment struct {
	LeadID     string `json:"leadId"`
	Commitment string `json:"commitment"` // SHA-256, in hexadecimal
}

func (LeadCreated) EventType() string    { return "lead.created.v1" }
func (LeadMerged) EventType() string     { return "lead.merged.v1" }
func (LeadUpdated) EventType() string    { return "lead.updated.v1" }
func (LeadReleased) EventType() string   { return "lead.released.v1" }
func (LeadJoinedInto) EventType() string { return "lead.joinedinto.v1" }
func (LeadJoined) EventType() string     { return "lead.joined.v1" }
func (LeadRefused) EventType() string    { return "lead.refused.v1" }
func (LeadErased) EventType() string     { return "lead.erased.v1" }
