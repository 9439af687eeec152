package lead

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore/event"
)

// maxJoined bounds the events of a join, in bytes: its fact, and movedClaim for each claim that it moves. An append has
// at most 1 MiB, and sealing makes four bytes of three.
const (
	maxJoined  = 700 << 10
	movedClaim = 360
)

// JoinedError says that a lead has become part of another, Into, which the caller should use instead.
type JoinedError struct{ LeadID, Into string }

func (e *JoinedError) Error() string {
	return fmt.Sprintf("Lead %s was joined into lead %s", e.LeadID, e.Into)
}

// Present returns nil for a live lead of the account. The error is ErrNotFound or a *JoinedError.
func (s State) Present(account string) error {
	switch {
	case s.Account != account || s.Phase != Live && s.Phase != Joined:
		return ErrNotFound
	case s.Phase == Joined:
		return &JoinedError{s.ID, s.JoinedInto}
	}
	return nil
}

// JoinFrom reads from a body which lead is to become part of another.
func JoinFrom(body map[string]jsontext.Value) (string, error) {
	r := reader{body: body}
	field.Only(&r.wrong, "", body, "from")
	from, ok := r.text("from")
	if !ok && r.wrong == nil {
		r.wrong.Add("from", "must be the leadId of the lead that becomes part of this one")
	}
	return from, r.wrong.Err()
}

// Join decides that another lead is the same person and becomes part of this one.
//
// The error is ErrNotFound or a *JoinedError about either lead, or field.Errors: a lead cannot be joined to itself, and
// the values of both must fit into one lead.
func (s State) Join(account string, from State) (event.LeadJoinedInto, event.LeadJoined, error) {
	for _, of := range []State{s, from} {
		if err := of.Present(account); err != nil {
			return event.LeadJoinedInto{}, event.LeadJoined{}, err
		}
	}
	var wrong field.Errors
	if s.ID == from.ID {
		wrong.Add("from", "must be another lead than the one it becomes part of")
	}
	joined := s.joinedFact(from)
	if len(fill(s.CustomFields, from.CustomFields)) > MaxCustomFields {
		wrong.Add("customFields", "must be at most 50 in total, of both leads")
	} else if encodedSize(joined)+movedClaim*(len(from.Phones)+len(from.Emails)) > maxJoined {
		wrong.Add("customFields", "must be at most 700 KiB, with all other data of the lead in from")
	}
	if len(withAll(s.Phones, from.Phones)) > MaxContacts {
		wrong.Add("phone", "must be at most 1000 of both leads, current and former")
	}
	if len(withAll(s.Emails, from.Emails)) > MaxContacts {
		wrong.Add("email", "must be at most 1000 of both leads, current and former")
	}
	if len(withAll(s.VisitorIDs, from.VisitorIDs)) > MaxVisitors {
		wrong.Add("visitorId", "must be at most 1000, of both leads")
	}
	if len(s.Joined)+1+len(from.Joined) > MaxJoined {
		wrong.Add("from", "must not make more than 1000 leads part of this one")
	}
	if !fits(fill(s.Metadata, from.Metadata)) {
		wrong.Add("metadata", "must have at most 64 keys and 32 KiB, of both leads")
	}
	return event.LeadJoinedInto{Into: s.ID}, joined, wrong.Err()
}

// joinedFact returns the fact that another lead, with all its data, becomes part of this one.
func (s State) joinedFact(from State) event.LeadJoined {
	joined := event.LeadJoined{From: from.ID, Joined: from.Joined, Was: from.snapshot(), Origins: from.Origins}
	after := s
	after.join(&event.Fact{}, &joined)
	latest := event.LeadMerged{LeadFields: after.LeadFields}
	if after.Name == s.Name {
		latest.Name = ""
	}
	joined.Changed, joined.Purposes = changes(s, latest), changedConsents(s.Consents, after.Consents)
	if s.OpportunityValue == "" {
		joined.OpportunityValue = after.OpportunityValue
	}
	if !sameValues(s.Metadata, after.Metadata) {
		joined.Changed = append(joined.Changed, "metadata")
	}
	if len(s.VisitorIDs) != len(after.VisitorIDs) {
		joined.Changed = append(joined.Changed, "visitorId")
	}
	return joined
}

