package event

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// LeadFields are the fields of a lead that an arrival or a manual change can set. In a fact that changes a lead, an
// empty field changes nothing.
type LeadFields struct {
	Name             string                    `json:"name,omitzero" personal:"yes"`
	Phone            string                    `json:"phone,omitzero" personal:"yes"` // E.164
	Email            string                    `json:"email,omitzero" personal:"yes"` // canonical
	Status           string                    `json:"status,omitzero" personal:"no"`
	Temperature      string                    `json:"leadTemperature,omitzero" personal:"no"`
	OpportunityID    string                    `json:"opportunityId,omitzero" personal:"no"`    // set when it opens
	OpportunityValue string                    `json:"opportunityValue,omitzero" personal:"no"` // "0" is a value
	CustomFields     map[string]jsontext.Value `json:"customFields,omitzero" personal:"yes"`
}

// ArrivalRef names the arrival that caused a lead's fact, if the arrival has a stream of its own: arrivals at intakes
// and resubmitted ones. It is empty for others.
type ArrivalRef struct {
	IntakeID   string    `json:"intakeId,omitzero" personal:"no"`
	ArrivalID  string    `json:"arrivalId,omitzero" personal:"no"`
	ReceivedAt time.Time `json:"receivedAt,omitzero" personal:"no"` // may be earlier than the fact
}

// SeenAt returns when the person arrived, given the time of the fact.
func (a ArrivalRef) SeenAt(fact time.Time) time.Time {
	if a.ReceivedAt.IsZero() {
		return fact
	}
	return a.ReceivedAt
}

// Campaign is the campaign of an arrival or a visit, in the terms of the utm parameters. It has no personal data: the
// creator of a fact leaves out values that could name a person.
type Campaign struct {
	UTMSource   string `json:"utmSource,omitzero" personal:"no"`
	UTMMedium   string `json:"utmMedium,omitzero" personal:"no"`
	UTMCampaign string `json:"utmCampaign,omitzero" personal:"no"`
	UTMID       string `json:"utmId,omitzero" personal:"no"`
}

// LeadCreated records that a new person arrived. All values are as decided at the time, with defaults filled in for
// stage, temperature and source, so that a later change of the account's settings does not change history.
type LeadCreated struct {
	ContactUID string `json:"contactUID" personal:"no"`
	LeadFields
	NameDerived bool                      `json:"nameDerived,omitzero" personal:"no"` // any real name replaces it
	Source      string                    `json:"source" personal:"no"`               // canonical
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero" personal:"yes"`   // as given, source included
	IP          string                    `json:"ip,omitzero" personal:"yes"`         // as given, or of the connection
	UserAgent   string                    `json:"userAgent,omitzero" personal:"yes"`  // likewise
	VisitorID   string                    `json:"visitorId,omitzero" personal:"yes"`
	Visitor     string                    `json:"visitor,omitzero" personal:"no"` // the visitor's stream
	Changed     []string                  `json:"changed,omitzero" personal:"no"` // names of fields in the arrival
	// phone or email: the lead shows the arrival's, but another lead has it
	Shared string `json:"shared,omitzero" personal:"no"`
	Purposes
	Campaign
	ArrivalRef
}

// LeadMerged records that a known person arrived again. A field is set if the arrival's value is accepted; folding sets
// these fields.
type LeadMerged struct {
	Source    string `json:"source" personal:"no"`             // canonical
	NewSource bool   `json:"newSource,omitzero" personal:"no"` // the lead's history gains an entry
	LeadFields
	EmailHeldBy string                    `json:"emailHeldBy,omitzero" personal:"no"` // the other lead that keeps it
	Metadata    map[string]jsontext.Value `json:"metadata,omitzero" personal:"yes"`
	IP          string                    `json:"ip,omitzero" personal:"yes"`
	UserAgent   string                    `json:"userAgent,omitzero" personal:"yes"`
	VisitorID   string                    `json:"visitorId,omitzero" personal:"yes"`
	Visitor     string                    `json:"visitor,omitzero" personal:"no"` // the visitor's stream
	Changed     []string                  `json:"changed,omitzero" personal:"no"` // names of changed fields
	// phone or email: left out, because another lead has it
	Shared string `json:"shared,omitzero" personal:"no"`
	Purposes
	Campaign
	ArrivalRef
}

