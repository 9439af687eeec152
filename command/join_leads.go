package command

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// JoinLeads asks that one lead become part of another, because both turned out to be the same person.
type JoinLeads struct {
	Caller Caller
	LeadID string                    // of the lead that stays
	Body   map[string]jsontext.Value // members of the request's body: from
}

// JoinLeads lets one lead of the caller's account depart into another, gives the other what it had, and moves its claims. The
// same join asked for again changes nothing, and finishes what a process that was killed left of it. A caller who does not see leads gets the ids alone.
//
// The errors are lead.ErrNotFound, *lead.DepartedError, field.Errors and those of the store.
func (h *Handlers) JoinLeads(ctx context.Context, cmd JoinLeads) (joined LeadUpdated, err error) {
	from, err := lead.JoinFrom(cmd.Body)
	if err != nil {
		return LeadUpdated{}, err
	}
	if !event.ValidID(cmd.LeadID) || !event.ValidID(from) {
		return LeadUpdated{}, lead.ErrNotFound
	}
	streams := []string{event.LeadStream(cmd.LeadID), event.LeadStream(from)}
	err = h.transact.Do(ctx, streams, func(ctx context.Context) (err error) {
		joined, err = h.joinLeads(ctx, cmd.Caller, streams[0], streams[1])
		return err
	})
	return joined.shownTo(cmd.Caller, nil), err
}

func (h *Handlers) joinLeads(ctx context.Context, caller Caller, intoStream, fromStream string) (LeadUpdated, error) {
	from, err := h.holderOf(ctx, fromStream)
	if err == nil && from.lead.Present(caller.Account) == nil {
		from, err = h.settle(ctx, caller.Account, from)
	}
	if err != nil {
		return LeadUpdated{}, err
	}
	into, err := h.holderOf(ctx, intoStream) // the later of the two: settling may have closed it
	if err != nil {
		return LeadUpdated{}, err
	}
	account, err := h.directory.ConfirmAccount(ctx, caller.Account)
	if err != nil {
		return LeadUpdated{}, err
	}
	departed, joined, err := into.lead.Join(caller.Account, from.lead)
	if err != nil {
		return h.joinedBefore(ctx, caller, into, from, account, err)
	}
	if !h.store.Atomic() {
		if into, err = h.announce(ctx, caller, into, from, account); err != nil {
			return LeadUpdated{}, err
		}
	}
	at := h.after(later(into.lead, from.lead))
	departure, err := h.write(caller, from.stream, from.expect, at, departed)
	if err != nil {
		return LeadUpdated{}, err
	}
	arrival, err := h.write(caller, into.stream, into.expect, at, joined)
	if err != nil {
		return LeadUpdated{}, err
	}
	after := evolved(into.lead, into.stream, arrival, joined)
	claims, err := h.bequeath(ctx, caller, from.lead, after)
	if err != nil {
		return LeadUpdated{}, err
	}
	position, err := h.store.Append(ctx, append([]eventstore.Write{account.Check(), departure, arrival}, claims...)...)
	if err != nil {
		return LeadUpdated{}, err
	}
	return LeadUpdated{Lead: after, Position: position}, nil
}

// announce is for a store without transactions. There, nothing else keeps two leads from departing into each other at the same
// time, or three in a circle. Before a lead departs, the lead that it goes into is written to, and read after that. So of
// leads that wait for each other, one meets a conflict and finds the other gone.
func (h *Handlers) announce(ctx context.Context, caller Caller, into, from holder, account *Believed[account.State]) (holder, error) {
	announced, err := h.write(caller, into.stream, into.expect, into.lead.UpdatedAt, event.LeadJoining{From: from.lead.ID})
	if err != nil {
		return holder{}, err
	}
	if _, err := h.store.Append(ctx, account.Check(), announced); err != nil {
		return holder{}, err
	}
	into.lead = evolved(into.lead, into.stream, announced, event.LeadJoining{From: from.lead.ID})
	into.expect = eventstore.At(eventstore.Revision(into.lead.Revision))
	return into, nil
}

// joinedBefore answers when one of the two leads has departed already. If it departed as this join asks, this is the same
// join again, wherever the lead that it departed into is by now; otherwise the refusal stands.
func (h *Handlers) joinedBefore(ctx context.Context, caller Caller, into, from holder, account *Believed[account.State], refused error) (LeadUpdated, error) {
	again, ok := errors.AsType[*lead.DepartedError](from.lead.Present(caller.Account))
	if !ok {
		return LeadUpdated{}, h.toHeir(ctx, refused)
	}
	last, err := h.heirOf(ctx, caller.Account, from)
	if err != nil {
		return LeadUpdated{}, err
	}
	if again.Into != into.lead.ID && last.lead.ID != into.lead.ID || last.lead.Phase != lead.Live {
		return LeadUpdated{}, h.toHeir(ctx, refused)
	}
	claims, err := h.bequeath(ctx, caller, from.lead, last.lead)
	if err != nil {
		return LeadUpdated{}, err
	}
	writes := slices.Concat([]eventstore.Write{account.Check()}, last.complete(), claims)
	position, err := h.store.Append(ctx, writes...)
	if err != nil {
		return LeadUpdated{}, err
	}
	return LeadUpdated{Lead: last.lead, Position: position}, nil
}

// bequeath returns the writes that move the claims of a departed lead, and of leads that were part of it, to its heir. A value
// that the heir does not have is left alone: it was released, and may belong to another lead by now.
func (h *Handlers) bequeath(ctx context.Context, caller Caller, departed, heir lead.State) (moved []eventstore.Write, err error) {
	for _, kind := range []claim.Kind{claim.Phone, claim.Email} {
		for _, value := range values(departed, kind) {
			stream := h.claims.Stream(caller.Account, kind, value)
			held, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(heir.Joined, held.Holder) || !has(heir, kind, value) {
				continue
			}
			write, err := h.write(caller.withoutOrigin(), stream, expect, h.after(held.UpdatedAt), event.ClaimTaken{Kind: string(kind), Holder: heir.ID})
			if err != nil {
				return nil, err
			}
			moved = append(moved, write)
		}
	}
	return moved, nil
}

// toHeir completes the error for a departed lead: it names the live lead that it is part of now. If that lead was erased, the
// error is lead.ErrNotFound.
func (h *Handlers) toHeir(ctx context.Context, err error) error {
	departed, ok := errors.AsType[*lead.DepartedError](err)
	if !ok {
		return err
	}
	first, unread := h.holderOf(ctx, event.LeadStream(departed.LeadID))
	if unread != nil {
		return unread
	}
	last, unread := h.heirOf(ctx, first.lead.Account, first)
	if unread != nil {
		return unread
	}
	if last.lead.Phase != lead.Live {
		return lead.ErrNotFound
	}
	return &lead.DepartedError{LeadID: departed.LeadID, Into: last.lead.ID}
}
