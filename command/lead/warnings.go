package lead

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
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
			"is stored as "+DefaultSource+", for it is none of "+strings.Join(CanonicalSources(), ", "))
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
	for _, place := range customAliases {
		if members, err := Members(r.body[place]); err == nil && !empty(members[key]) {
			return place + "." + key
		}
	}
	return key
}

// WarnShared warns of a contact of an arrival that did not identify the person, because it is shared; of none, it
// returns nil.
func WarnShared(kind claim.Kind) field.Warnings {
	if kind == "" {
		return nil
	}
	return field.Warnings{{
		Field: string(kind), Code: field.SharedContact,
		Message: "has come with so many others that it does not identify a person; the other contact does",
	}}
}
