package httpapi

import (
	"cmp"
	"context"

	"github.com/leadlog/leadlog/query"
)

// funnel counts leads by stage and first source.
func (ex *exchange) funnel() (answer, error) { return pipeline(ex, ex.Query.Funnel) }

// pipelineArrivals counts new leads and merges over time.
func (ex *exchange) pipelineArrivals() (answer, error) {
	return pipeline(ex, ex.Query.PipelineArrivals)
}

// timeToWon answers how long leads took to be won.
func (ex *exchange) timeToWon() (answer, error) { return pipeline(ex, ex.Query.TimeToWon) }

// pipeline answers with a report as of a position.
func pipeline[T any](
	ex *exchange, report func(context.Context, string, query.PipelineFilter) (T, error),
) (answer, error) {
	p := ex.params()
	filter := query.PipelineFilter{
		Since: p.time("since"), Until: p.time("until"),
		Interval: cmp.Or(p.oneOf("interval", query.Day, query.Week, query.Month), query.Day),
	}
	asOf := p.asOf()
	if err := ex.waitFor(p, query.TouchView); err != nil {
		return answer{}, err
	}
	var err error
	if filter.AsOf, err = ex.positionAsOf(asOf); err != nil {
		return answer{}, err
	}
	return found(report(ex.ctx, ex.caller.Account, filter))
}
