package intake

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/expression"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Fields of a mapping, beside those of a capture.
const (
	fieldDeliveryID   = "deliveryId"
	fieldSkip         = "skip"
	fieldCustomFields = "customFields"
	fieldMetadata     = "metadata"
	fieldConsent      = "consent" // becomes metadata.consent
)

// MaxDeliveryID is the longest delivery id in characters.
const MaxDeliveryID = 200

// target is a field that a mapping can set, and the types that its expression may have.
type target struct {
	name  string
	types []expression.Type
}

// targets are all fields of a mapping, in the order in which they are computed.
var targets = func() []target {
	list := []target{
		{fieldSkip, []expression.Type{expression.Bool}},
		{fieldDeliveryID, []expression.Type{expression.Text, expression.Int}},
	}
	for _, name := range lead.FieldNames() {
		types := []expression.Type{expression.Text}
		switch name {
		case "email":
			types = append(types, expression.List)
		case "phone":
			types = append(types, expression.Int, expression.List)
		case "opportunityValue":
			types = append(types, expression.Int, expression.Uint, expression.Number)
		}
		list = append(list, target{name, types})
	}
	return append(list,
		target{"visitorId", []expression.Type{expression.Text}},
		target{fieldCustomFields, []expression.Type{expression.Object}},
		target{fieldMetadata, []expression.Type{expression.Object}},
		target{fieldConsent, []expression.Type{expression.Object, expression.List}},
	)
}()

// MappingFields returns the names of the fields that a mapping can set.
func MappingFields() []string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.name
	}
	return names
}

// OfPost reports whether a field of a mapping decides on the post, and is no field of a capture.
func OfPost(name string) bool { return name == fieldDeliveryID || name == fieldSkip }

// Optional reports whether a mapping's field is one that a lead can be without.
func Optional(name string) bool {
	known := slices.ContainsFunc(targets, func(t target) bool { return t.name == name })
	return known && !OfPost(name) && name != "phone" && name != "email"
}

// environment has the variables of mappings.
var environment = expression.NewEnvironment(expression.CostLimit, map[string]expression.Type{
	"body": expression.Any, "item": expression.Any, "known": expression.Any, "headers": expression.Texts,
	"query": expression.Texts,
})

// Mapping computes the members of a capture's body from a post. It is safe for concurrent use.
type Mapping struct {
	settings event.IntakeSettings
	programs []program
	known    bool                // an expression reads the variable known
	contacts bool                // that of the phone or the email does
	each     *expression.Program // of a post's arrivals; nil: none
}

type program struct {
	field string
	run   *expression.Program
}

