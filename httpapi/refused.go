package httpapi

import (
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// listRefused tells which arrivals of the account were answered with a conflict.
func (x *exchange) listRefused() (answer, error) {
	p := x.params()
	filter := query.RefusedFilter{
		Source: p.source(), Code: p.oneOf("code", lead.CodeDuplicateSource, lead.CodeDuplicateEmail), Since: p.time("since"), Until: p.time("until"),
	}
	page := p.page()
	if err := x.waitFor(p, query.RefusedView); err != nil {
		return answer{}, err
	}
	return listed(x.Query.Refused(x.ctx, x.caller.Account, filter, page))
}
