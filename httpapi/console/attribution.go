package console

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/attribution"
)

// attributionPage shows conversions of a span of time, divided among their touches.
type attributionPage struct {
	Filter       map[string]string
	Wrong        field.Errors
	Models, Keys []string
	Chips        []chip
	Report       query.Attribution
	Steps        []stepBar
}

// Named returns the display name of a row: a source has one, other keys are shown as they were sent.
func (p attributionPage) Named(key string) string {
	if p.Filter["by"] == string(attribution.BySource) {
		return words(key)
	}
	return key
}

// stepBar is a step of the paths that led to conversions, drawn as a bar.
type stepBar struct {
	attribution.Step
	Class string  // its colour: that of the first source
	Width float64 // in hundredths of the most frequent one
}

// stepsShown bounds the picture of paths.
const stepsShown = 25

func stepBars(steps []attribution.Step, by attribution.Key) (bars []stepBar) {
	for _, step := range steps {
		bar := stepBar{Step: step, Width: 100 * float64(step.Count) / float64(steps[0].Count)}
		if by == attribution.BySource {
			bar.Class = class(step.From)
		}
		bars = append(bars, bar)
	}
	return bars
}

func (v *visit) attribution() (screen, error) {
	p := v.params()
	span := v.reportFilter(p)
	model, asOf := p.model(), p.text("asOf")
	by := cmp.Or(p.oneOf("by", attribution.Keys()...), string(attribution.BySource))
	at, err := query.ParseAsOf(asOf)
	if err != nil {
		p.wrong.Add("asOf", err.Error())
	}
	shown := attributionPage{
		Wrong: p.wrong, Models: attribution.Models(), Keys: attribution.Keys(), Chips: p.chips("since", "until", "asOf"),
		Filter: map[string]string{
			"model": string(model), "by": by, "asOf": asOf, "since": span.Since.Format(time.DateOnly), "until": span.Until.AddDate(0, 0, -1).Format(time.DateOnly),
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
			Model: model, Since: span.Since, Until: span.Until, Window: attribution.DefaultWindow, HalfLife: attribution.DefaultHalfLife,
		}
		filter.By = attribution.Key(by)
		if shown.Wrong == nil {
			var steps []attribution.Step
			if shown.Report, steps, err = v.Query.AttributionPaths(v.ctx, v.identity.Account, filter, stepsShown); err != nil {
				return screen{}, err
			}
			shown.Steps = stepBars(steps, filter.By)
		}
	}
	status := http.StatusOK
	if shown.Wrong != nil {
		status = http.StatusBadRequest
	}
	page := screen{name: "attribution", title: "Attribution", status: status, data: shown}
	if shown.Wrong == nil {
		since, until := stamp(span.Since), stamp(span.Until)
		page.calls = v.calls(
			v.get("leads:read", "These credits", "/api/v1/crm/attribution", "model", string(model), "by", by, "since", since, "until", until, "asOf", asOf),
			v.program("leads:read", "As a report with its proof", "report attribution", "--model", string(model), "--by", by, "--since", since, "--until", until, "--as-of", asOf,
				"--out", "report.json"))
	}
	return page, nil
}

// model reads a model of attribution, the last touch by default.
func (p *params) model() attribution.Model {
	return attribution.Model(cmp.Or(p.oneOf("model", attribution.Models()...), string(attribution.Last)))
}
