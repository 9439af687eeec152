package command

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// JoinLeads is the command that merges one lead into another, because both turned out to be the same person.
type JoinLeads struct {
	Caller Caller
	LeadID string                    // of the lead that stays
	Body   map[string]jsontext.Value // members of the request's body: from
}

// JoinLeads joins one lead of the caller's account into another, which gets its missing values, and moves its claims,
// in one append. A repeated join changes nothing. A caller who does not see leads gets only the ids.
//
// The errors are lead.ErrNotFound, *lead.JoinedError, field.Errors and those of the store.
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
	from, err := h.loadLead(ctx, fromStream)
	if err != nil {
		return LeadUpdated{}, err
	}
	into, err := h.loadLead(ctx, intoStream)
	if err != nil {
		return LeadUpdated{}, err
	}
	account, err := h.directory.ConfirmAccount(ctx, caller.Account)
	if err != nil {
		return LeadUpdated{}, err
	}
	source, joined, err := into.lead.Join(caller.Account, from.lead)
	if err != nil {
		return h.joinedBefore(ctx, caller, into, from, account, err)
	}
	at := h.after(latestUpdate(into.lead, from.lead))
	ended, err := h.write(caller, from.stream, from.expect, at, source)
	if err != nil {
		return LeadUpdated{}, err
	}
	arrival, err := h.write(caller, into.stream, into.expect, at, joined)
	if err != nil {
		return LeadUpdated{}, err
	}
	moved, err := h.moveClaims(ctx, caller, from.lead, into.lead.ID)
	if err != nil {
		return LeadUpdated{}, err
	}
	writes := append(append(moved, account.Check()), ended, arrival)
	position, err := h.store.Append(ctx, writes...)
	if err != nil {
		return LeadUpdated{}, err
	}
	return LeadUpdated{Lead: evolved(into.lead, into.stream, arrival, joined), Position: position}, nil
}

// joinedBefore answers when one of the two leads was joined before. If it was joined as this command asks, this is the
// same join again, even if the surviving lead was joined into another since; otherwise the refusal counts.
func (h *Handlers) joinedBefore(
	ctx context.Context, caller Caller, into, from loadedLead, account *Cached[account.State], refused error,
) (LeadUpdated, error) {
	again, ok := errors.AsType[*lead.JoinedError](from.lead.Present(caller.Account))
	if !ok {
		return LeadUpdated{}, h.nameSurvivingLead(ctx, refused)
	}
	survivor, err := h.survivingLead(ctx, from)
	if err != nil {
		return LeadUpdated{}, err
	}
	if again.Into != into.lead.ID && survivor.lead.ID != into.lead.ID || survivor.lead.Phase != lead.Live {
		return LeadUpdated{}, h.nameSurvivingLead(ctx, refused)
	}
	position, err := h.store.Append(ctx, account.Check())
	if err != nil {
		return LeadUpdated{}, err
	}
	return LeadUpdated{Lead: survivor.lead, Position: position}, nil
}

// moveClaims returns the writes that give the claims of a lead to another.
func (h *Handlers) moveClaims(
	ctx context.Context, caller Caller, from lead.State, to string,
) (moved []eventstore.Write, err error) {
	for _, kind := range []claim.Kind{claim.Phone, claim.Email} {
		for _, value := range values(from, kind) {
			stream := h.claims.Stream(caller.Account, kind, value)
			claimed, expect, err := eventstore.Load(ctx, h.store, stream, claim.Evolve)
			if err != nil {
				return nil, err
			}
			if claimed.Holder != from.ID {
				continue
			}
			write, err := h.write(systemCaller(caller.Account), stream, expect, h.after(claimed.UpdatedAt),
				event.ClaimTaken{Kind: string(kind), Holder: to})
			if err != nil {
				return nil, err
			}
			moved = append(moved, write)
		}
	}
	return moved, nil
}

// latestUpdate is the time of the latest event of two leads.
func latestUpdate(a, b lead.State) time.Time {
	if a.UpdatedAt.After(b.UpdatedAt) {
		return a.UpdatedAt
	}
	return b.UpdatedAt
}
