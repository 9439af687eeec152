package lead

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Codes of a refusal.
const (
	CodeDuplicateSource = "DUPLICATE_LEAD_SOURCE"
	CodeDuplicateEmail  = "DUPLICATE_LEAD_EMAIL"
)

// Refusal is the error of an arrival whose person is a lead already and whose source does not merge. The lead does not
// change.
type Refusal struct{ Fact event.LeadRefused }

func (r *Refusal) Error() string {
	if r.Fact.Code == CodeDuplicateEmail {
		return fmt.Sprintf("This email already belongs to lead %s", r.Fact.LeadID)
	}
	return fmt.Sprintf("Lead %s already has an arrival from source %s", r.Fact.LeadID, r.Fact.Source)
}

// NewIDs are unused ids for the lead, contact and opportunity that a decision may create.
type NewIDs struct{ Lead, Contact, Opportunity string }

// Decision is the outcome of an arrival: a fact for the stream of one lead, and which values that lead now owns.
type Decision struct {
	LeadID      string
	Merged      bool
	Fact        event.Data // LeadCreated or LeadMerged
	ClaimsPhone bool       // the arrival's phone was free
	ClaimsEmail bool
	Shared      claim.Kind // which contact of the arrival did not identify, because it is shared; empty: none
}

// Shared reports whether a phone or email has come with so many persons that it no longer identifies one: an email of a
// lead that has as many phones as the account's setting after, and a phone of a lead that has as many emails. Owner is
// the lead that has it, nil for none. 0 is never.
func Shared(kind claim.Kind, owner *State, after int) bool {
	if owner == nil || after == 0 {
		return false
	}
	others := owner.Phones
	if kind == claim.Phone {
		others = owner.Emails
	}
	return len(others) >= after
}

// shared returns which of the arrival's contacts is shared, if the other one is not and so can identify the person.
func (a Arrival) shared(after int, byPhone, byEmail *State) claim.Kind {
	if a.Phone == "" || a.Email == "" {
		return ""
	}
	phone, email := Shared(claim.Phone, byPhone, after), Shared(claim.Email, byEmail, after)
	switch {
	case phone && !email:
		return claim.Phone
	case email && !phone:
		return claim.Email
	}
	return ""
}

// Decide decides on an arrival. byPhone and byEmail are the live leads that have, or ever had, its phone and its email;
// nil when it is free. The error is a *Refusal, or field.Errors for rules that depend on the lead: the stage is not one
// of the account's, or the lead would exceed a limit. Of an arrival whose sender cannot correct it, the custom fields
// and metadata that exceed the limits of the lead are left out.
//
// The person is the lead with the phone, otherwise the lead with the email, otherwise a new lead. Self-service sources
// always merge. Of other sources, an arrival whose phone and email belong to two different leads is refused, a source
// that is new to the lead merges, and a curated source that the lead already has is refused. A shared contact finds no
// lead and is not claimed if the arrival has another one.
func Decide(a Arrival, rules Rules, byPhone, byEmail *State, ids NewIDs) (Decision, error) {
	shared := a.shared(rules.SharedAfter, byPhone, byEmail)
	switch shared {
	case claim.Phone:
		byPhone = nil
	case claim.Email:
		byEmail = nil
	}
	target := byPhone
	if target == nil {
		target = byEmail
	}
	if target == nil {
		return a.open(rules, ids, shared)
	}
	clash := byEmail != nil && byEmail.ID != target.ID
	known := target.HasSource(a.Source)
	if !isSelfService(a.Source) && !rules.MergeDuplicates && (clash || known && isCurated(a.Source)) {
		if err := a.badStatus(*target, rules); err != nil {
			return Decision{}, err // errors of the request take precedence over conflicts
		}
		if clash {
			return refuse(a, CodeDuplicateEmail, byEmail.ID, target.ID)
		}
		code := CodeDuplicateSource
		if byPhone == nil && a.Phone != "" && contact.FoldPhone(a.Phone) != contact.FoldPhone(target.Phone) {
			code = CodeDuplicateEmail
		}
		return refuse(a, code, target.ID, "")
	}
	heldBy := ""
	if clash {
		heldBy = byEmail.ID
	}
	merged, err := a.merge(*target, rules, ids, heldBy, shared)
	if err != nil {
		return Decision{}, err
	}
	merged.NewSource = !known
	merged.Changed = changes(*target, merged)
	return Decision{
		LeadID: target.ID, Merged: true, Fact: merged,
		ClaimsPhone: merged.Phone != "" && byPhone == nil,
		ClaimsEmail: merged.Email != "" && byEmail == nil,
		Shared:      shared,
	}, nil
}

func refuse(a Arrival, code, leadID, other string) (Decision, error) {
	return Decision{}, &Refusal{event.LeadRefused{Source: a.Source, Code: code, LeadID: leadID, Other: other}}
}

