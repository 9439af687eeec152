package command

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// SplitLead is the command that takes arrivals of another person from a lead, as a lead of their own, or that undoes a
// join.
type SplitLead struct {
	Caller Caller
	LeadID string                    // of the lead that stays
	Body   map[string]jsontext.Value // members of the request's body: touches, phone, email or lead
	DryRun bool                      // decide only
}

// LeadSplit is the answer: both leads as they are after the split, or their ids and times, for a caller who does not
// see leads.
type LeadSplit struct {
	Leaves, Stays lead.State
	Undone        bool // the lead that leaves had been a lead before
	Arrivals      int  // that leave
	Position      eventstore.Position
}

// SplitLead divides the arrivals of a lead of the caller's account, and moves the claims of the lead that leaves, in
// one append.
//
// The errors are lead.ErrNotFound, *lead.JoinedError, field.Errors and those of the store.
func (h *Handlers) SplitLead(ctx context.Context, cmd SplitLead) (split LeadSplit, err error) {
	if !event.ValidID(cmd.LeadID) {
		return LeadSplit{}, lead.ErrNotFound
	}
	stream := event.LeadStream(cmd.LeadID)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) (err error) {
		split, err = h.splitLead(ctx, cmd, stream)
		return err
	})
	if err != nil {
		return LeadSplit{}, err
	}
	if !cmd.Caller.seesLeads() {
		split.Leaves, split.Stays = split.Leaves.SetBy(nil), split.Stays.SetBy(nil)
	}
	return split, nil
}

func (h *Handlers) splitLead(ctx context.Context, cmd SplitLead, stream string) (LeadSplit, error) {
	stays, err := h.loadLead(ctx, stream)
	if err != nil {
		return LeadSplit{}, err
	}
	account, err := h.directory.ConfirmAccount(ctx, cmd.Caller.Account)
	if err != nil {
		return LeadSplit{}, err
	}
	if err := stays.lead.Present(cmd.Caller.Account); err != nil {
		return LeadSplit{}, h.nameSurvivingLead(ctx, err)
	}
	rules := lead.RulesOf(account.State, contact.Call)
	request, err := lead.ParseSplit(cmd.Body, rules)
	if err != nil {
		return LeadSplit{}, err
	}
	history, err := h.leadHistory(ctx, stream)
	if err != nil {
		return LeadSplit{}, err
	}
	ids, err := h.newIDs(4)
	if err != nil {
		return LeadSplit{}, err
	}
	decided, err := stays.lead.Split(cmd.Caller.Account, request, history, rules, lead.NewIDs{
		Lead: ids[0], Contact: ids[1], Opportunity: ids[2],
	}, ids[3])
	if err != nil {
		return LeadSplit{}, err
	}
	leaves := loadedLead{stream: event.LeadStream(decided.LeavesID), expect: eventstore.NoStream}
	if decided.Leaves.Undone {
		if leaves, err = h.loadLead(ctx, leaves.stream); err != nil {
			return LeadSplit{}, err
		}
	}
	at := h.after(latestUpdate(stays.lead, leaves.lead))
	left, err := h.write(cmd.Caller, leaves.stream, leaves.expect, at, decided.Leaves)
	if err != nil {
		return LeadSplit{}, err
	}
	remains, err := h.write(cmd.Caller, stays.stream, stays.expect, at, decided.Stays)
	if err != nil {
		return LeadSplit{}, err
	}
	is := decided.Leaves.Is
	moved, err := h.moveClaims(ctx, cmd.Caller, lead.State{
		ID: cmd.LeadID, Phones: is.Phones, Emails: is.Emails,
	}, decided.LeavesID)
	if err != nil {
		return LeadSplit{}, err
	}
	split := LeadSplit{
		Leaves: evolved(leaves.lead, leaves.stream, left, decided.Leaves),
		Stays:  evolved(stays.lead, stays.stream, remains, decided.Stays),
		Undone: decided.Leaves.Undone, Arrivals: len(decided.Leaves.Touches),
	}
	if cmd.DryRun {
		return split, nil
	}
	split.Position, err = h.store.Append(ctx, append(append(moved, account.Check()), left, remains)...)
	return split, err
}

// LeadParts returns what a split can take from a lead of an account. The errors are lead.ErrNotFound, *lead.JoinedError
// and those of the store.
func (h *Handlers) LeadParts(ctx context.Context, account, id string) (lead.Parts, error) {
	if !event.ValidID(id) {
		return lead.Parts{}, lead.ErrNotFound
	}
	stream := event.LeadStream(id)
	loaded, err := h.loadLead(ctx, stream)
	if err != nil {
		return lead.Parts{}, err
	}
	if err := loaded.lead.Present(account); err != nil {
		return lead.Parts{}, err
	}
	history, err := h.leadHistory(ctx, stream)
	if err != nil {
		return lead.Parts{}, err
	}
	return loaded.lead.Parts(history), nil
}

// leadHistory reads the events of a lead, of the leads that were joined into it and of those that it left, in the order
// of the log.
func (h *Handlers) leadHistory(ctx context.Context, stream string) ([]event.Fact, error) {
	return eventstore.ReadRelated(ctx, h.store, stream, lead.Related)
}
