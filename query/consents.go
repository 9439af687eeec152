package query

import (
	"context"
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Consent is what a person agreed to, or no longer does, when and in which words.
type Consent struct {
	lead.GivenConsent
	At         Timestamp  `json:"at"`
	EventID    string     `json:"eventId"`
	Credential Credential `json:"credential"`
	IP         string     `json:"ip"`
	UserAgent  string     `json:"userAgent"`
}

// Consents returns the consents of a lead and of those that were joined into it, oldest first, or the latest of each
// purpose. They are read from the log. The error is ErrNotFound.
func (r *Reader) Consents(ctx context.Context, account, id string, current bool) ([]Consent, error) {
	if !event.ValidID(id) {
		return nil, ErrNotFound
	}
	found, joined, err := r.consents(ctx, account, id)
	for _, part := range joined {
		if err != nil {
			break
		}
		var more []Consent
		more, _, err = r.consents(ctx, account, part)
		found = append(found, more...)
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(a, b Consent) int { return time.Time(a.At).Compare(time.Time(b.At)) })
	if !current {
		return found, nil
	}
	latest := []Consent{}
	for i, c := range found {
		if !slices.ContainsFunc(found[i+1:], func(later Consent) bool { return later.Purpose == c.Purpose }) {
			latest = append(latest, c)
		}
	}
	return latest, nil
}

// consents reads the stream of one lead, and returns the leads that were joined into it.
func (r *Reader) consents(ctx context.Context, account, id string) (found []Consent, joined []string, err error) {
	found, none := []Consent{}, true
	for recorded, err := range r.store.Read(ctx, event.LeadStream(id), 0) {
		if err != nil {
			return nil, nil, err
		}
		if recorded.Metadata.Account != account || erasure(recorded) {
			return nil, nil, ErrNotFound
		}
		none = false
		fact, err := recorded.Fact()
		if err != nil {
			return nil, nil, err
		}
		ip, userAgent := fact.Metadata.IP, fact.Metadata.UserAgent
		switch data := fact.Data.(type) {
		case event.LeadJoined:
			joined = append(append(joined, data.From), data.Joined...)
		case event.LeadSplit:
			joined = data.Joined
			// they left
			found = slices.DeleteFunc(found, func(c Consent) bool { return slices.Contains(data.Touches, c.EventID) })
		case event.LeadCreated:
			ip, userAgent = data.IP, data.UserAgent
		case event.LeadMerged:
			ip, userAgent = data.IP, data.UserAgent
		}
		given, at := lead.ConsentsOf(&fact)
		for _, g := range given {
			found = append(found, Consent{
				GivenConsent: g, At: Timestamp(at), EventID: fact.ID.String(),
				Credential: newCredential(fact.Metadata.Credential), IP: ip, UserAgent: userAgent,
			})
		}
	}
	if none {
		return nil, nil, ErrNotFound
	}
	return found, joined, nil
}