// open decides on a new lead. The fact has the defaults of missing values, so that a later change of a default does not
// affect it.
func (a Arrival) open(rules Rules, ids NewIDs, shared claim.Kind) (Decision, error) {
	if a.UnknownStatus != "" {
		return Decision{}, field.Errors{{Field: "status", Message: unknownStatus(rules.Stages)}}
	}
	created := event.LeadCreated{
		ContactUID: ids.Contact, LeadFields: a.LeadFields, Source: a.Source, Metadata: a.Metadata, IP: a.IP,
		UserAgent: a.UserAgent, VisitorID: a.VisitorID, ArrivalRef: a.Ref, Visitor: a.Visitor, Campaign: a.campaign(),
		Purposes: State{}.recorded(a.Consents, a.Ref.ReceivedAt),
		Changed: changes(State{}, event.LeadMerged{
			LeadFields: a.LeadFields, Metadata: a.Metadata, VisitorID: a.VisitorID,
		}),
		Shared: string(shared),
	}
	if created.Name == "" {
		created.Name, created.NameDerived = derivedName(a), true
	}
	if created.Status == "" {
		created.Status = rules.Stages[0]
	}
	if created.Temperature == "" {
		created.Temperature = defaultTemperature
	}
	if created.OpportunityValue != "" {
		created.OpportunityID = ids.Opportunity
	}
	return Decision{
		LeadID: ids.Lead, Fact: created,
		ClaimsPhone: a.Phone != "" && shared != claim.Phone, ClaimsEmail: a.Email != "" && shared != claim.Email,
		Shared: shared,
	}, nil
}

// derivedName is the name of a lead as long as no other is known.
func derivedName(a Arrival) string {
	if local, _, ok := strings.Cut(a.Email, "@"); ok {
		return local
	}
	return a.Phone
}

// Limits of one lead. They bound its state and the fact of its erasure, which names each of these.
const (
	MaxContacts = 1000 // phones that it has or ever had, and as many emails
	MaxVisitors = 1000 // that its state has; its events may link more
	MaxJoined   = 1000 // leads that are part of it
)

const tooManyContacts = "is one more than the 1000 that a lead can have: release others of this lead first"

// merge puts the arrival's values over the lead's: the latest value that is not empty wins. An email that another lead
// has stays with that lead, and a shared contact with its own. A visitor beyond the limit of the lead is not linked,
// rather than the arrival refused.
func (a Arrival) merge(
	target State, rules Rules, ids NewIDs, emailHeldBy string, shared claim.Kind,
) (event.LeadMerged, error) {
	var wrong field.Errors
	merged := event.LeadMerged{
		Source: a.Source, LeadFields: a.LeadFields, Metadata: a.Metadata, IP: a.IP, UserAgent: a.UserAgent,
		VisitorID: a.VisitorID, ArrivalRef: a.Ref, Visitor: a.Visitor, Campaign: a.campaign(), Shared: string(shared),
		Purposes: target.recorded(a.Consents, a.Ref.SeenAt(target.UpdatedAt)),
	}
	switch shared {
	case claim.Phone:
		merged.Phone = ""
	case claim.Email:
		merged.Email = ""
	}
	if emailHeldBy != "" {
		merged.Email, merged.EmailHeldBy = "", emailHeldBy
	}
	if len(with(target.Phones, contact.FoldPhone(merged.Phone))) > MaxContacts {
		wrong.Add("phone", tooManyContacts)
	}
	if len(with(target.Emails, merged.Email)) > MaxContacts {
		wrong.Add("email", tooManyContacts)
	}
	wrong = append(wrong, a.badStatus(target, rules)...)
	if a.UnknownStatus != "" {
		merged.Status = target.Status
	}
	if a.OpportunityValue != "" && target.OpportunityID == "" {
		merged.OpportunityID = ids.Opportunity
	}
	customFit := func(given map[string]jsontext.Value) bool {
		return len(union(target.CustomFields, given)) <= MaxCustomFields
	}
	metadataFit := func(given map[string]jsontext.Value) bool {
		return fits(overlay(target.Metadata, given, "", ""))
	}
	if rules.From == contact.Call {
		if !customFit(a.CustomFields) {
			wrong.Add("customFields", tooManyCustom)
		}
		if !metadataFit(a.Metadata) {
			wrong.Add("metadata", "must have at most 64 keys and 32 KiB, with those that the lead has")
		}
		return merged, wrong.Err()
	}
	merged.CustomFields = fitting(a.CustomFields, strings.Compare, customFit)
	merged.Metadata = fitting(a.Metadata, byRank, metadataFit)
	return merged, wrong.Err()
}

// fitting returns the members of an object that a lead can have beside its own, the first ones in an order.
func fitting(
	given map[string]jsontext.Value, order func(a, b string) int, fit func(map[string]jsontext.Value) bool,
) map[string]jsontext.Value {
	if fit(given) {
		return given
	}
	kept := map[string]jsontext.Value{}
	for _, name := range slices.SortedFunc(maps.Keys(given), order) {
		kept[name] = given[name]
		if !fit(kept) {
			delete(kept, name)
		}
	}
	return kept
}

// badStatus refuses a stage that the account does not have. A stage that was removed stays valid for a lead that is at
// it.
func (a Arrival) badStatus(target State, rules Rules) field.Errors {
	if _, its := account.Stage([]string{target.Status}, a.UnknownStatus); its || a.UnknownStatus == "" {
		return nil
	}
	return field.Errors{{Field: "status", Message: unknownStatus(rules.Stages)}}
}

func fits(metadata map[string]jsontext.Value) bool {
	size, keys := 0, 0
	for key, value := range metadata {
		if key == keyIP || key == keyUserAgent {
			continue
		}
		keys++
		size += len(key) + len(value)
	}
	return keys <= MaxMetadataKeys && size <= MaxMetadataBytes
}
