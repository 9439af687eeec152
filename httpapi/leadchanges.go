package httpapi

import (
	"context"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// updateLead changes a lead by hand, releaseContact frees a phone or email of it, and joinLeads makes another lead part of it.
func (x *exchange) updateLead() (answer, error)     { return changed(x, x.Commands.UpdateLead) }
func (x *exchange) releaseContact() (answer, error) { return changed(x, x.Commands.ReleaseContact) }
func (x *exchange) joinLeads() (answer, error)      { return changed(x, x.Commands.JoinLeads) }

// changing is a command that changes a lead according to a body.
type changing interface {
	command.UpdateLead | command.ReleaseContact | command.JoinLeads
}

// changed calls a command for the lead in the path, and answers with the lead after it.
func changed[C changing](x *exchange, change func(context.Context, C) (command.LeadUpdated, error)) (answer, error) {
	id, err := x.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	body, err := x.members()
	if err != nil {
		return answer{}, err
	}
	updated, err := change(x.ctx, C(command.UpdateLead{Caller: x.caller, LeadID: id, Body: body}))
	return answer{position: updated.Position, body: envelope{Success: true, Data: query.NewLead(updated.Lead)}}, err
}

// eraseLead erases a lead, and with it what is known of a person.
func (x *exchange) eraseLead() (answer, error) {
	id, err := x.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	erased, err := x.Commands.EraseLead(x.ctx, command.EraseLead{Caller: x.caller, LeadID: id})
	if err == nil && erased.Again {
		err = lead.ErrNotFound
	}
	return done("Lead erased", erased.Position, err)
}
