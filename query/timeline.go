package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

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
	Source     string    // of an arrival
	ArrivedAt  time.Time // of an arrival that was received over a second earlier, or dated so; zero for others
	Credential Credential
	Changes    []Change
	Consents   map[string]bool // that it has, by purpose

	EmailHeldBy  string // id of the lead that the arrival's email stays with
	Joined, Into string // ids of the lead that became part of this one, and of the one that this became part of
	Split        string // id of the other lead of a split
	Released     Change // what finds the lead no more
}

// Change is a field of a lead that an event gave another value.
type Change = lead.Change

// TimelinePage selects a page of a timeline.
type TimelinePage struct {
	AsOf   *eventstore.Revision // the lead is as of it; nil: as it is now
	Before eventstore.Revision  // the steps are those before it; 0: the newest
	Limit  int                  // steps at most
}

// LeadTimeline returns a part of a lead's timeline. It folds the events before that part from where an earlier fold
// came to. The error is ErrNotFound.
func (r *Reader) LeadTimeline(ctx context.Context, account, id string, page TimelinePage) (t Timeline, err error) {
	if !event.ValidID(id) {
		return t, ErrNotFound
	}
	stream := event.LeadStream(id)
	last, err := r.store.Last(ctx, stream)
	if err != nil {
		return t, err
	}
	if last.ID.IsZero() || erasure(last) || page.AsOf != nil && *page.AsOf > last.Revision {
		return t, ErrNotFound
	}
	t.Latest, t.Revision = last.Revision, last.Revision
	if page.AsOf != nil {
		t.Revision = *page.AsOf
	}
	until := t.Latest
	if page.Before != 0 {
		until = min(until, page.Before-1)
	}
	from := max(0, until-eventstore.Revision(page.Limit)+1)
	var state, shown lead.State
	if from > 0 {
		if state, _, err = r.leads.LoadTo(ctx, r.store, stream, from-1); err != nil {
			return Timeline{}, err
		}
	}
	if t.Revision == from-1 {
		shown = state
	}
	for recorded, err := range r.store.Read(ctx, stream, from) {
		if err != nil {
			return Timeline{}, err
		}
		if recorded.Revision > until {
			break
		}
		fact, err := recorded.Fact()
		if err != nil {
			return Timeline{}, fmt.Errorf("event at position %d: %w", recorded.Position, err)
		}
		before := state
		state = lead.Evolve(state, fact)
		t.Steps = append(t.Steps, newStep(recorded, fact, before, state))
		if recorded.Revision == t.Revision {
			shown = state
		}
	}
	if t.Revision < from-1 || t.Revision > until {
		if shown, _, err = r.leads.LoadTo(ctx, r.store, stream, t.Revision); err != nil {
			return Timeline{}, err
		}
	}
	if shown.Phase != lead.Live && shown.Phase != lead.Joined || shown.Account != account {
		return Timeline{}, ErrNotFound
	}
	t.Lead = newWholeLead(shown)
	slices.Reverse(t.Steps)
	return t, nil
}

func newStep(recorded eventstore.Recorded, fact event.Fact, before, after lead.State) Step {
	step := Step{
		Event: NewEvent(recorded), Credential: newCredential(recorded.Metadata.Credential),
		Changes: lead.Changes(&before, &after), Consents: event.PurposesOf(fact.Data).Consents,
	}
	switch data := fact.Data.(type) {
	case event.LeadCreated:
		step.Source, step.ArrivedAt = data.Source, earlier(data.ReceivedAt, recorded.At)
	case event.LeadMerged:
		step.Source, step.ArrivedAt = data.Source, earlier(data.ReceivedAt, recorded.At)
		step.EmailHeldBy = data.EmailHeldBy
	case event.LeadReleased:
		step.Released = Change{Field: data.Field, Old: cmp.Or(data.Phone, data.Email)}
	case event.LeadJoined:
		step.Joined = data.From
	case event.LeadSplit:
		step.Split = cmp.Or(data.Into, data.From)
	case event.LeadJoinedInto:
		step.Into = data.Into
	}
	return step
}

// earlier returns a time that is clearly before another one. Others are zero.
func earlier(at, than time.Time) time.Time {
	if at.IsZero() || than.Sub(at) < time.Second {
		return time.Time{}
	}
	return at
}
