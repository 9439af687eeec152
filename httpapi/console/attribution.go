package console

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// attributionPage shows conversions of a span of time, divided among their touches.
type attributionPage struct {
	Filter       map[string]string
	Wrong        field.Errors
	Models, Keys []string
	Chips        []chip
	Query        string // of exports
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

// Costs reports whether advertising cost anything on the days of the report.
func (p attributionPage) Costs() bool {
	cost := p.Report.Total.Cost
	return cost != "" && cost != query.Unknown
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
	filter, err := v.attributionFilter(p)
	if err != nil {
		return screen{}, err
	}
	model, by, asOf := string(filter.Model), string(filter.By), p.text("asOf")
	shown := attributionPage{
		Wrong: p.wrong, Models: attribution.Models(), Keys: attribution.Keys(),
		Chips: p.chips("since", "until", "asOf"), Query: p.with("", ""),
		Filter: map[string]string{
			"model": model, "by": by, "asOf": asOf, "since": filter.Since.Format(time.DateOnly),
			"until": filter.Until.AddDate(0, 0, -1).Format(time.DateOnly),
		},
	}
	page := screen{name: "attribution", title: "Attribution"}
	if shown.Wrong != nil {
		page.status, page.data = http.StatusBadRequest, shown
		return page, nil
	}
	var steps []attribution.Step
	if shown.Report, steps, err = v.Query.AttributionPaths(v.ctx, v.identity.Account, filter, stepsShown); err != nil {
		return screen{}, err
	}
	shown.Steps = stepBars(steps, filter.By)
	page.data = shown
	since, until := stamp(filter.Since), stamp(filter.Until)
	cost, program := "", "report attribution"
	if shown.Costs() {
		cost, program = "true", program+" --cost"
	}
	page.calls = v.calls(
		v.get("leads:read", "These credits", "/api/v1/crm/attribution", "model", model, "by", by, "since", since,
			"until", until, "cost", cost, "asOf", asOf),
		v.program("leads:read", "As a report with its proof", program, "--model", model, "--by", by,
			"--since", since, "--until", until, "--as-of", asOf,
			"--out", "report.json"))
	return page, nil
}

// attributionFilter reads the parameters of a report, by default of the last 30 days.
func (v *visit) attributionFilter(p *params) (query.AttributionFilter, error) {
	span := v.reportFilter(p)
	filter := query.AttributionFilter{
		Rules: attribution.Rules{
			Model: p.model(), Since: span.Since, Until: span.Until, Window: attribution.DefaultWindow,
			HalfLife: attribution.DefaultHalfLife,
		},
		By:   attribution.Key(cmp.Or(p.oneOf("by", attribution.Keys()...), string(attribution.BySource))),
		Cost: true,
	}
	var err error
	filter.AsOf, err = v.positionAsOf(p)
	return filter, err
}

// positionAsOf returns the position that the parameter asOf means, if no parameter is wrong.
func (v *visit) positionAsOf(p *params) (eventstore.Position, error) {
	at, err := query.ParseAsOf(p.text("asOf"))
	if err != nil {
		p.wrong.Add("asOf", err.Error())
	}
	if p.wrong != nil {
		return 0, nil
	}
	position, err := v.Query.PositionAsOf(v.ctx, at)
	if errors.Is(err, query.ErrAsOf) {
		p.wrong.Add("asOf", query.ErrAsOf.Error())
		return 0, nil
	}
	return position, err
}

// model reads a model of attribution, the last touch by default.
func (p *params) model() attribution.Model {
	return attribution.Model(cmp.Or(p.oneOf("model", attribution.Models()...), string(attribution.Last)))
}
