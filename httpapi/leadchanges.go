package httpapi

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// updateLead changes a lead by hand.
func (x *exchange) updateLead() (answer, error) {
	return changed(x, func(id string, body map[string]jsontext.Value) (command.LeadUpdated, error) {
		return x.Commands.UpdateLead(x.ctx, command.UpdateLead{Caller: x.caller, LeadID: id, Body: body})
	})
}

// releaseContact frees a phone or email of a lead.
func (x *exchange) releaseContact() (answer, error) {
	return changed(x, func(id string, body map[string]jsontext.Value) (command.LeadUpdated, error) {
		return x.Commands.ReleaseContact(x.ctx, command.ReleaseContact{Caller: x.caller, LeadID: id, Body: body})
	})
}

// joinLeads makes another lead part of one.
func (x *exchange) joinLeads() (answer, error) {
	return changed(x, func(id string, body map[string]jsontext.Value) (command.LeadUpdated, error) {
		return x.Commands.JoinLeads(x.ctx, command.JoinLeads{Caller: x.caller, LeadID: id, Body: body})
	})
}

// changed answers with the lead in the path as a command leaves it.
func changed(x *exchange, change func(id string, body map[string]jsontext.Value) (command.LeadUpdated, error)) (answer, error) {
	id, err := x.ulidID(lead.ErrNotFound)
	if err != nil {
		return answer{}, err
	}
	body, err := x.members()
	if err != nil {
		return answer{}, err
	}
	updated, err := change(id, body)
	return answer{position: updated.Position, body: envelope{Success: true, Data: query.NewLead(updated.Lead)}}, err
}

// eraseLead forgets a person.
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
