package httpapi

import (
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
)

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
