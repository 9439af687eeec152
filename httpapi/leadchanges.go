package httpapi

import (
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/query"
)

// updateLead changes a lead by hand.
func (x *exchange) updateLead() (answer, error) {
	id, err := x.ulidID(errNoLead)
	if err != nil {
		return answer{}, err
	}
	body, err := x.members()
	if err != nil {
		return answer{}, err
	}
	updated, err := x.Commands.UpdateLead(x.ctx, command.UpdateLead{Caller: x.caller, LeadID: id, Body: body})
	if err != nil {
		return answer{}, err
	}
	return answer{
		position: updated.Position, body: envelope{Success: true, Data: query.NewLead(updated.Lead)},
	}, nil
}
