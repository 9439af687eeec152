// Package field has the errors of a request's fields. A request is answered with all of them at once.
package field

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Error is why one field is invalid. The message never repeats the value.
type Error struct {
	Field   string `json:"field"` // as the caller wrote it; a dot leads into an object
	Message string `json:"message"`
}

// Errors are all errors of a request. Nothing was written.
type Errors []Error

func (e Errors) Error() string {
	parts := make([]string, len(e))
	for i, one := range e {
		parts[i] = one.Field + " " + one.Message
	}
	return "validation failed: " + strings.Join(parts, "; ")
}

// most bounds the errors of one request: a large body could have very many.
const most = 100

// Add adds an error, unless there are very many already.
func (e *Errors) Add(field, message string) {
	if len(*e) < most {
		*e = append(*e, Error{field, message})
	}
}

// OneOf returns which of some values a text is, in any letter case; empty for an empty text. Any other text is an
// error.
func (e *Errors) OneOf(field, text string, values ...string) string {
	if text == "" {
		return ""
	}
	for _, value := range values {
		if strings.EqualFold(text, value) {
			return value
		}
	}
	if len(values) == 1 {
		e.Add(field, "must be "+values[0])
	} else {
		e.Add(field, "must be one of "+strings.Join(values, ", "))
	}
	return ""
}

// Only rejects the members of an object that are none of these. Within begins their names, with its dot.
func Only[V any](wrong *Errors, within string, members map[string]V, names ...string) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(names, name) {
			wrong.Add(within+ShownKey(name), "is not a known field")
		}
	}
}

// ShownKey returns a key as an error repeats it: at most 50 characters.
func ShownKey(key string) string {
	const maxShown = 50
	if utf8.RuneCountInString(key) <= maxShown {
		return key
	}
	return string([]rune(key)[:maxShown]) + "…"
}

// Err returns the errors, or nil if there are none.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Warning tells that something was taken in another way than its sender most likely meant. It never changes a status.
type Warning struct {
	Field   string `json:"field"` // as in Error
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Codes of warnings.
const (
	// SecretRemoved: a secret was removed, because the target that it is sent to has changed.
	SecretRemoved = "SECRET_REMOVED"

	// Of captures, arrivals and rows of a file.
	UnknownSource        = "UNKNOWN_SOURCE"          // stored as api
	ContactInCustomField = "CONTACT_IN_CUSTOM_FIELD" // a custom field looks like the phone or email that is missing
	IgnoredContact       = "IGNORED_CONTACT"         // on the account's list, and taken as absent
	SharedContact        = "SHARED_CONTACT"          // of too many persons to identify one
	NotAName             = "NOT_A_NAME"              // left behind by a template, and taken as absent

	// Of arrivals at intakes and rows of a file, whose sender cannot correct them.
	PlaceholderContact = "PLACEHOLDER_CONTACT" // of no person, and taken as absent
	StatusUnknown      = "STATUS_UNKNOWN"      // kept as a custom field, like the next two
	TemperatureUnknown = "TEMPERATURE_UNKNOWN"
	ValueUnreadable    = "VALUE_UNREADABLE"
	ValueShortened     = "VALUE_SHORTENED"
	FieldDropped       = "FIELD_DROPPED"
	ContactByValue     = "CONTACT_BY_VALUE" // the value, and not its name, tells that it is one
	ConsentUnreadable  = "CONSENT_UNREADABLE"
	ConsentOutdated    = "CONSENT_OUTDATED" // a withdrawal of what was granted later, which still counts
)

// Warnings are all warnings about one request, arrival or row.
type Warnings []Warning

// Add adds a warning, unless there are very many already.
func (w *Warnings) Add(field, code, message string) {
	if len(*w) < most {
		*w = append(*w, Warning{field, code, message})
	}
}
