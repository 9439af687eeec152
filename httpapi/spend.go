package httpapi

import (
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/spend"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// listSpend answers what days of the account's advertising cost: page by page as JSON, all at once as CSV, JSON lines
// or Parquet.
func (ex *exchange) listSpend() (answer, error) {
	p := ex.params()
	filter := query.SpendFilter{Since: p.time("since"), Until: p.time("until")}
	asOf, page := p.asOf(), p.page()
	if err := ex.waitFor(p, query.TouchView); err != nil {
		return answer{}, err
	}
	var err error
	if filter.AsOf, err = ex.positionAsOf(asOf); err != nil {
		return answer{}, err
	}
	ex.w.Header().Add("Vary", "Accept")
	if media := preferred(ex.r.Header.Values("Accept"), mediaJSON, mediaCSV, mediaNDJSON,
		mediaParquet); media != mediaJSON {
		return streamed(ex, media, export.Spend(),
			ex.Query.SpendAll(ex.detached(), ex.caller.Account, filter)), nil
	}
	return listed(ex.Query.Spend(ex.ctx, ex.caller.Account, filter, page))
}

// setSpend sets what days of the account's advertising cost.
func (ex *exchange) setSpend() (answer, error) {
	body, err := ex.fields("rows")
	if err != nil {
		return answer{}, err
	}
	if err := body.wrong.Err(); err != nil {
		return answer{}, err
	}
	settings, err := ex.Directory.ConfirmAccount(ex.ctx, ex.caller.Account)
	if err != nil {
		return answer{}, err
	}
	rows, err := spend.Parse(body.members["rows"], settings.State.Currency)
	if err != nil {
		return answer{}, err
	}
	set, err := ex.Commands.SetSpend(ex.ctx, command.SetSpend{Caller: ex.caller, Rows: rows})
	return answer{
		position: set.Position, body: envelope{Success: true, Data: spendSet{len(rows), set.Changed}},
	}, err
}

// spendSet is what became of the rows of a request.
type spendSet struct {
	Rows    int `json:"rows"`
	Changed int `json:"changed"`
}
