package lead

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// unlessIgnored returns a phone or email, or nothing if it is on the account's list.
func (r *reader) unlessIgnored(key, value string, ignored bool) string {
	if !ignored {
		return value
	}
	r.ignored = append(r.ignored, key)
	r.warnings.Add(key, field.IgnoredContact, "is on the account's list of ignored contacts, and was taken as absent")
	return ""
}

// warnSource warns of a source that is given but unknown.
func (r *reader) warnSource(given jsontext.Value) {
	if name, ok := text(given); !empty(given) && !(ok && Canonical(name)) {
		r.warnings.Add("metadata."+keySource, field.UnknownSource,
			"was stored as "+DefaultSource+", because it is none of "+strings.Join(CanonicalSources(), ", "))
	}
}

// warnContacts warns of custom fields that look like the phone or email that the arrival lacks.
func (r *reader) warnContacts(a Arrival, rules Rules) {
	if a.Phone != "" && a.Email != "" || len(a.CustomFields) == 0 || r.wrong != nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(a.CustomFields)) {
		named, _ := contact.FieldOf(key)
		value := Scalar(a.CustomFields[key])
		switch {
		case a.Phone == "" && (named.Kind() == contact.FieldPhone || isPhone(value, rules.Region)):
			r.warnings.Add(r.pathOf(key), field.ContactInCustomField,
				"looks like the phone, which is missing, and was stored as a custom field; send it as phone")
		case a.Email == "" && (named.Kind() == contact.FieldEmail || isEmail(value)):
			r.warnings.Add(r.pathOf(key), field.ContactInCustomField,
				"looks like the email, which is missing, and was stored as a custom field; send it as email")
		}
	}
}

// isPhone reports whether a text is a phone. Fewer digits are more likely an amount or a day.
func isPhone(text, region string) bool {
	const fewest, longest = 9, 25
	if len(text) < fewest || len(text) > longest || strings.Trim(text, "+()-./ 0123456789") != "" {
		return false
	}
	_, err := contact.ParsePhone(text, region, contact.Hint{})
	return err == nil
}

func isEmail(text string) bool {
	if !strings.Contains(text, "@") {
		return false
	}
	_, err := contact.ParseEmail(text)
	return err == nil
}

// pathOf returns where the body has a custom field.
func (r *reader) pathOf(key string) string {
	for _, alias := range customAliases {
		if members, err := Members(r.body[alias]); err == nil && !empty(members[key]) {
			return alias + "." + key
		}
	}
	return key
}

// Messages of warnings of members and consents beyond the limits of a lead.
const (
	surplusField    = "is more than the 50 custom fields that a lead can have, and was left out"
	surplusMetadata = "is more metadata than a lead can have, and was left out"
	outdatedConsent = "withdraws what the person has granted later: the lead still has that consent"
	surplusPurposes = "has more purposes than the 200 of a lead: further ones were stored with the arrival only"
)

// WarningsOf returns the warnings of an arrival that became a fact: its own, those of members and consents that the
// lead, as it is after the fact, has no room for, that of a withdrawal older than the lead's consent, and that of a
// contact which did not identify the person, because it is shared. Of a refusal there are only its own.
func (a Arrival) WarningsOf(fact event.Data, after State) field.Warnings {
	warnings := slices.Clone(a.Warnings)
	shared := ""
	switch fact := fact.(type) {
	case event.LeadCreated:
		shared = fact.Shared
	case event.LeadMerged:
		shared = fact.Shared
		for _, name := range missing(fact.CustomFields, a.CustomFields) {
			warnings.Add(name, field.FieldDropped, surplusField)
		}
		for _, name := range missing(fact.Metadata, a.Metadata) {
			warnings.Add("metadata."+name, field.FieldDropped, surplusMetadata)
		}
		if len(after.surplus(a.Consents)) > 0 {
			warnings.Add(metadataConsent, field.ConsentUnreadable, surplusPurposes)
		}
		if after.outdates(a.Consents) {
			warnings.Add(metadataConsent, field.ConsentOutdated, outdatedConsent)
		}
	}
	if shared != "" {
		warnings.Add(shared, field.SharedContact,
			"has come with so many others that it does not identify a person; the other contact does")
	}
	return warnings
}

// missing returns the names of members that an object does not have, sorted.
func missing(has, given map[string]jsontext.Value) (names []string) {
	for name := range given {
		if _, ok := has[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