// Purposes are the consents of a fact, by purpose. Their words are personal: they are in the metadata of the arrival,
// as given.
type Purposes struct {
	Consents map[string]bool `json:"consents,omitzero" personal:"no"` // whether it is granted; the last of each
	// ChangedConsents are the purposes whose latest consent of the lead became another one. A lead that was split has
	// none any more of those that Consents lacks.
	ChangedConsents []string `json:"changedConsents,omitzero" personal:"no"`
}

// PurposesOf returns the consents of a fact.
func PurposesOf(data Data) Purposes {
	switch data := data.(type) {
	case LeadCreated:
		return data.Purposes
	case LeadMerged:
		return data.Purposes
	case LeadConsented:
		return data.Purposes
	case LeadJoined:
		return data.Purposes
	case LeadSplit:
		return data.Purposes
	}
	return Purposes{}
}

// LeadConsented records consents that did not come with an arrival.
type LeadConsented struct {
	Purposes
	Given jsontext.Value `json:"given" personal:"yes"` // with the words, in the form of metadata.consent
}

// ConsentState is the latest consent of a purpose.
type ConsentState struct {
	Granted bool      `json:"granted"`
	At      time.Time `json:"at"`
	EventID string    `json:"eventId"`        // of the event that recorded it
	Words   string    `json:"words,omitzero"` // hash of all that was given
}

// LeadUpdated records that a user changed a lead manually. It has the fields that were given; folding sets these
// fields.
type LeadUpdated struct {
	LeadFields
	RemovedFields []string `json:"removedFields,omitzero" personal:"yes"` // keys of removed custom fields
	Changed       []string `json:"changed,omitzero" personal:"no"`        // names of changed fields
}

// LeadReleased records that a lead no longer has a phone or email. Exactly one of the two is set.
type LeadReleased struct {
	Field   string   `json:"field" personal:"no"` // phone or email; known after an erasure too
	Phone   string   `json:"phone,omitzero" personal:"yes"`
	Email   string   `json:"email,omitzero" personal:"yes"`
	Current string   `json:"current,omitzero" personal:"yes"` // the lead's new phone, or email; absent when it has none
	Name    string   `json:"name,omitzero" personal:"yes"`    // the new name, if it was derived
	Changed []string `json:"changed,omitzero" personal:"no"`  // names of changed fields
}

// LeadJoinedInto ends the stream of a lead that was joined into another, the surviving lead, because both are the same
// person.
type LeadJoinedInto struct {
	Into string `json:"into" personal:"no"` // id of the other lead
}

// LeadJoined records that another lead, the source lead, was joined into this one. This lead keeps the fields that it
// has; folding takes fields that it lacks from the source lead.
type LeadJoined struct {
	From     string        `json:"from" personal:"no"`             // id of the other lead
	Joined   []string      `json:"joined,omitzero" personal:"no"`  // ids of leads joined into the other before
	Was      LeadSnapshot  `json:"was" personal:"yes"`             // the source lead at that time
	Changed  []string      `json:"changed,omitzero" personal:"no"` // names of changed fields
	Origins  []SplitOrigin `json:"origins,omitzero" personal:"no"` // where else data of the source lead are
	Purposes               // those of the source lead that count from now on
	// OpportunityValue is the value that this lead takes from Was because it had none. It is kept after an erasure,
	// like other values.
	OpportunityValue string `json:"opportunityValue,omitzero" personal:"no"`
}

// LeadSplit records that a lead was two persons, or that a join was wrong. It is on the streams of both leads, and
// folding replaces each by Is. It is sealed with a new key, so that the earlier events of the lead that stays can be
// erased with the lead that left.
type LeadSplit struct {
	// id of the lead that left; on the stream of the one that stays
	Into string `json:"into,omitzero" personal:"no"`
	// id of the lead that stays; on the stream of the one that left
	From string `json:"from,omitzero" personal:"no"`
	// a join was undone: the lead that left had been a lead before
	Undone  bool     `json:"undone,omitzero" personal:"no"`
	Touches []string `json:"touches" personal:"no"` // ids of the events of the arrivals that left
	// Arrivals are the ids of those of the arrivals that have streams of their own.
	Arrivals []string `json:"arrivals,omitzero" personal:"no"`
	// ids of the leads that are part of this one from now on
	Joined  []string      `json:"joined,omitzero" personal:"no"`
	Origins []SplitOrigin `json:"origins,omitzero" personal:"no"` // where else data of this lead are
	Status  string        `json:"status" personal:"no"`
	// when the lead came to this stage, by the facts that it has
	StatusAt         time.Time    `json:"statusAt" personal:"no"`
	OpportunityValue string       `json:"opportunityValue,omitzero" personal:"no"`
	Purposes                      // those that the split changed
	Is               LeadSnapshot `json:"is" personal:"yes"` // the lead from now on
}

