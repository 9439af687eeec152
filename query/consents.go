package query

import (
	"context"
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Consent is what a person agreed to, or no longer does, when and in which words.
type Consent struct {
	lead.GivenConsent
	At         Timestamp  `json:"at"`
	EventID    string     `json:"eventId"`
	LeadID     string     `json:"-"` // that has the event
	Credential Credential `json:"credential"`
	IP         string     `json:"ip"`
	UserAgent  string     `json:"userAgent"`
}

// Consents returns the consents of a lead, oldest first, or the latest of each purpose. They are read from the log. The
// error is ErrNotFound.
func (r *Reader) Consents(ctx context.Context, account, id string, current bool) ([]Consent, error) {
	if !event.ValidID(id) {
		return nil, ErrNotFound
	}
	stream := event.LeadStream(id)
	history, err := eventstore.ReadRelated(ctx, r.store, stream, lead.Related)
	if err != nil {
		return nil, err
	}
	var state lead.State
	for _, fact := range history {
		if fact.Stream == stream {
			state = lead.Fold(state, fact)
		}
	}
	if state.Account != account || state.Phase != lead.Live && state.Phase != lead.Joined {
		return nil, ErrNotFound
	}
	found := []Consent{}
	for _, c := range state.AllConsents(history) {
		found = append(found, newConsent(c))
	}
	slices.SortStableFunc(found, func(a, b Consent) int { return time.Time(a.At).Compare(time.Time(b.At)) })
	if !current {
		return found, nil
	}
	latest := []Consent{}
	for i, c := range found {
		again := func(later Consent) bool { return later.Purpose == c.Purpose && later.EventID == c.EventID }
		if state.Consents[c.Purpose].EventID == c.EventID && !slices.ContainsFunc(found[i+1:], again) {
			latest = append(latest, c)
		}
	}
	return latest, nil
}

func newConsent(c lead.OwnConsent) Consent {
	shown := Consent{
		GivenConsent: c.GivenConsent, At: Timestamp(c.At), EventID: c.Fact.ID.String(), LeadID: event.LeadID(c.Fact.Stream),
		Credential: newCredential(c.Fact.Metadata.Credential), IP: c.Fact.Metadata.IP,
		UserAgent: c.Fact.Metadata.UserAgent,
	}
	switch data := c.Fact.Data.(type) {
	case event.LeadCreated:
		shown.IP, shown.UserAgent = data.IP, data.UserAgent
	case event.LeadMerged:
		shown.IP, shown.UserAgent = data.IP, data.UserAgent
	}
	return shown
}
