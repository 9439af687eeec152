package httpapi

import (
	"errors"

	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// touches answers every arrival of the account, and the visits if asked: page by page as JSON, all at once as CSV, JSON
// lines or Parquet.
func (x *exchange) touches() (answer, error) {
	p := x.params()
	filter := query.TouchFilter{
		Source: p.source(), Medium: p.text("medium"), Campaign: p.text("campaign"), LeadID: p.text("leadId"),
		Since: p.time("since"), Until: p.time("until"), Visits: p.oneOf("include", "visits") != "",
	}
	asOf, err := query.ParseAsOf(p.text("asOf"))
	if err != nil {
		p.wrong.Add("asOf", query.ErrAsOf.Error())
	}
	page := p.page()
	if err := x.waitFor(p, query.TouchView); err != nil {
		return answer{}, err
	}
	if filter.AsOf, err = x.Query.PositionAsOf(x.ctx, asOf); errors.Is(err, query.ErrAsOf) {
		return answer{}, bad("asOf", query.ErrAsOf.Error())
	} else if err != nil {
		return answer{}, err
	}
	x.w.Header().Add("Vary", "Accept")
	if media := preferred(x.r.Header.Values("Accept"), mediaJSON, mediaCSV, mediaNDJSON,
		mediaParquet); media != mediaJSON {
		return exported(x, "touches", media, export.Touches(),
			x.Query.TouchesAll(x.detached(), x.caller.Account, filter)), nil
	}
	return listed(x.Query.Touches(x.ctx, x.caller.Account, filter, page))
}
