package lead

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/eventstore/event"
)

// fields are the texts of event.LeadFields that a caller can set, in the order in which answers show them. Bodies,
// updates, merges, mappings and imports use this list.
var fields = []struct {
	name   string // in JSON
	of     func(*event.LeadFields) *string
	read   func(*reader, Rules) string // its value in a body, normalized; nil when it depends on the lead too
	byHand bool                        // an update can change it
}{
	{"name", func(f *event.LeadFields) *string { return &f.Name }, (*reader).name, true},
	{"phone", func(f *event.LeadFields) *string { return &f.Phone }, (*reader).phone, false},
	{"email", func(f *event.LeadFields) *string { return &f.Email }, (*reader).email, false},
	{"status", func(f *event.LeadFields) *string { return &f.Status }, nil, true},
	{"leadTemperature", func(f *event.LeadFields) *string { return &f.Temperature }, (*reader).temperature, true},
	{
		"opportunityValue", func(f *event.LeadFields) *string { return &f.OpportunityValue },
		(*reader).opportunityValue, true,
	},
}

// FieldNames returns the names of the fields of a lead that an arrival can set, besides customFields and metadata.
func FieldNames() []string {
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.name
	}
	return names
}

// EachField yields the names and values of the fields that are set.
func EachField(of event.LeadFields) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for _, field := range fields {
			if value := *field.of(&of); value != "" && !yield(field.name, value) {
				return
			}
		}
	}
}

// set puts values over the lead's: the latest that is not empty wins.
func (s *State) set(latest *event.LeadFields) {
	if latest.Name != "" {
		s.NameDerived = false
	}
	for _, field := range fields {
		replace(field.of(&s.LeadFields), *field.of(latest))
	}
	replace(&s.OpportunityID, latest.OpportunityID)
	s.CustomFields = union(s.CustomFields, latest.CustomFields)
}

func replace(field *string, value string) {
	if value != "" {
		*field = value
	}
}

// changes returns the names of the fields of the lead that a merge changes.
func changes(s State, m event.LeadMerged) []string {
	var names []string // nil for none, which an event leaves out
	note := func(changed bool, name string) {
		if changed && names == nil {
			names = make([]string, 0, 8)
		}
		if changed {
			names = append(names, name)
		}
	}
	for _, field := range fields {
		old, latest := *field.of(&s.LeadFields), *field.of(&m.LeadFields)
		note(latest != "" && (latest != old || s.NameDerived && field.name == "name"), field.name)
	}
	note(differ(s.CustomFields, m.CustomFields), "customFields")
	note(overlays(s.Metadata, m.Metadata), "metadata")
	note(len(withVisitor(s.VisitorIDs, m.VisitorID)) > len(s.VisitorIDs), "visitorId")
	return names
}

// Change is a field of a lead that an event gave another value. Old or New is empty when there was, or is, none. A
// member of customFields or metadata has a Key, and its values are JSON.
type Change struct {
	Field, Key string
	Old, New   string
}

// Changes lists the differences between two states of a lead.
func Changes(before, after *State) (list []Change) {
	for _, field := range fields {
		if old, latest := *field.of(&before.LeadFields), *field.of(&after.LeadFields); old != latest {
			list = append(list, Change{Field: field.name, Old: old, New: latest})
		}
	}
	list = append(list, memberChanges("customFields", before.CustomFields, after.CustomFields)...)
	return append(list, memberChanges("metadata", before.Metadata, after.Metadata)...)
}

func memberChanges(field string, before, after map[string]jsontext.Value) (list []Change) {
	for key, old := range before {
		if string(old) != string(after[key]) {
			list = append(list, Change{field, key, string(old), string(after[key])})
		}
	}
	for key, latest := range after {
		if _, had := before[key]; !had {
			list = append(list, Change{field, key, "", string(latest)})
		}
	}
	slices.SortFunc(list, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

// Record is a lead as answers and webhooks show it.
type Record struct {
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
	CustomFields     map[string]jsontext.Value `json:"customFields,omitzero"`
	Metadata         map[string]jsontext.Value `json:"metadata,omitzero"` // not set by Record
}

// Record returns the lead's record, without metadata.
func (s *State) Record() Record {
	r := Record{
		LeadID: s.ID, ContactUID: s.ContactUID, Name: s.Name, Phone: s.Phone, Email: s.Email, Status: s.Status,
		LeadTemperature: s.Temperature, OpportunityValue: jsontext.Value("null"), Source: s.Source,
		CustomFields: s.CustomFields,
	}
	if s.OpportunityValue != "" { // with a dry run it may have no id
		id := s.OpportunityID // a copy: a pointer into the lead would keep all of it
		r.OpportunityID, r.OpportunityValue = &id, jsontext.Value(s.OpportunityValue)
	}
	if r.CustomFields == nil {
		r.CustomFields = map[string]jsontext.Value{}
	}
	return r
}

// copyOnWrite is a map that is copied only when a member changes, because most arrivals of a known person change none.
type copyOnWrite struct {
	members map[string]jsontext.Value
	own     bool // a copy, or new
}

func (l *copyOnWrite) put(key string, value jsontext.Value) {
	if was, known := l.members[key]; known && string(was) == string(value) {
		return
	}
	if !l.own {
		if l.members = maps.Clone(l.members); l.members == nil {
			l.members = map[string]jsontext.Value{}
		}
		l.own = true
	}
	l.members[key] = value
}

func union(old, latest map[string]jsontext.Value) map[string]jsontext.Value {
	l := copyOnWrite{members: old}
	for key, value := range latest {
		l.put(key, value)
	}
	return l.members
}

func without(fields map[string]jsontext.Value, removed []string) map[string]jsontext.Value {
	if len(removed) == 0 {
		return fields
	}
	left := maps.Clone(fields)
	for _, key := range removed {
		delete(left, key)
	}
	return left
}

// differ reports whether putting the latest values over the old ones changes anything.
func differ(old, latest map[string]jsontext.Value) bool {
	for key, value := range latest {
		if was, known := old[key]; !known || string(was) != string(value) {
			return true
		}
	}
	return false
}

func sameValues(a, b map[string]jsontext.Value) bool {
	return maps.EqualFunc(a, b, func(x, y jsontext.Value) bool { return string(x) == string(y) })
}
