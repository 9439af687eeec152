package lead

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// keyConsent is the key of metadata that has the consents of an arrival.
const keyConsent = "consent"

// Limits of consents. Characters are Unicode code points after NFC.
const (
	MaxConsents     = 20       // of one arrival
	MaxConsentBytes = 16 << 10 // of one arrival, as compact JSON
	MaxPurpose      = 50       // characters
	MaxConsentText  = 4000
	MaxConsentURL   = 2048
	MaxVersion      = 200
	maxMethod       = 50
	maxPurposes     = 200 // of a lead; further ones are on the log, but not in its state
)

// GivenConsent is what a person agreed to, or no longer does, with the words that they saw.
type GivenConsent struct {
	Purpose string `json:"purpose"`
	Granted bool   `json:"granted"`
	Text    string `json:"text"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Method  string `json:"method"` // how, in free text
}

// words returns a hash of all that was given, by which the same consent is recognized.
func (g GivenConsent) words() string {
	text, _ := json.Marshal(g) // a struct of texts
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Consents reads consents: one object, or a list of them. Those that are invalid are left out, with errors that begin
// with a name.
func Consents(value jsontext.Value, name string) (given []GivenConsent, wrong field.Errors) {
	list, one := []jsontext.Value{value}, true
	if value.Kind() == jsontext.KindBeginArray {
		list, one = nil, false
		if err := json.Unmarshal(value, &list); err != nil {
			wrong.Add(name, "must be a list of objects")
			return nil, wrong
		}
	}
	if len(list) > MaxConsents {
		wrong.Add(name, "must be at most 20")
		return nil, wrong
	}
	if len(value) > MaxConsentBytes {
		wrong.Add(name, "must be at most 16 KiB")
		return nil, wrong
	}
	for i, item := range list {
		at := name
		if !one {
			at += "[" + strconv.Itoa(i) + "]"
		}
		members, err := Members(item)
		if err != nil {
			wrong.Add(at, "must be an object")
			continue
		}
		r := reader{body: members}
		consent := r.consent()
		if r.wrong == nil {
			given = append(given, consent)
		}
		for _, one := range r.wrong {
			wrong.Add(at+"."+one.Field, one.Message)
		}
	}
	return given, wrong
}

func (r *reader) consent() GivenConsent {
	text := func(name string, most int) string {
		value, _ := r.text(name)
		if Length(value) > most {
			r.wrong.Add(name, "must be at most "+strconv.Itoa(most)+" characters")
		}
		return value
	}
	given := GivenConsent{
		Purpose: strings.TrimSpace(text("purpose", MaxPurpose)), Granted: true, Text: text("text", MaxConsentText),
		Version: text("version", MaxVersion), URL: text("url", MaxConsentURL), Method: text("method", maxMethod),
	}
	if given.Purpose == "" && r.wrong == nil {
		r.wrong.Add("purpose", "must be 1 to 50 characters")
	}
	switch r.body["granted"].Kind() {
	case jsontext.KindFalse:
		given.Granted = false
	case jsontext.KindTrue, jsontext.KindNull, 0:
	default:
		r.wrong.Add("granted", "must be true or false")
	}
	return given
}

// consents reads those of an arrival. A caller of the API is told of invalid ones; a form, an intake or a file keeps
// the person, and the metadata as given.
func (r *reader) consents(metadata map[string]jsontext.Value, rules Rules) []event.Consent {
	value, given := metadata[keyConsent]
	if !given || empty(value) {
		return nil
	}
	valid, wrong := Consents(value, "metadata."+keyConsent)
	if rules.From == contact.Call {
		r.wrong = append(r.wrong, wrong...)
	}
	return withoutWords(valid)
}

// withoutWords returns consents without their words.
func withoutWords(given []GivenConsent) (consents []event.Consent) {
	for _, g := range given {
		consents = append(consents, event.Consent{Purpose: g.Purpose, Granted: g.Granted})
	}
	return consents
}

// ConsentsOf returns the consents of a fact, with their words, and when they were given.
func ConsentsOf(fact *event.Fact) (given []GivenConsent, at time.Time) {
	switch data := fact.Data.(type) {
	case event.LeadCreated:
		if len(data.Consents) > 0 {
			given, _ = Consents(data.Metadata[keyConsent], "")
			return given, data.SeenAt(fact.At)
		}
	case event.LeadMerged:
		if len(data.Consents) > 0 {
			given, _ = Consents(data.Metadata[keyConsent], "")
			return given, data.SeenAt(fact.At)
		}
	case event.LeadConsented:
		given, _ = Consents(data.Given, "")
		return given, fact.At
	}
	return nil, fact.At
}

// consent folds the consents of a fact: of each purpose, the latest counts.
func (s *State) consent(given []GivenConsent, at time.Time) {
	for _, g := range given {
		s.setConsent(g.Purpose, event.ConsentState{Granted: g.Granted, At: at, Words: g.words()})
	}
}

func (s *State) setConsent(purpose string, latest event.ConsentState) {
	before, known := s.Consents[purpose]
	if known && latest.At.Before(before.At) || !known && len(s.Consents) >= maxPurposes {
		return
	}
	s.Consents = maps.Clone(s.Consents)
	if s.Consents == nil {
		s.Consents = map[string]event.ConsentState{}
	}
	s.Consents[purpose] = latest
}

// Granted says of each purpose whether its latest consent was granted.
func (s State) Granted() map[string]bool {
	granted := make(map[string]bool, len(s.Consents))
	for purpose, latest := range s.Consents {
		granted[purpose] = latest.Granted
	}
	return granted
}

// RecordConsents decides on consents that did not come with an arrival: one object, or a list of them. When the lead
// has all of them, the fact has none.
//
// The error is ErrNotFound, a *JoinedError or field.Errors.
func (s State) RecordConsents(
	account string, value jsontext.Value,
) (fact event.LeadConsented, given []GivenConsent, err error) {
	if err := s.Present(account); err != nil {
		return fact, nil, err
	}
	given, wrong := Consents(value, keyConsent)
	if len(given) == 0 && wrong == nil {
		wrong.Add(keyConsent, "must be an object with a purpose, or a list of them")
	}
	if wrong != nil {
		return fact, nil, wrong
	}
	after := s
	for _, g := range given {
		latest, known := after.Consents[g.Purpose]
		if known && latest.Granted == g.Granted && latest.Words == g.words() {
			continue
		}
		fact.Consents = append(fact.Consents, event.Consent{Purpose: g.Purpose, Granted: g.Granted})
		after.setConsent(g.Purpose, event.ConsentState{Granted: g.Granted, At: latest.At, Words: g.words()})
	}
	if len(fact.Consents) > 0 {
		fact.Consents, fact.Given = withoutWords(given), value
	}
	return fact, given, nil
}
