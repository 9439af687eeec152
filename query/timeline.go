package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Timeline is what happened to a lead, and what the lead was at one of its revisions.
type Timeline struct {
	Lead     Lead // as of Revision
	Revision eventstore.Revision
	Latest   eventstore.Revision
	Steps    []Step // newest first
}

// Step is one event of a lead, and how it changed the lead.
type Step struct {
	Event
	Source     string // of an arrival
	Credential Credential
	Changes    []Change

	EmailHeldBy  string // id of the lead that the arrival's email stays with
	Joined, Into string // ids of the lead that became part of this one, and of the one that this became part of
	Released     Change // what finds the lead no more
}

// Change is a field of a lead that an event gave another value. Old or New is empty when there was, or is, none. A member
// of customFields or metadata has a Key, and its values are JSON.
type Change struct {
	Field, Key string
	Old, New   string
}

// Moment says which part of a timeline to return.
type Moment struct {
	AsOf   *eventstore.Revision // the lead is as of it; nil: as it is now
	Before eventstore.Revision  // the steps are those before it; 0: the newest
	Limit  int                  // steps at most
}

// LeadTimeline folds a lead's stream, step by step. The error is ErrNotFound.
func (r *Reader) LeadTimeline(ctx context.Context, account, id string, m Moment) (t Timeline, err error) {
	if !event.ValidID(id) {
		return t, ErrNotFound
	}
	var state lead.State
	for recorded, err := range r.store.Read(ctx, event.LeadStream(id), 0) {
		if err != nil {
			return t, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return t, fmt.Errorf("event at position %d: %w", recorded.Position, err)
		}
		before := state
		state = lead.Evolve(state, fact)
		t.Latest = recorded.Revision
		if m.AsOf == nil || recorded.Revision == *m.AsOf {
			t.Lead, t.Revision = newWholeLead(state), recorded.Revision
		}
		if m.Before != 0 && recorded.Revision >= m.Before {
			continue
		}
		if t.Steps = append(t.Steps, newStep(recorded, fact, before, state)); len(t.Steps) > m.Limit {
			t.Steps = t.Steps[1:]
		}
	}
	if state.Phase != lead.Live && state.Phase != lead.Departed || state.Account != account || t.Lead.LeadID == "" {
		return Timeline{}, ErrNotFound
	}
	slices.Reverse(t.Steps)
	return t, nil
}

func newStep(recorded eventstore.Recorded, fact event.Fact, before, after lead.State) Step {
	step := Step{Event: newEvent(recorded), Credential: newCredential(recorded.Metadata.Credential)}
	switch data := fact.Data.(type) {
	case event.LeadCreated:
		step.Source = data.Source
	case event.LeadMerged:
		step.Source, step.EmailHeldBy = data.Source, data.EmailHeldBy
	case event.LeadReleased:
		if step.Released = (Change{Field: "phone", Old: data.Phone}); data.Phone == "" {
			step.Released = Change{Field: "email", Old: data.Email}
		}
	case event.LeadJoined:
		step.Joined = data.From
	case event.LeadDeparted:
		step.Into = data.Into
	}
	for _, c := range []Change{
		{Field: "name", Old: before.Name, New: after.Name},
		{Field: "phone", Old: before.Phone, New: after.Phone},
		{Field: "email", Old: before.Email, New: after.Email},
		{Field: "status", Old: before.Status, New: after.Status},
		{Field: "leadTemperature", Old: before.Temperature, New: after.Temperature},
		{Field: "opportunityValue", Old: before.OpportunityValue, New: after.OpportunityValue},
	} {
		if c.Old != c.New {
			step.Changes = append(step.Changes, c)
		}
	}
	step.Changes = append(step.Changes, changed("customFields", before.CustomFields, after.CustomFields)...)
	step.Changes = append(step.Changes, changed("metadata", before.Metadata, after.Metadata)...)
	return step
}

// changed are the members that are not what they were, by name.
func changed(field string, before, after map[string]jsontext.Value) (changes []Change) {
	for key, old := range before {
		if string(old) != string(after[key]) {
			changes = append(changes, Change{field, key, string(old), string(after[key])})
		}
	}
	for key, latest := range after {
		if _, there := before[key]; !there {
			changes = append(changes, Change{field, key, "", string(latest)})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return changes
}
