package lead

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// keyConsent is the key of metadata that has the consents of an arrival, and metadataConsent its name in errors.
const (
	keyConsent      = "consent"
	metadataConsent = "metadata." + keyConsent
)

// Limits of consents. Characters are Unicode code points after NFC.
const (
	MaxConsents     = 20       // of one arrival
	MaxConsentBytes = 16 << 10 // of one arrival, as compact JSON
	MaxPurpose      = 50       // characters
	MaxConsentText  = 4000
	MaxConsentURL   = 2048
	MaxVersion      = 200
	maxMethod       = 50
	maxPurposes     = 200 // of a lead; further ones of arrivals are on the log, but not in its state
)

const tooManyConsentBytes = "must be at most 16 KiB"

// GivenConsent is what a person agreed to, or no longer does, with the words that they saw.
type GivenConsent struct {
	Purpose string `json:"purpose"`
	Granted bool   `json:"granted"`
	Text    string `json:"text"`
	Version string `json:"version"`
	URL     string `json:"url"`
	Method  string `json:"method"` // how, in free text
}

// words returns a hash of all that was given, by which the same consent is recognized. Facts have no NUL.
func (g GivenConsent) words() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{
		g.Purpose, strconv.FormatBool(g.Granted), g.Text, g.Version, g.URL, g.Method,
	}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// Consents reads consents: one object, or a list of them. Those that are invalid are left out, with errors that begin
// with a name.
func Consents(value jsontext.Value, name string) (given []GivenConsent, wrong field.Errors) {
	list := []jsontext.Value{value}
	if value.Kind() == jsontext.KindBeginArray {
		list = nil
		if err := json.Unmarshal(value, &list); err != nil {
			wrong.Add(name, "must be a list of objects")
			return nil, wrong
		}
	}
	if len(list) > MaxConsents {
		wrong.Add(name, "must have at most 20 consents")
		return nil, wrong
	}
	if len(value) > MaxConsentBytes {
		wrong.Add(name, tooManyConsentBytes)
		return nil, wrong
	}
	for i, item := range list {
		at := name + subscript(value, i)
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

// subscript returns where consents have one of them, to follow their name.
func subscript(consents jsontext.Value, i int) string {
	if consents.Kind() == jsontext.KindBeginArray {
		return "[" + strconv.Itoa(i) + "]"
	}
	return ""
}

var consentFields = []string{"purpose", "granted", "text", "version", "url", "method"}

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
	case jsontext.KindTrue:
	case jsontext.KindNull, 0:
		r.noOtherRefusal()
	default:
		r.wrong.Add("granted", "must be true or false")
	}
	return given
}

// noOtherRefusal rejects an unknown field that says no: it would otherwise be a grant, which is the default.
func (r *reader) noOtherRefusal() {
	for _, name := range slices.Sorted(maps.Keys(r.body)) {
		words, _ := text(r.body[name])
		granted, known := contact.Granted(words)
		refuses := known && !granted || r.body[name].Kind() == jsontext.KindFalse
		if refuses && !slices.Contains(consentFields, name) {
			r.wrong.Add(field.ShownKey(name), "is not a known field: granted says whether the person agreed")
		}
	}
}

// consents reads those of an arrival. If one of them is invalid, none is recorded, and the metadata are kept as given.
func (r *reader) consents(metadata map[string]jsontext.Value, rules Rules) []GivenConsent {
	const name = metadataConsent
	value := metadata[keyConsent]
	if empty(value) {
		return nil
	}
	if rules.From == contact.Call && len(value) > MaxConsentBytes { // other senders cannot correct it
		r.wrong.Add(name, tooManyConsentBytes)
		return nil
	}
	given, wrong := Consents(value, name)
	for _, w := range wrong {
		r.warnings.Add(w.Field, field.ConsentUnreadable, w.Message+"; no consent was recorded")
	}
	if wrong != nil {
		return nil
	}
	return given
}

