package command

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// When one lead is joined into another, it departs on its own stream first. On a store without transactions, a process that is
// killed then leaves the other lead, the heir, without what the departed lead had. One that is killed a little later leaves
// claims that still name the departed lead.
//
// So whoever reads a claim follows it from the lead it names to the heir, and adds to the heir what is missing.

// heir is the live lead that a departed lead is now part of, at the end of all joins, as if everything that is still missing
// from it had been appended.
type heir struct {
	holder
	missing []eventstore.Event // facts that complete it, in order, from its revision on
}

// heirOf follows a departed lead to its heir. A lead that has not departed is its own heir.
func (h *Handlers) heirOf(ctx context.Context, account string, first holder) (heir, error) {
	var departed []lead.State
	at := first
	for at.lead.Phase == lead.Departed {
		if slices.ContainsFunc(departed, func(s lead.State) bool { return s.ID == at.lead.ID }) {
			return heir{}, fmt.Errorf("stream %s: the lead is part of itself", at.stream)
		}
		departed = append(departed, at.lead)
		var err error
		if at, err = h.holderOf(ctx, event.LeadStream(at.lead.JoinedInto)); err != nil {
			return heir{}, err
		}
	}
	last := heir{holder: at}
	if at.lead.Phase != lead.Live {
		return last, nil
	}
	// The lead nearest to the heir comes first: what was missing from it has been added to it by then.
	for _, from := range slices.Backward(departed) {
		if slices.Contains(last.lead.Joined, from.ID) {
			continue
		}
		if err := last.absorb(h, account, from); err != nil {
			return heir{}, err
		}
	}
	return last, nil
}

// absorb adds a departed lead to the heir, if the heir does not have it yet.
func (last *heir) absorb(h *Handlers, account string, from lead.State) error {
	data := last.lead.Absorb(from)
	completed, err := h.write(claimKeeper(account), last.stream, last.expect, h.after(later(last.lead, from)), data)
	if err != nil {
		return err
	}
	last.lead = evolved(last.lead, last.stream, completed, data)
	last.missing = append(last.missing, completed.Events...)
	return nil
}

// settle makes a lead ready to depart or to be erased. Leads that have departed into it are added to it. A lead that is about
// to depart into it meets a conflict and finds it gone. So no lead departs into one that has ended, and to every observer a
// join is one step.
func (h *Handlers) settle(ctx context.Context, account string, held holder) (holder, error) {
	settled := heir{holder: held}
	for _, id := range held.awaited {
		other, err := h.holderOf(ctx, event.LeadStream(id))
		switch {
		case err != nil:
		case other.lead.Phase == lead.Live || other.expect == eventstore.NoStream: // which a store that is behind says
			err = h.close(ctx, account, other, held.stream)
		case other.lead.Phase == lead.Departed && other.lead.JoinedInto == held.lead.ID:
			err = settled.absorb(h, account, other.lead)
		}
		if err != nil {
			return holder{}, err
		}
	}
	if writes := settled.complete(); writes != nil {
		if _, err := h.store.Append(ctx, writes...); err != nil {
			return holder{}, err
		}
		settled.expect = eventstore.At(eventstore.Revision(settled.lead.Revision))
	}
	return settled.holder, nil
}

// awaits folds the ids of leads that announced that they would join this one and did not. A store with transactions has none.
func awaits(ids []string, fact event.Fact) []string {
	switch data := fact.Data.(type) {
	case event.LeadJoining:
		if !slices.Contains(ids, data.From) {
			return append(ids, data.From)
		}
	case event.LeadJoined:
		return slices.DeleteFunc(ids, func(id string) bool { return id == data.From })
	}
	return ids
}

// complete is the write that adds to an heir what is missing, or none if nothing is.
func (last heir) complete() []eventstore.Write {
	if len(last.missing) == 0 {
		return nil
	}
	return []eventstore.Write{{Stream: last.stream, Expect: last.expect, Events: last.missing}}
}

// later is the time of the latest event of two leads.
func later(a, b lead.State) time.Time {
	if a.UpdatedAt.After(b.UpdatedAt) {
		return a.UpdatedAt
	}
	return b.UpdatedAt
}