func (s State) snapshot() event.LeadSnapshot {
	sources := make([]event.SourceSnapshot, len(s.Sources))
	for i, entry := range s.Sources {
		sources[i] = event.SourceSnapshot(entry)
	}
	return event.LeadSnapshot{
		ContactUID: s.ContactUID, LeadFields: s.LeadFields, NameDerived: s.NameDerived, Phones: s.Phones,
		Emails: s.Emails, FirstSeen: s.FirstSeen, Source: s.Source, Sources: sources, Metadata: s.Metadata,
		VisitorIDs: s.VisitorIDs, Consents: s.Consents, CreatedAt: s.CreatedAt,
	}
}

// join adds another lead to this one. Fields that this one has stay; those that it lacks are taken from the other.
func (s *State) join(fact *event.Fact, data *event.LeadJoined) {
	was := &data.Was
	if s.NameDerived && !was.NameDerived {
		s.Name, s.NameDerived = was.Name, false
	}
	for _, field := range fields {
		if ours := field.of(&s.LeadFields); *ours == "" {
			*ours = *field.of(&was.LeadFields)
		}
	}
	if s.OpportunityID == "" {
		s.OpportunityID = was.OpportunityID
	}
	from := State{FirstSeen: was.FirstSeen, CreatedAt: was.CreatedAt}
	for _, phone := range was.Phones {
		s.addContacts(from.firstSeen(phone), phone, "")
	}
	for _, email := range was.Emails {
		s.addContacts(from.firstSeen(email), "", email)
	}
	s.VisitorIDs = withAll(s.VisitorIDs, was.VisitorIDs)
	s.CustomFields, s.Metadata = fill(s.CustomFields, was.CustomFields), fill(s.Metadata, was.Metadata)
	s.Sources = joinSources(s.Sources, was.Sources)
	s.joinConsents(was.Consents)
	s.Joined = withAll(with(s.Joined, data.From), data.Joined)
	s.Origins = withOrigins(s.Origins, data.Origins)
	s.active(fact, fact.At)
}

func (s *State) joinInto(fact *event.Fact, data *event.LeadJoinedInto) {
	s.Phase, s.JoinedInto, s.UpdatedAt = Joined, data.Into, fact.At
}

// joinSources merges two source histories, in the order in which each source was first seen. Of a source that both
// have, the earlier entry stays, with the arrivals of both counted.
func joinSources(ours []SourceEntry, theirs []event.SourceSnapshot) []SourceEntry {
	all := slices.Clone(ours)
	for _, snapshot := range theirs {
		entry := SourceEntry(snapshot)
		i := slices.IndexFunc(all, func(e SourceEntry) bool { return e.Source == entry.Source })
		if i < 0 {
			all = append(all, entry)
			continue
		}
		first, other := all[i], entry
		if entry.FirstSeenAt.Before(first.FirstSeenAt) {
			first, other = entry, all[i]
		}
		if other.LastSeenAt.After(first.LastSeenAt) {
			first.LastSeenAt = other.LastSeenAt
		}
		first.Arrivals += other.Arrivals
		all[i] = first
	}
	slices.SortStableFunc(all, func(a, b SourceEntry) int { return a.FirstSeenAt.Compare(b.FirstSeenAt) })
	return all
}

func withAll(list, more []string) []string {
	for _, value := range more {
		list = with(list, value)
	}
	return list
}

// fill returns ours, with those members of theirs that are missing or empty in it.
func fill(ours, theirs map[string]jsontext.Value) map[string]jsontext.Value {
	missing := make(map[string]jsontext.Value)
	for key, value := range theirs {
		if empty(ours[key]) && !empty(value) {
			missing[key] = value
		}
	}
	return union(ours, missing)
}
