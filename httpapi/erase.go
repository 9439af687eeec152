package httpapi

import "github.com/leadlog/leadlog/command"

// eraseLead forgets a person.
func (x *exchange) eraseLead() (answer, error) {
	id, err := x.ulidID(errNoLead)
	if err != nil {
		return answer{}, err
	}
	erased, err := x.Commands.EraseLead(x.ctx, command.EraseLead{Caller: x.caller, LeadID: id})
	if err != nil {
		return answer{}, err
	}
	if erased.Again {
		return answer{}, errNoLead
	}
	return answer{position: erased.Position, body: envelope{Success: true, Message: "Lead erased"}}, nil
}
