package console

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/attribution"
)

// attributionPage is which touches led to what was won in a span of time.
type attributionPage struct {
	Filter       map[string]string
	Wrong        field.Errors
	Models, Keys []string
	Report       query.Attribution
}

func (v *visit) attribution() (screen, error) {
	p := v.params()
	span := v.reportFilter(p)
	model, by, asOf := p.text("model"), p.text("by"), p.text("asOf")
	if !slices.Contains(attribution.Models(), model) {
		model = string(attribution.Last)
	}
	if !slices.Contains(attribution.Keys(), by) {
		by = string(attribution.BySource)
	}
	at, err := query.ParseAsOf(asOf)
	if err != nil {
		p.wrong.Add("asOf", err.Error())
	}
	shown := attributionPage{
		Wrong: p.wrong, Models: attribution.Models(), Keys: attribution.Keys(),
		Filter: map[string]string{
			"model": model, "by": by, "asOf": asOf, "since": span.Since.Format(time.DateOnly), "until": span.Until.AddDate(0, 0, -1).Format(time.DateOnly),
		},
	}
	if shown.Wrong == nil {
		var filter query.AttributionFilter
		filter.AsOf, err = v.Query.PositionAsOf(v.ctx, at)
		if errors.Is(err, query.ErrAsOf) {
			shown.Wrong.Add("asOf", query.ErrAsOf.Error())
		} else if err != nil {
			return screen{}, err
		}
		filter.Rules = attribution.Rules{
			Model: attribution.Model(model), Since: span.Since, Until: span.Until, Window: attribution.DefaultWindow, HalfLife: attribution.DefaultHalfLife,
		}
		filter.By = attribution.Key(by)
		if shown.Wrong == nil {
			if shown.Report, err = v.Query.Attribution(v.ctx, v.identity.Account, filter); err != nil {
				return screen{}, err
			}
		}
	}
	status := http.StatusOK
	if shown.Wrong != nil {
		status = http.StatusBadRequest
	}
	return screen{name: "attribution", title: "Attribution", status: status, data: shown}, nil
}
