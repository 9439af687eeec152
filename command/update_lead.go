package command

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// UpdateLead asks that a lead be changed by hand.
type UpdateLead struct {
	Caller Caller
	LeadID string
	Body   map[string]jsontext.Value // members of the request's body
}

// LeadUpdated is the answer: the lead as it is after the change.
type LeadUpdated struct {
	Lead     lead.State
	Position eventstore.Position
}

// UpdateLead decides on a change of a lead of the caller's account and appends it.
//
// The errors are lead.ErrNotFound, *lead.DepartedError, field.Errors and those of the store.
func (h *Handlers) UpdateLead(ctx context.Context, cmd UpdateLead) (updated LeadUpdated, err error) {
	if !validID(cmd.LeadID) {
		return LeadUpdated{}, lead.ErrNotFound
	}
	stream := event.LeadStream(cmd.LeadID)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) (err error) {
		updated, err = h.updateLead(ctx, cmd, stream)
		return err
	})
	return updated, err
}

func (h *Handlers) updateLead(ctx context.Context, cmd UpdateLead, stream string) (LeadUpdated, error) {
	state, expect, err := eventstore.Load(ctx, h.store, stream, lead.Fold)
	if err != nil {
		return LeadUpdated{}, err
	}
	account, err := h.directory.ConfirmAccount(ctx, cmd.Caller.Account)
	if err != nil {
		return LeadUpdated{}, err
	}
	opportunity, err := h.newID()
	if err != nil {
		return LeadUpdated{}, err
	}
	rules := lead.Rules{Region: account.State.Region, Stages: account.State.Stages}
	decided, err := state.Update(cmd.Caller.Account, cmd.Body, rules, opportunity.String())
	if err != nil {
		return LeadUpdated{}, h.toHeir(ctx, err)
	}
	write, err := h.write(cmd.Caller, stream, expect, h.after(state.UpdatedAt), decided)
	if err != nil {
		return LeadUpdated{}, err
	}
	position, err := h.store.Append(ctx, account.Check(), write)
	if err != nil {
		return LeadUpdated{}, err
	}
	return LeadUpdated{Lead: evolved(state, stream, write, decided), Position: position}, nil
}
