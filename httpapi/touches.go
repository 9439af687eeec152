package httpapi

import (
	"errors"

	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// touches answers every arrival of the account, and the visits if asked: page by page as JSON, all at once as CSV, JSON
// lines or Parquet.
func (ex *exchange) touches() (answer, error) {
	p := ex.params()
	filter := query.TouchFilter{
		Source: p.source(), Medium: p.text("medium"), Campaign: p.text("campaign"), LeadID: p.text("leadId"),
		Since: p.time("since"), Until: p.time("until"), Visits: p.oneOf("include", "visits") != "",
	}
	asOf, err := query.ParseAsOf(p.text("asOf"))
	if err != nil {
		p.wrong.Add("asOf", query.ErrAsOf.Error())
	}
	page := p.page()
	if err := ex.waitFor(p, query.TouchView); err != nil {
		return answer{}, err
	}
	if filter.AsOf, err = ex.Query.PositionAsOf(ex.ctx, asOf); errors.Is(err, query.ErrAsOf) {
		return answer{}, bad("asOf", query.ErrAsOf.Error())
	} else if err != nil {
		return answer{}, err
	}
	ex.w.Header().Add("Vary", "Accept")
	if media := preferred(ex.r.Header.Values("Accept"), mediaJSON, mediaCSV, mediaNDJSON,
		mediaParquet); media != mediaJSON {
		return exported(ex, "touches", media, export.Touches(),
			ex.Query.TouchesAll(ex.detached(), ex.caller.Account, filter)), nil
	}
	return listed(ex.Query.Touches(ex.ctx, ex.caller.Account, filter, page))
}
