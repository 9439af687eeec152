package httpapi

import (
	"cmp"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// sourceHistory answers where all leads of the account came from: page by page as JSON, all at once as CSV, JSON lines
// or Parquet.
func (x *exchange) sourceHistory() (answer, error) {
	p := x.params()
	filter := query.SourceFilter{Source: p.source(), Since: p.time("since"), Until: p.time("until")}
	page := p.page()
	if err := x.waitFor(p, query.TouchView); err != nil {
		return answer{}, err
	}
	x.w.Header().Add("Vary", "Accept")
	if media := preferred(x.r.Header.Values("Accept"), mediaJSON, mediaCSV, mediaNDJSON,
		mediaParquet); media != mediaJSON {
		return exported(x, "sources", media, export.Sources(),
			x.Query.SourcesAll(x.detached(), x.caller.Account, filter)), nil
	}
	return listed(x.Query.Sources(x.ctx, x.caller.Account, filter, page))
}

// sourceReport counts arrivals by outcome, interval and source.
func (x *exchange) sourceReport() (answer, error) {
	p := x.params()
	filter := query.ReportFilter{
		Interval: cmp.Or(p.oneOf("interval", query.Day, query.Week, query.Month), query.Day),
		Source:   p.source(), Since: p.time("since"), Until: p.time("until"),
	}
	return accountList(x, p, func(page query.Page) (query.List[query.SourceCount], error) {
		return x.Query.SourceReport(x.ctx, x.caller.Account, filter, page)
	}, query.SourceDayView, query.LeadView)
}

// listUsage answers with the account's captures and deliveries of each of the last days, the latest first.
func (x *exchange) listUsage() (answer, error) {
	if err := x.waitFor(x.params(), query.SourceDayView, query.DeliveryQueue); err != nil {
		return answer{}, err
	}
	days, err := x.Query.Usage(x.ctx, x.caller.Account)
	return listed(query.List[query.UsageDay]{Items: days}, err)
}

// listRefused lists the arrivals of the account that were answered with a conflict.
func (x *exchange) listRefused() (answer, error) {
	p := x.params()
	filter := query.RefusedFilter{
		Source: p.source(), Code: p.oneOf("code", lead.CodeDuplicateSource, lead.CodeDuplicateEmail),
		Since: p.time("since"), Until: p.time("until"),
	}
	return accountList(x, p, func(page query.Page) (query.List[query.RefusedArrival], error) {
		return x.Query.Refused(x.ctx, x.caller.Account, filter, page)
	}, query.RefusedView)
}
