package httpapi

import (
	"cmp"
	"context"

	"github.com/leadlog/leadlog/query"
)

// funnel counts leads by stage and first source.
func (x *exchange) funnel() (answer, error) { return pipeline(x, x.Query.Funnel) }

// pipelineArrivals counts new leads and merges over time.
func (x *exchange) pipelineArrivals() (answer, error) { return pipeline(x, x.Query.PipelineArrivals) }

// timeToWon answers how long leads took to be won.
func (x *exchange) timeToWon() (answer, error) { return pipeline(x, x.Query.TimeToWon) }

// pipeline answers with a report as of a position.
func pipeline[T any](
	x *exchange, report func(context.Context, string, query.PipelineFilter) (T, error),
) (answer, error) {
	p := x.params()
	filter := query.PipelineFilter{
		Since: p.time("since"), Until: p.time("until"),
		Interval: cmp.Or(p.oneOf("interval", query.Day, query.Week, query.Month), query.Day),
	}
	asOf := p.asOf()
	if err := x.waitFor(p, query.TouchView); err != nil {
		return answer{}, err
	}
	var err error
	if filter.AsOf, err = x.positionAsOf(asOf); err != nil {
		return answer{}, err
	}
	return found(report(x.ctx, x.caller.Account, filter))
}
