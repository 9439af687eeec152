package httpapi

import (
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/spend"
)

// setSpend sets what days of the account's advertising cost.
func (ex *exchange) setSpend() (answer, error) {
	body, err := ex.fields()
	if err != nil {
		return answer{}, err
	}
	body.only("rows")
	if err := body.wrong.Err(); err != nil {
		return answer{}, err
	}
	rows, err := spend.Parse(body.members["rows"])
	if err != nil {
		return answer{}, err
	}
	changed, position, err := ex.Commands.SetSpend(ex.ctx, command.SetSpend{Caller: ex.caller, Rows: rows})
	return answer{position: position, body: envelope{Success: true, Data: spendSet{len(rows), changed}}}, err
}

// spendSet is what became of the rows of a request.
type spendSet struct {
	Rows    int `json:"rows"`
	Changed int `json:"changed"`
}
