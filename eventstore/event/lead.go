package event

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// LeadFields are what an arrival or a change by hand can set of a lead. In a fact that changes a lead, an empty field changes nothing.
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

// KeptArrival is which arrival a lead's fact comes from, when the arrival has a stream of its own: those by intakes, and those that
// were resubmitted. It is empty for others.
type KeptArrival struct {
	IntakeID   string    `json:"intakeId,omitzero"`
	ArrivalID  string    `json:"arrivalId,omitzero"`
	ReceivedAt time.Time `json:"receivedAt,omitzero"` // the fact may be later
}

// SeenAt returns when the person arrived, given the time of the fact.
func (a KeptArrival) SeenAt(fact time.Time) time.Time {
	if a.ReceivedAt.IsZero() {
		return fact
	}
	return a.ReceivedAt
}

// Campaign records which campaign a person came by, in the terms of the utm parameters of a page's address. It is no personal data: who
// makes a fact leaves out what could name a person.
type Campaign struct {
	UTMSource   string `json:"utmSource,omitzero"`
	UTMMedium   string `json:"utmMedium,omitzero"`
	UTMCampaign string `json:"utmCampaign,omitzero"`
	UTMID       string `json:"utmId,omitzero"`
}

// LeadCreated records that a new person arrived. All values are as decided at the time, with defaults filled in for stage,
// temperature and source, so that a later change of the account's settings does not change history.
type LeadCreated struct {
	ContactUID string `json:"contactUID"`
	LeadFields
	NameDerived bool                      `json:"nameDerived,omitzero"` // made of the email or phone; any real name replaces it
	Source      string                    `json:"source"`               // canonical
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero"`    // as given, source included
	IP          string                    `json:"ip,omitzero"`          // of the person, as given or from the connection
	UserAgent   string                    `json:"userAgent,omitzero"`   // likewise
	VisitorID   string                    `json:"visitorId,omitzero"`
	Visitor     string                    `json:"visitor,omitzero"` // the visitor's stream, which has no personal data
	Changed     []string                  `json:"changed,omitzero"` // names of the lead's fields that the arrival gave
	Campaign
	KeptArrival
}

// LeadMerged records that a known person arrived again. A field is set when the arrival has it and it counts; folding sets these
// fields.
type LeadMerged struct {
	Source    string `json:"source"`             // canonical
	NewSource bool   `json:"newSource,omitzero"` // the lead's history gains an entry
	LeadFields
	EmailHeldBy string                    `json:"emailHeldBy,omitzero"` // the arrival's email is that of this other lead, and stays there
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero"`
	IP          string                    `json:"ip,omitzero"`
	UserAgent   string                    `json:"userAgent,omitzero"`
	VisitorID   string                    `json:"visitorId,omitzero"`
	Visitor     string                    `json:"visitor,omitzero"` // the visitor's stream, which has no personal data
	Changed     []string                  `json:"changed,omitzero"` // names of the lead's fields whose value this changed
	Campaign
	KeptArrival
}

// LeadUpdated records that a user changed a lead by hand. A field is set when it was given; folding sets these fields.
type LeadUpdated struct {
	LeadFields
	RemovedFields []string `json:"removedFields,omitzero"` // keys of custom fields that went
	Changed       []string `json:"changed,omitzero"`       // names of the lead's fields whose value this changed
}

// LeadReleased records that a phone or email is no longer this lead's. Exactly one of the two is set.
type LeadReleased struct {
	Phone   string   `json:"phone,omitzero"`
	Email   string   `json:"email,omitzero"`
	Current string   `json:"current,omitzero"` // the lead's phone, or email, from here on; absent when it has none
	Name    string   `json:"name,omitzero"`    // derived again, if it was made of what was released
	Changed []string `json:"changed,omitzero"` // names of the lead's fields whose value this changed
}

// LeadJoinedInto ends the stream of a lead that was joined into another, the surviving lead, because both are the same person.
type LeadJoinedInto struct {
	Into string `json:"into"` // id of the other lead
}

// LeadJoined records that another lead, the source lead, is part of this one from here on. Fields that this lead has stay; those that
// it lacks, folding takes from the source lead.
type LeadJoined struct {
	From    string       `json:"from"`             // id of the other lead
	Joined  []string     `json:"joined,omitzero"`  // ids of those that were part of the other one before
	Was     LeadSnapshot `json:"was"`              // the source lead, as it was
	Changed []string     `json:"changed,omitzero"` // names of this lead's fields whose value this changed
	// OpportunityValue is what this lead takes of Was because it had none. It outlives the person, as other values do.
	OpportunityValue string `json:"opportunityValue,omitzero"`
}

// LeadSnapshot is all that is personal in LeadJoined: the source lead.
type LeadSnapshot struct {
	ContactUID string `json:"contactUID"`
	LeadFields
	NameDerived bool                      `json:"nameDerived,omitzero"`
	Phones      []string                  `json:"phones,omitzero"` // each that found it
	Emails      []string                  `json:"emails,omitzero"` // likewise
	Source      string                    `json:"source"`
	Sources     []SourceSnapshot          `json:"sources"`
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero"`
	VisitorIDs  []string                  `json:"visitorIds,omitzero"`
	CreatedAt   time.Time                 `json:"createdAt"`
}

// SourceSnapshot is an entry of a source history as it was.
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

// LeadRefused records that an arrival was answered with a conflict. It is on a stream of its own, changes no lead and contains no
// personal data.
type LeadRefused struct {
	Source string `json:"source"`
	Code   string `json:"code"`           // DUPLICATE_LEAD_SOURCE or DUPLICATE_LEAD_EMAIL
	LeadID string `json:"leadId"`         // the lead that is there
	Other  string `json:"other,omitzero"` // a second lead, when phone and email belong to two
}

// LeadErased records that a person is forgotten: the personal data in the events before it must no longer be read, and nothing
// follows it. It names what else has to be erased, so that an unfinished erasure can be finished although the values behind the
// names are gone.
type LeadErased struct {
	Leads    []string `json:"leads,omitzero"`    // ids of those that were part of this one
	Claims   []string `json:"claims,omitzero"`   // streams of the claims on all phones and emails that the lead had
	Visitors []string `json:"visitors,omitzero"` // streams of the visitors that the lead was linked with
	// KeyCommitments are of the keys that the personal data of the lead, and of those that were part of it, are sealed with.
	KeyCommitments []KeyCommitment `json:"keyCommitments,omitzero"`
}

// KeyCommitment is the hash of a key that is destroyed after it was written to the log. A key that is found later is this one if its
// hash is the same; the key cannot be computed from it.
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
