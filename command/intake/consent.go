package intake

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/lead"
)

// Fields of a form that are about a consent, each with the purpose in brackets: consent[whatsapp].
const (
	consentField        = "consent["
	consentTextField    = "consent_text["
	consentVersionField = "consent_version["
)

// formConsent is a consent in the form of metadata.consent.
type formConsent struct {
	Purpose string `json:"purpose"`
	Granted bool   `json:"granted"`
	Text    string `json:"text,omitzero"`
	Version string `json:"version,omitzero"`
	URL     string `json:"url,omitzero"`
	Method  string `json:"method"`
}

// removeConsents removes the consents from the fields of a form, and returns them in the order of their purposes. A box
// that is not ticked is not posted, so it is no withdrawal.
func (m *Mapping) removeConsents(body any) (consents []formConsent) {
	object, ok := body.(map[string]any)
	if !ok || m.settings.Kind != Form {
		return nil
	}
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		purpose, is := purposeOf(name, consentField)
		valid := is && strings.TrimSpace(purpose) != "" && lead.Length(purpose) <= lead.MaxPurpose
		if valid && len(fields) < lead.MaxConsents {
			fields = append(fields, name)
		}
	}
	for _, name := range fields {
		purpose, _ := purposeOf(name, consentField)
		text, version := consentTextField+purpose+"]", consentVersionField+purpose+"]"
		page, _ := object["page_url"].(string)
		consents = append(consents, formConsent{
			Purpose: purpose, Granted: ticked(object[name]), Method: "form", Text: textOf(object[text]),
			Version: textOf(object[version]), URL: page,
		})
		for _, taken := range []string{name, text, version} {
			delete(object, taken)
		}
	}
	return consents
}

func purposeOf(name, prefix string) (purpose string, is bool) {
	rest, is := strings.CutPrefix(name, prefix)
	if !is {
		return "", false
	}
	return strings.CutSuffix(rest, "]")
}

// ticked reports whether a box is ticked, or a radio does not say no. Of a repeated field the last value counts: forms
// put a hidden one before the box.
func ticked(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return true
	case []any:
		return len(v) > 0 && ticked(v[len(v)-1])
	}
	text := textOf(value)
	granted, known := contact.Granted(text)
	return granted || !known && strings.TrimSpace(text) != ""
}

// setConsents adds consents to the metadata: those of the mapping, or of a form, unless the metadata have some.
func (mapped *Mapped) setConsents(consents []formConsent) {
	encoded, err := json.Marshal(consents)
	own, has := mapped.Body[fieldConsent]
	if delete(mapped.Body, fieldConsent); has {
		encoded = own
	}
	if !has && len(consents) == 0 || err != nil {
		return
	}
	metadata := map[string]jsontext.Value{}
	if given, has := mapped.Body[fieldMetadata]; has {
		if err := json.Unmarshal(given, &metadata); err != nil {
			return
		}
	}
	if _, has := metadata[fieldConsent]; has {
		return
	}
	metadata[fieldConsent] = encoded
	if all, err := json.Marshal(metadata, json.Deterministic(true)); err == nil {
		mapped.Body[fieldMetadata] = all
	}
}