// SplitOrigin is a part of the stream of another lead that has data of a lead that left it.
type SplitOrigin struct {
	LeadID string `json:"leadId"`
	Before int64  `json:"before"` // revision of the first event that has none
}

// LeadSnapshot is the personal data of a lead at the time of a join or split.
type LeadSnapshot struct {
	ContactUID string `json:"contactUID"`
	LeadFields
	NameDerived bool     `json:"nameDerived,omitzero"`
	Phones      []string `json:"phones,omitzero"` // all that are claimed for it
	Emails      []string `json:"emails,omitzero"` // likewise
	// when those came that did not come at the creation
	FirstSeen  map[string]time.Time      `json:"firstSeen,omitzero"`
	Source     string                    `json:"source"`
	Sources    []SourceSnapshot          `json:"sources"`
	Metadata   map[string]jsontext.Value `json:"metadata,omitzero"`
	VisitorIDs []string                  `json:"visitorIds,omitzero"`
	Consents   map[string]ConsentState   `json:"consents,omitzero"` // by purpose
	CreatedAt  time.Time                 `json:"createdAt"`
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

// LeadRefused records that an arrival was refused with a conflict. It is on a stream of its own, changes no lead and
// contains no personal data.
type LeadRefused struct {
	Source string `json:"source" personal:"no"`
	Code   string `json:"code" personal:"no"`           // DUPLICATE_LEAD_SOURCE or DUPLICATE_LEAD_EMAIL
	LeadID string `json:"leadId" personal:"no"`         // the existing lead
	Other  string `json:"other,omitzero" personal:"no"` // a second lead, if phone and email belong to different leads
}

// LeadErased records that a person is erased: the personal data in earlier events must no longer be read, and no event
// follows. It names everything else to erase, so that an interrupted erasure can be finished although the values behind
// the names are gone.
type LeadErased struct {
	Leads    []string `json:"leads,omitzero" personal:"no"`    // ids of leads that were joined into this one
	Claims   []string `json:"claims,omitzero" personal:"no"`   // streams of its claims
	Visitors []string `json:"visitors,omitzero" personal:"no"` // streams of the visitors linked with the lead
	// events of other leads with data of this one: their keys are destroyed too
	Origins []SplitOrigin `json:"origins,omitzero" personal:"no"`
	// KeyCommitments are the hashes of the keys that seal the personal data of the lead, of those that were joined into
	// it, and of the origins.
	KeyCommitments []KeyCommitment `json:"keyCommitments,omitzero" personal:"no"`
}

// KeyCommitment is the hash of a key. The key is destroyed after the hash was written to the log. A key that is found
// later is the same if its hash is; the key cannot be computed from the hash.
type KeyCommitment struct {
	LeadID     string `json:"leadId"`
	Commitment string `json:"commitment"` // SHA-256, in hexadecimal
}

func (LeadCreated) EventType() string    { return "lead.created.v1" }
func (LeadMerged) EventType() string     { return "lead.merged.v1" }
func (LeadUpdated) EventType() string    { return "lead.updated.v1" }
func (LeadReleased) EventType() string   { return "lead.released.v1" }
func (LeadConsented) EventType() string  { return "lead.consented.v1" }
func (LeadJoinedInto) EventType() string { return "lead.joinedinto.v1" }
func (LeadJoined) EventType() string     { return "lead.joined.v1" }
func (LeadSplit) EventType() string      { return "lead.split.v1" }
func (LeadRefused) EventType() string    { return "lead.refused.v1" }
func (LeadErased) EventType() string     { return "lead.erased.v1" }
