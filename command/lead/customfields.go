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
	// maxCustomBytes bounds all of them together, as JSON. Fifty values of the longest kind fit, but for text that is
	// written in many more characters than it counts; an event must hold them.
	maxCustomBytes = 700 << 10
)

// reserved are the top-level names that are no custom fields: the request's own, and what the service itself says of
// a lead, so that a lead sent back as it was answered does not turn into custom data. Letter case counts: Phone is
// a custom field.
var reserved = func() map[string]struct{} {
	names := slices.Concat(nameAliases, visitorAliases, customAliases, []string{
		"phone", "email", "status", "leadTemperature", "opportunityValue", "metadata",
		"leadId", "contactUID", "opportunityId", "source", "createdAt", "updatedAt", "accountId",
	})
	set := make(map[string]struct{}, len(names))
	for _, name := range names {
		set[name] = struct{}{}
	}
	return set
}()

// customFields is the union of every place where custom fields may stand, weakest first: the body itself, then
// fields, industryData and customFields. Empty values are dropped before they can displace another.
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
		if len(union) == 0 { // as for most: they say it in one place
			union = members
		} else {
			maps.Copy(union, members)
		}
	}
	if len(union) > MaxCustomFields {
		r.wrong.Add("customFields", tooManyCustom)
	}
	if !fitTogether(union) {
		r.wrong.Add("customFields", "must be at most 700 KiB in all")
	}
	if len(union) == 0 {
		return nil
	}
	return union
}

const tooManyCustom = "must be at most 50 in all"

// custom takes out of members what is empty, or noted as wrong.
func (r *reader) custom(path string, members map[string]jsontext.Value) {
	var wrong field.Errors // all of them: which are told must not depend on the order of a map
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

// shorten keeps an answer from repeating a key of any length.
func shorten(key string) string {
	runes := []rune(key)
	if len(runes) > MaxCustomKey {
		return string(runes[:MaxCustomKey]) + "…"
	}
	return key
}