// Compile compiles the mapping of an intake: the settings' own expressions, and the kind's for the other fields. The
// error is field.Errors, on mapping.<field>.
func Compile(settings event.IntakeSettings) (*Mapping, error) {
	var wrong field.Errors
	for _, name := range slices.Sorted(maps.Keys(settings.Mapping)) {
		if !slices.ContainsFunc(targets, func(t target) bool { return t.name == name }) {
			wrong.Add("mapping."+truncated(name), "is not known; the fields are "+strings.Join(MappingFields(), ", "))
		}
	}
	m := &Mapping{settings: settings}
	defaults := DefaultMapping(settings.Kind)
	for _, t := range targets {
		source, own := settings.Mapping[t.name]
		if !own {
			if source = defaults[t.name]; source == "" {
				continue
			}
		}
		run, err := environment.Compile(source, t.types...)
		if err != nil {
			wrong.Add("mapping."+t.name, err.Error())
			continue
		}
		m.programs = append(m.programs, program{t.name, run})
		reads := strings.Contains(source, "known")
		m.known = m.known || reads
		m.contacts = m.contacts || reads && (t.name == "phone" || t.name == "email")
	}
	if settings.Each != "" {
		var err error
		if m.each, err = environment.Compile(settings.Each, expression.List); err != nil {
			wrong.Add("each", err.Error())
		}
	}
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

// truncated returns the part of a name that an error quotes.
func truncated(name string) string {
	const maxQuoted = 50
	if utf8.RuneCountInString(name) <= maxQuoted {
		return name
	}
	return string([]rune(name)[:maxQuoted]) + "…"
}

// Mapped is the result of mapping a post.
type Mapped struct {
	DeliveryID string
	Source     string // of the lead
	Test       bool   // the sender marked it as a test
	Skip       bool   // the mapping says that it is not to be captured
	Honeypot   bool   // a form's field that persons leave empty is filled
	Challenge  string // the response token of a form's challenge
	Steps      uint64 // the cost, in the units of expression.CostLimit
	Warnings   field.Warnings

	// Body has the members of a capture's body, for lead.ParseArrival.
	Body map[string]jsontext.Value
}

// Map evaluates the mapping on a post. With errors, it also returns the fields without errors. An error names the
// field, or body if the post cannot be parsed, and quotes nothing of the post.
//
// A field whose expression reads a missing member counts as not given. In customFields and metadata this is an error,
// because one missing member would drop all others.
func (m *Mapping) Map(r Request) (Mapped, field.Errors) {
	var wrong field.Errors
	mapped := Mapped{Body: make(map[string]jsontext.Value)}
	body, err := r.parse()
	if err != nil {
		wrong.Add("body", err.Error())
		return mapped, wrong
	}
	m.removeProofs(body, &mapped)
	consents := m.removeConsents(body)
	item := m.item(body)
	if r.Item && len(r.Post) > 0 {
		if body, err = expression.Parse(r.Post); err != nil {
			wrong.Add("body", err.Error())
			return mapped, wrong
		}
	}
	variables := map[string]any{
		"body": body, "item": item, "known": map[string]any{}, "headers": orNone(r.Headers), "query": orNone(r.Query),
	}
	if m.known {
		known := knownOf(answersOf(m.settings.Kind, item), r.Region)
		variables["known"] = known.variable()
		if known.several && (m.contacts || m.settings.Kind == Form) {
			wrong.Add("body", errSeveral.Error())
		}
		for _, warning := range known.warnings {
			if m.settings.Mapping[warning.Field] == "" {
				mapped.Warnings = append(mapped.Warnings, warning)
			}
		}
	}
	var total uint64
	for _, p := range m.programs {
		if total > expression.CostLimit {
			wrong.Add(p.field, expression.ErrCost.Error())
			continue
		}
		steps, err := mapped.set(p, variables)
		total += steps
		if err != nil {
			wrong.Add(p.field, err.Error())
		}
	}
	mapped.Steps = total
	mapped.setConsents(consents)
	mapped.Source = m.source(body)
	mapped.setSource()
	return mapped, wrong
}

// item returns the element of a post that a mapping reads: the post, or the data of a standard webhook that has it in
// an envelope.
func (m *Mapping) item(body any) any {
	post, _ := body.(map[string]any)
	data, enveloped := post["data"].(map[string]any)
	if m.settings.Kind == StandardWebhooks && enveloped && textIn(post, "type") != "" {
		return data
	}
	return body
}

func orNone(texts map[string]string) map[string]string {
	if texts == nil {
		return map[string]string{}
	}
	return texts
}

// drops are the events of Razorpay about payments that were not made.
var drops = []string{"payment.failed", "payment_link.expired", "payment_link.cancelled"}

// source returns the source of a post's lead: the intake's, unless Razorpay says that the payment was made.
func (m *Mapping) source(body any) string {
	source := cmp.Or(m.settings.Source, DefaultSource(m.settings.Kind))
	if m.settings.Kind == Razorpay && source == DefaultSource(Razorpay) {
		post, _ := body.(map[string]any)
		if name := textIn(post, "event"); name != "" && !slices.Contains(drops, name) {
			return DefaultSource(Webhook)
		}
	}
	return source
}

// challengeFields are the names under which the scripts of challenges post their response tokens.
var challengeFields = []string{"cf-turnstile-response", "h-captcha-response", "g-recaptcha-response"}

// removeProofs removes proofs, such as the answer to a challenge, from the body, and marks tests.
func (m *Mapping) removeProofs(body any, mapped *Mapped) {
	object, ok := body.(map[string]any)
	if !ok {
		return
	}
	switch m.settings.Kind {
	case Form:
		for _, name := range challengeFields {
			if token, ok := object[name].(string); ok && mapped.Challenge == "" {
				mapped.Challenge = token
			}
			delete(object, name)
		}
		if name := m.settings.Honeypot; name != "" {
			switch filled := object[name].(type) {
			case nil:
			case string:
				mapped.Honeypot = strings.TrimSpace(filled) != ""
			default:
				mapped.Honeypot = true
			}
			delete(object, name)
		}
	case GoogleLeadForm:
		mapped.Test, _ = object["is_test"].(bool)
		delete(object, googleKey)
	case MetaLeadAds:
		mapped.Test = isTestLead(answersOf(MetaLeadAds, body))
	}
}

// set computes one field.
func (mapped *Mapped) set(p program, variables map[string]any) (steps uint64, err error) {
	if p.field == fieldSkip {
		mapped.Skip, steps, err = p.run.Bool(variables)
		if errors.Is(err, expression.ErrAbsent) {
			err = nil
		}
		return steps, err
	}
	value, steps, err := p.run.JSON(variables)
	isObject := p.field == fieldCustomFields || p.field == fieldMetadata
	switch {
	case errors.Is(err, expression.ErrAbsent) && !isObject:
		return steps, nil
	case err != nil || value.Kind() == 'n':
		return steps, err
	case p.field == fieldDeliveryID:
		return steps, mapped.setDeliveryID(value)
	case isObject && value.Kind() != '{':
		return steps, errNotObject
	}
	mapped.Body[p.field] = value
	return steps, nil
}

var (
	errSeveral = errors.New("has a list of several persons, of which only one would be captured: " +
		"use kind webhook with each")
	errNotObject  = errors.New("must be an object")
	errDeliveryID = errors.New("must be text of at most 200 characters or a whole number of 64 bits")
)

func (mapped *Mapped) setDeliveryID(value jsontext.Value) error {
	id := string(value)
	switch value.Kind() {
	case '"':
		raw, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return errDeliveryID
		}
		id = strings.TrimSpace(string(raw))
	case '0':
		if _, err := strconv.ParseInt(id, 10, 64); err != nil {
			return errDeliveryID
		}
	default:
		return errDeliveryID
	}
	if utf8.RuneCountInString(id) > MaxDeliveryID {
		return errDeliveryID
	}
	mapped.DeliveryID = id
	return nil
}

// setSource makes the mapped source that of the lead, whatever the post says.
func (mapped *Mapped) setSource() {
	quoted, _ := jsontext.AppendQuote(nil, mapped.Source)
	metadata := []byte(`{"source":`)
	metadata = append(metadata, quoted...)
	given := mapped.Body[fieldMetadata]
	decoder := jsontext.NewDecoder(strings.NewReader(string(given)))
	if _, err := decoder.ReadToken(); err == nil {
		for decoder.PeekKind() == '"' {
			name, err := decoder.ReadValue()
			if err != nil {
				break
			}
			name = name.Clone()
			value, err := decoder.ReadValue()
			if err != nil {
				break
			}
			if string(name) == `"source"` {
				continue
			}
			metadata = append(append(append(append(metadata, ','), name...), ':'), value...)
		}
	}
	mapped.Body[fieldMetadata] = append(metadata, '}')
}
