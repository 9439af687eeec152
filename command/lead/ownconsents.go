package lead

import (
	"iter"
	"slices"
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

// OwnConsent is a consent that a lead has, with the event that recorded it.
type OwnConsent struct {
	GivenConsent
	At   time.Time
	Fact *event.Fact
}

// AllConsents returns the consents of the lead, in the order of the log. History is as that of Split. A consent of an
// arrival belongs to the lead that has the arrival; any other to the lead that it was recorded for, and to the one that
// this was joined into.
func (s State) AllConsents(history []event.Fact) (all []OwnConsent) {
	d := newDivision(s, history, Rules{})
	has := func(id string) bool { return d.owner[id] == s.ID }
	for fact := range d.consenting(history, append([]string{s.ID}, s.Joined...), has) {
		given, at := ConsentsOf(fact)
		for _, g := range given {
			all = append(all, OwnConsent{g, at, fact})
		}
	}
	return all
}

// consenting yields the events that may have consents of a lead: its arrivals, and what was recorded for the leads that
// are part of it.
func (d *division) consenting(
	history []event.Fact, parts []string, has func(event string) bool,
) iter.Seq[*event.Fact] {
	return func(yield func(*event.Fact) bool) {
		for i := range history {
			fact := &history[i]
			_, byHand := fact.Data.(event.LeadConsented)
			on := byHand && slices.Contains(parts, event.LeadID(fact.Stream))
			if (on || has(fact.ID.String())) && !yield(fact) {
				return
			}
		}
	}
}

// consents folds the consents of a lead. Of the lead that stays, a base replaces all that is earlier.
func (d *division) consents(
	parts []string, has func(event string) bool, stays bool,
) map[string]event.ConsentState {
	var s State
	history := d.history
	if stays && d.base >= 0 {
		base, _ := history[d.base].Data.(event.LeadSplit)
		s.Consents, history = base.Is.Consents, history[d.base+1:]
	}
	for fact := range d.consenting(history, parts, has) {
		given, at := ConsentsOf(fact)
		s.consent(given, at, fact.ID.String())
	}
	return s.Consents
}
