package lead

import (
	"cmp"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/field"
)

// Limits of custom fields.
const (
	MaxCustomFields = 50   // distinct keys of a lead
	MaxCustomKey    = 50   // characters
	MaxCustomValue  = 2000 // characters of a string, or of anything else as compact JSON
	// maxCustomBytes bounds all of them together, as JSON, because they must fit into an event. Fifty values of the
	// greatest length fit, except for text of which JSON escapes many characters.
	maxCustomBytes = 700 << 10
)

// reserved are the top-level names that are not custom fields: those of the request, and those of the answer, so that
// sending back an answer does not turn it into custom fields. Case matters: Phone is a custom field.
var reserved = func() map[string]struct{} {
	set := make(map[string]struct{})
	for _, name := range ReservedNames() {
		set[name] = struct{}{}
	}
	return set
}()

// ReservedNames returns the members of a request's body that are not custom fields, and those of an answer. A name may
// occur twice.
func ReservedNames() []string {
	return slices.Concat(nameAliases, FieldNames(), visitorAliases, []string{"metadata"}, customAliases, serviceNames)
}

// serviceNames are the members of an answer that the service sets.
var serviceNames = []string{
	"leadId", "contactUID", "opportunityId", "source", "createdAt", "updatedAt", "accountId",
}

// customFields reads custom fields from every place where they may be, in the order of rising precedence: the body
// itself, fields, industryData and customFields. Empty values are dropped before they can replace others.
func (r *reader) customFields() map[string]jsontext.Value {
	var union map[string]jsontext.Value
	for key, value := range r.body {
		if _, ours := reserved[key]; ours {
			continue
		}
		if union == nil {
			union = make(map[string]jsontext.Value)
		}
		union[key] = value
	}
	r.custom("", union)
	for _, key := range slices.Backward(customAliases) {
		if !r.present(key) {
			continue
		}
		members, ok := r.object(key)
		if !ok {
			continue
		}
		r.custom(key+".", members)
		if len(union) == 0 { // usually only one place has any
			union = members
		} else {
			maps.Copy(union, members)
		}
	}
	if len(union) > MaxCustomFields {
		r.wrong.Add("customFields", tooManyCustom)
	}
	if !fitTogether(union) {
		r.wrong.Add("customFields", "must be at most 700 KiB in total")
	}
	if len(union) == 0 {
		return nil
	}
	return union
}

const tooManyCustom = "must be at most 50 in total"

// custom removes members that are empty or wrong, and adds the latter to the errors.
func (r *reader) custom(path string, members map[string]jsontext.Value) {
	var wrong field.Errors // all, sorted below: which are reported must not depend on the order of a map
	for key, value := range members {
		if empty(value) {
			delete(members, key)
			continue
		}
		if message := badCustomKey(key); message != "" {
			wrong = append(wrong, field.Error{Field: path + shorten(key), Message: message})
			delete(members, key)
			continue
		}
		if len(value) > MaxCustomValue && customLength(value) > MaxCustomValue { // no character is less than a byte
			wrong = append(wrong, field.Error{Field: path + key, Message: "must be at most 2000 characters"})
			delete(members, key)
		}
	}
	slices.SortFunc(wrong, func(a, b field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	for _, one := range wrong {
		r.wrong.Add(one.Field, one.Message)
	}
}

func fitTogether(fields map[string]jsontext.Value) bool {
	bytes, most := 0, 0
	for key, value := range fields {
		most += len(`\u0000`)*len(key) + len(`""`) + len(value)
	}
	if most <= maxCustomBytes {
		return true
	}
	for key, value := range fields {
		bytes += len(quote(key)) + len(value)
	}
	return bytes <= maxCustomBytes
}

func badCustomKey(key string) string {
	switch {
	case Blank(key):
		return "has a blank key"
	case Length(key) > MaxCustomKey:
		return "has a key of more than 50 characters"
	case HasControl(key):
		return "has a key with control characters"
	}
	return ""
}

func customLength(v jsontext.Value) int {
	if s, ok := text(v); ok {
		return Length(s)
	}
	return Length(string(v))
}

// shorten cuts a key that an error names, which could be of any length.
func shorten(key string) string {
	runes := []rune(key)
	if len(runes) > MaxCustomKey {
		return string(runes[:MaxCustomKey]) + "…"
	}
	return key
}
