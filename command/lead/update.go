package lead

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrNotFound means that there is no such lead, or that it is another account's.
var ErrNotFound = errors.New("no such lead")

// Update decides on a change by hand: the values of a body replace those of the lead. A field that is missing or empty
// changes nothing; a custom field that is null is removed. What the service sets is ignored, because a lead may be sent
// back as it was answered; any other member is an error. Opportunity is the id of the opportunity, if the change opens
// one. When nothing changes, Changed is empty.
//
// The error is ErrNotFound, a *JoinedError or field.Errors.
func (s State) Update(
	account string, body map[string]jsontext.Value, rules Rules, opportunity string,
) (event.LeadUpdated, error) {
	if err := s.Present(account); err != nil {
		return event.LeadUpdated{}, err
	}
	r := reader{body: changeable(body)}
	var updated event.LeadUpdated
	for _, field := range fields {
		if field.byHand && field.read != nil {
			*field.of(&updated.LeadFields) = field.read(&r, rules)
		}
	}
	updated.Status = r.stage(s, rules)
	if updated.OpportunityValue != "" && s.OpportunityID == "" {
		updated.OpportunityID = opportunity
	}
	updated.CustomFields, updated.RemovedFields = r.customChanges(s)
	for _, field := range fields {
		if !field.byHand && !empty(body[field.name]) {
			r.wrong.Add(field.name, "can only be changed by a capture")
		}
	}
	var unknown field.Errors
	field.Only(&unknown, "", body, slices.Concat(changeableNames, FieldNames(), serviceNames, shownNames)...)
	for _, one := range unknown {
		r.wrong.Add(one.Field, one.Message+"; a custom field goes into customFields")
	}
	// An empty object is valid, and changes nothing. A missing body, and an object without any of these members, are
	// errors.
	if empty := body != nil && len(body) == 0; !empty && len(r.body) == 0 && r.wrong == nil {
		r.wrong.Add("body",
			"must have at least one of "+strings.Join(changeableNames[:len(changeableNames)-1], ", ")+" and customFields")
	}
	updated.Changed = s.changedBy(updated)
	return updated, r.wrong.Err()
}

// stage reads a status: a stage of the account, or the lead's present one, which the account may have removed.
func (r *reader) stage(s State, rules Rules) string {
	known, unknown := r.status(rules.Stages)
	if unknown == "" {
		return known
	}
	if its, is := account.Stage([]string{s.Status}, unknown); is {
		return its
	}
	r.wrong.Add("status", unknownStatus(rules.Stages))
	return ""
}

// customChanges reads which custom fields are set and which are removed.
func (r *reader) customChanges(s State) (set map[string]jsontext.Value, removed []string) {
	const key = "customFields"
	if !r.present(key) {
		return nil, nil
	}
	members, err := Members(r.body[key])
	if err != nil {
		r.wrong.Add(key, "must be an object")
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if _, has := s.CustomFields[name]; has && members[name].Kind() == 'n' {
			removed = append(removed, name)
		}
	}
	r.custom(key+".", members)
	after := without(union(s.CustomFields, members), removed)
	if len(after) > MaxCustomFields {
		r.wrong.Add(key, tooManyCustom)
	}
	if !fitTogether(members) {
		r.wrong.Add(key, "must be at most 700 KiB in total")
	}
	if len(members) == 0 {
		return nil, removed
	}
	return members, removed
}

// changedBy returns the names of the fields of the lead that an update changes.
func (s State) changedBy(u event.LeadUpdated) []string {
	names := changes(s, event.LeadMerged{LeadFields: u.LeadFields})
	if len(u.RemovedFields) > 0 && !slices.Contains(names, "customFields") {
		names = append(names, "customFields")
	}
	return names
}

// changeableNames are the members of a body that an update can change.
var changeableNames = func() (names []string) {
	for _, field := range fields {
		if field.byHand {
			names = append(names, field.name)
		}
	}
	return append(names, "customFields")
}()

// shownNames are the members that only the answer of a GET has, except metadata, which only a capture changes.
var shownNames = []string{"joined", "joinedInto", "contacts", "consents"}

// changeable returns these members of a body. Aliases are for captures only.
func changeable(body map[string]jsontext.Value) map[string]jsontext.Value {
	members := make(map[string]jsontext.Value, len(changeableNames))
	for _, name := range changeableNames {
		if value, given := body[name]; given {
			members[name] = value
		}
	}
	return members
}
