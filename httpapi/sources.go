package httpapi

import (
	"cmp"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/export"
)

// sourceHistory answers where all leads of the account came from: page by page as JSON, all at once as CSV, JSON lines
// or Parquet.
func (ex *exchange) sourceHistory() (answer, error) {
	p := ex.params()
	filter := query.SourceFilter{Source: p.source(), Since: p.time("since"), Until: p.time("until")}
	page := p.page()
	if err := ex.waitFor(p, query.TouchView); err != nil {
		return answer{}, err
	}
	ex.w.Header().Add("Vary", "Accept")
	if media := preferred(ex.r.Header.Values("Accept"), mediaJSON, mediaCSV, mediaNDJSON,
		mediaParquet); media != mediaJSON {
		return exported(ex, "sources", media, export.Sources(),
			ex.Query.SourcesAll(ex.detached(), ex.caller.Account, filter)), nil
	}
	return listed(ex.Query.Sources(ex.ctx, ex.caller.Account, filter, page))
}

// sourceReport counts arrivals by outcome, interval and source.
func (ex *exchange) sourceReport() (answer, error) {
	p := ex.params()
	filter := query.ReportFilter{
		Interval: cmp.Or(p.oneOf("interval", query.Day, query.Week, query.Month), query.Day),
		Source:   p.source(), Since: p.time("since"), Until: p.time("until"),
	}
	return accountList(ex, p, func(page query.Page) (query.List[query.SourceCount], error) {
		return ex.Query.SourceReport(ex.ctx, ex.caller.Account, filter, page)
	}, query.SourceDayView, query.LeadView)
}

// listUsage answers with the account's captures and deliveries of each of the last days, the latest first.
func (ex *exchange) listUsage() (answer, error) {
	if err := ex.waitFor(ex.params(), query.SourceDayView, query.DeliveryQueue); err != nil {
		return answer{}, err
	}
	days, err := ex.Query.Usage(ex.ctx, ex.caller.Account)
	return listed(query.List[query.UsageDay]{Items: days}, err)
}

// listRefused lists the arrivals of the account that were answered with a conflict.
func (ex *exchange) listRefused() (answer, error) {
	p := ex.params()
	filter := query.RefusedFilter{
		Source: p.source(), Code: p.oneOf("code", lead.CodeDuplicateSource, lead.CodeDuplicateEmail),
		Since: p.time("since"), Until: p.time("until"),
	}
	return accountList(ex, p, func(page query.Page) (query.List[query.RefusedArrival], error) {
		return ex.Query.Refused(ex.ctx, ex.caller.Account, filter, page)
	}, query.RefusedView)
}