// recorded returns consents without their words, and which of them become the lead's latest of their purposes.
func (s State) recorded(given []GivenConsent, at time.Time) (of event.Purposes) {
	if len(given) == 0 {
		return of
	}
	after := s
	after.consent(given, at, "")
	of.Consents = map[string]bool{}
	for _, g := range given {
		of.Consents[g.Purpose] = g.Granted
	}
	for _, purpose := range slices.Sorted(maps.Keys(of.Consents)) {
		if latest, counts := after.Consents[purpose]; counts && differs(s.Consents, purpose, latest) {
			of.ChangedConsents = append(of.ChangedConsents, purpose)
		}
	}
	return of
}

// differs reports whether a consent says something else than the one that a lead had, or that it had none.
func differs(had map[string]event.ConsentState, purpose string, latest event.ConsentState) bool {
	before, known := had[purpose]
	return !known || before.Granted != latest.Granted || before.Words != latest.Words
}

// changedConsents returns what is another consent than before.
func changedConsents(before, after map[string]event.ConsentState) (changed event.Purposes) {
	purposes := map[string]event.ConsentState{}
	maps.Copy(purposes, before)
	maps.Copy(purposes, after)
	for _, purpose := range slices.Sorted(maps.Keys(purposes)) {
		latest, has := after[purpose]
		if has && !differs(before, purpose, latest) {
			continue
		}
		changed.ChangedConsents = append(changed.ChangedConsents, purpose)
		if has {
			if changed.Consents == nil {
				changed.Consents = map[string]bool{}
			}
			changed.Consents[purpose] = latest.Granted
		}
	}
	return changed
}

// ConsentsOf returns the consents of a fact, in the order of its own, and when they were given. They have no words
// after an erasure, and when the lead had no room for more metadata.
func ConsentsOf(fact *event.Fact) (given []GivenConsent, at time.Time) {
	var words jsontext.Value
	at = fact.At
	switch data := fact.Data.(type) {
	case event.LeadCreated:
		words, at = data.Metadata[keyConsent], data.SeenAt(fact.At)
	case event.LeadMerged:
		words, at = data.Metadata[keyConsent], data.SeenAt(fact.At)
	case event.LeadConsented:
		words = data.Given
	default:
		return nil, at
	}
	plain := event.PurposesOf(fact.Data).Consents
	if len(plain) == 0 {
		return nil, at
	}
	if words != nil {
		given, _ = Consents(words, "")
		return given, at
	}
	for _, purpose := range slices.Sorted(maps.Keys(plain)) {
		given = append(given, GivenConsent{Purpose: purpose, Granted: plain[purpose]})
	}
	return given, at
}

// consent folds the consents of an event: of each purpose, the latest counts.
func (s *State) consent(given []GivenConsent, at time.Time, eventID string) {
	for _, g := range given {
		s.setConsent(g.Purpose, event.ConsentState{Granted: g.Granted, At: at, EventID: eventID, Words: g.words()})
	}
}

// joinConsents adds those of another lead.
func (s *State) joinConsents(of map[string]event.ConsentState) {
	for _, purpose := range slices.Sorted(maps.Keys(of)) {
		ours, theirs := s.Consents[purpose], of[purpose]
		if !theirs.At.Equal(ours.At) || theirs.EventID > ours.EventID { // ids are in the order of time
			s.setConsent(purpose, theirs)
		}
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

// surplus returns which of some consents the lead, as it is after them, had no room for.
func (s State) surplus(given []GivenConsent) (indexes []int) {
	for i, g := range given {
		if _, has := s.Consents[g.Purpose]; !has && len(s.Consents) >= maxPurposes {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// outdates reports whether the lead, as it is after some consents, has granted later what one of them withdraws.
func (s State) outdates(given []GivenConsent) bool {
	return slices.ContainsFunc(given, func(g GivenConsent) bool {
		return !g.Granted && s.Consents[g.Purpose].Granted
	})
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
	if wrong == nil {
		after := s
		after.consent(given, s.UpdatedAt, "")
		for _, i := range after.surplus(given) {
			wrong.Add(keyConsent+subscript(value, i)+".purpose", "is one more than the 200 purposes that a lead can have")
		}
	}
	if wrong != nil {
		return fact, nil, wrong
	}
	if recorded := s.recorded(given, s.UpdatedAt); len(recorded.ChangedConsents) > 0 {
		fact.Purposes, fact.Given = recorded, value
	}
	return fact, given, nil
}
