package httpapi

import (
	"cmp"
	"errors"
	"time"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// attribution divides conversions among their touches.
func (ex *exchange) attribution() (answer, error) {
	p := ex.params()
	filter := query.AttributionFilter{
		Rules: attribution.Rules{
			Model: attribution.Model(cmp.Or(p.oneOf("model", attribution.Models()...), string(attribution.Last))),
			Since: p.time("since"), Until: p.time("until"),
			Window: p.duration("window", attribution.DefaultWindow, attribution.Day, attribution.MaxWindow),
			HalfLife: p.duration("halfLife", attribution.DefaultHalfLife, attribution.MinHalfLife,
				attribution.MaxHalfLife),
		},
		By:     attribution.Key(cmp.Or(p.oneOf("by", attribution.Keys()...), string(attribution.BySource))),
		Visits: p.oneOf("include", "visits") != "",
	}
	filter.Cost = p.flag("cost")
	asOf := p.asOf()
	if err := ex.waitFor(p, query.TouchView); err != nil {
		return answer{}, err
	}
	var err error
	if filter.AsOf, err = ex.positionAsOf(asOf); err != nil {
		return answer{}, err
	}
	return found(ex.Query.Attribution(ex.ctx, ex.caller.Account, filter))
}

// duration reads whole days or hours, within bounds.
func (p *params) duration(name string, without, least, most time.Duration) time.Duration {
	value := p.text(name)
	if value == "" {
		return without
	}
	d, err := attribution.ParseDuration(value)
	if err != nil || d < least || d > most {
		p.wrong.Add(name,
			"must be days or hours such as 7d or 12h, from "+attribution.FormatDuration(least)+" to "+
				attribution.FormatDuration(most))
		return without
	}
	return d
}

// asOf reads a time or a position.
func (p *params) asOf() query.AsOf {
	asOf, err := query.ParseAsOf(p.text("asOf"))
	if err != nil {
		p.wrong.Add("asOf", err.Error())
	}
	return asOf
}

// positionAsOf returns the position that a list or report is as of. An account may have as many requests waiting for a
// view as in waitFor.
func (ex *exchange) positionAsOf(asOf query.AsOf) (eventstore.Position, error) {
	waiting := ex.load.waiting.of(ex.caller.Account)
	if !waiting.reserve(1) {
		return 0, errOverloaded
	}
	defer waiting.release(1)
	position, err := ex.Query.PositionAsOf(ex.ctx, asOf)
	if errors.Is(err, query.ErrAsOf) {
		return 0, bad("asOf", query.ErrAsOf.Error())
	}
	return position, err
}
