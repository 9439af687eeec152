package leadfile

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
)

// Columns with the words of a consent, whose purpose is in brackets as in the fields of a form: consent_text[whatsapp].
const (
	consentText    = "consent_text"
	consentVersion = "consent_version"
)

// consentColumn is what a column has of a consent.
type consentColumn struct {
	purpose string // empty: it has no consent
	part    string // consentText or consentVersion; empty: whether it is granted
	optOut  bool   // yes is a withdrawal, and no is nothing
}

// consentPart returns what the name of a column like those of a form has of a consent; empty for nothing.
func consentPart(name string) string {
	outer, purpose, nested := strings.Cut(name, "[")
	if strings.TrimSpace(strings.TrimSuffix(purpose, "]")) != "" && nested &&
		slices.Contains([]string{"consent", consentText, consentVersion}, outer) {
		return outer
	}
	return ""
}

// purposeIn returns the purpose in the name of such a column.
func purposeIn(name string) string {
	_, purpose, _ := strings.Cut(name, "[")
	return strings.TrimSpace(strings.TrimSuffix(purpose, "]"))
}

// setConsent reports whether a column has a consent. Columns of more purposes than a lead's arrival can have become
// custom fields.
func (c *Columns) setConsent(i int) bool {
	col := &c.columns[i]
	part, purpose, _ := strings.Cut(col.field, ".")
	switch {
	case part == consentText, part == consentVersion:
		col.consent = consentColumn{purpose: purpose, part: part}
	default:
		purpose, optOut, is := contact.Field(col.field).Consent()
		if !is || purpose == "" {
			return false
		}
		col.consent = consentColumn{purpose: purpose, optOut: optOut}
	}
	purposes := map[string]bool{col.consent.purpose: true}
	for _, other := range c.consents {
		purposes[c.columns[other].consent.purpose] = true
	}
	if len(purposes) > lead.MaxConsents {
		col.consent, col.field = consentColumn{}, customFields+"."+col.key
		return false
	}
	return true
}

// givenConsent is a consent in the form of metadata.consent.
type givenConsent struct {
	Purpose string `json:"purpose"`
	Granted bool   `json:"granted"`
	Text    string `json:"text,omitzero"`
	Version string `json:"version,omitzero"`
	Method  string `json:"method"`
}

const keyConsent = "consent"

// readConsents makes consents of their columns. Of one purpose a withdrawal counts. A time is a yes, and dates the
// arrival if no other column does. A value that is neither yes nor no becomes a custom field, with a warning; so does
// every value if the row has a metadata object with consents.
func (b *builder) readConsents() {
	var given []givenConsent
	find := func(purpose string) *givenConsent {
		at := slices.IndexFunc(given, func(g givenConsent) bool { return g.Purpose == purpose })
		if at < 0 {
			return nil
		}
		return &given[at]
	}
	_, taken := b.metadata[keyConsent]
	for _, i := range b.consents {
		col, cell := b.columns[i].consent, b.cells[i]
		if col.part != "" || strings.TrimSpace(cell) == "" {
			continue
		}
		if taken {
			b.addCustom(i, cell)
			continue
		}
		granted, known := contact.Granted(cell)
		if !known {
			at, isTime := b.dates.parse(strings.TrimSpace(cell), b.now)
			if granted, known = true, isTime; isTime && !col.optOut {
				b.consentedAt = at
			}
		}
		switch before := find(col.purpose); {
		case !known && contact.Placeholder(cell):
		case !known:
			b.warn(i, field.ConsentUnreadable, "is neither yes nor no, and is kept as a custom field")
			b.addCustom(i, cell)
		case col.optOut && !granted: // no consent is given by it
			b.addCustom(i, cell)
		case before == nil:
			given = append(given, givenConsent{Purpose: col.purpose, Granted: granted != col.optOut, Method: "import"})
		default:
			before.Granted = before.Granted && granted != col.optOut
		}
	}
	for _, i := range b.consents {
		col, cell := b.columns[i].consent, b.cells[i]
		of := find(col.purpose)
		switch {
		case col.part == "" || strings.TrimSpace(cell) == "":
		case of == nil || taken:
			b.addCustom(i, cell)
		case col.part == consentText:
			of.Text = b.shortened(b.columns[i].name, cell, lead.MaxConsentText)
		default:
			of.Version = b.shortened(b.columns[i].name, cell, lead.MaxVersion)
		}
	}
	if len(given) > 0 {
		b.setConsents(given)
	}
}

// setConsents adds consents to the metadata. Their texts are cut to what an arrival can have.
func (b *builder) setConsents(given []givenConsent) {
	for most := lead.MaxConsentText; ; most /= 2 {
		for i := range given {
			given[i].Text = cutText(given[i].Text, most)
		}
		encoded, _ := json.Marshal(given) // of texts
		if len(encoded) <= lead.MaxConsentBytes {
			if most < lead.MaxConsentText {
				b.warnings.Add("metadata."+keyConsent, field.ValueShortened,
					"has longer texts than a lead can have, which were cut")
			}
			b.metadata[keyConsent] = encoded
			return
		}
	}
}
