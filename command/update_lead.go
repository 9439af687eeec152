package command

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// UpdateLead is the command that changes a lead by hand.
type UpdateLead struct {
	Caller Caller
	LeadID string
	Body   map[string]jsontext.Value // members of the request's body
}

// LeadUpdated is the answer: the lead as it is after the change, or what the change set of it, for a caller who does
// not see leads.
type LeadUpdated struct {
	Lead     lead.State
	Position eventstore.Position
}

// UpdateLead decides on a change of a lead of the caller's account and appends it. When nothing changes, nothing is
// appended.
//
// The errors are lead.ErrNotFound, *lead.JoinedError, field.Errors and those of the store.
func (h *Handlers) UpdateLead(ctx context.Context, cmd UpdateLead) (LeadUpdated, error) {
	var given event.LeadUpdated
	updated, err := h.changeLead(ctx, cmd.Caller, cmd.LeadID, func(
		state lead.State, rules lead.Rules,
	) (event.Data, error) {
		opportunity, err := h.newID()
		if err != nil {
			return nil, err
		}
		given, err = state.Update(cmd.Caller.Account, cmd.Body, rules, opportunity.String())
		if err != nil || len(given.Changed) == 0 {
			return nil, err
		}
		return given, nil
	}, func(ctx context.Context, account, fact eventstore.Write) (eventstore.Position, error) {
		return h.store.Append(ctx, account, fact)
	})
	return updated.shownTo(cmd.Caller, given), err
}

// shownTo returns the answer as a caller may see it: without the right to read leads, only what a fact set.
func (u LeadUpdated) shownTo(caller Caller, fact event.Data) LeadUpdated {
	if !caller.seesLeads() {
		u.Lead = u.Lead.SetBy(fact)
	}
	return u
}

// changeLead calls decide with a lead and the account's rules, and put with a check of the account and the decided
// fact, which it must append. After a conflict it does both again. If decide returns no fact, the answer is the lead as
// it is, at the log's head.
func (h *Handlers) changeLead(ctx context.Context, caller Caller, id string,
	decide func(lead.State, lead.Rules) (event.Data, error),
	put func(ctx context.Context, account, fact eventstore.Write) (eventstore.Position, error),
) (updated LeadUpdated, err error) {
	if !event.ValidID(id) {
		return LeadUpdated{}, lead.ErrNotFound
	}
	stream := event.LeadStream(id)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		loaded, err := h.loadLead(ctx, stream)
		if err != nil {
			return err
		}
		account, err := h.directory.ConfirmAccount(ctx, caller.Account)
		if err != nil {
			return err
		}
		decided, err := decide(loaded.lead, lead.RulesOf(account.State, contact.Call))
		if err != nil {
			return h.nameSurvivingLead(ctx, err)
		}
		if decided == nil {
			updated.Lead = loaded.lead
			updated.Position, err = h.store.Head(ctx)
			return err
		}
		fact, err := h.write(caller, stream, loaded.expect, h.after(loaded.lead.UpdatedAt), decided)
		if err != nil {
			return err
		}
		position, err := put(ctx, account.Check(), fact)
		if err != nil {
			return err
		}
		updated = LeadUpdated{Lead: evolved(loaded.lead, stream, fact, decided), Position: position}
		return nil
	})
	return updated, err
}

// evolved returns a lead after the fact of a write to its stream.
func evolved(state lead.State, stream string, write eventstore.Write, data event.Data) lead.State {
	fact := write.Events[0]
	return lead.Evolve(state, event.Fact{ID: fact.ID, Stream: stream, At: fact.At, Metadata: fact.Metadata, Data: data})
}
