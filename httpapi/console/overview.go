package console

import (
	"time"

	"github.com/leadlog/leadlog/query"
)

// overview is the first page: arrivals, views and endpoints at a glance.
type overview struct {
	Chart     *chart
	Periods   []period
	Views     []query.Projection
	Lag       uint64 // of the view that is furthest behind
	Stopped   int    // views that no process maintains
	Endpoints []query.Endpoint
	Hooks     bool // endpoints may be seen
	Since     string
}

// period counts arrivals of some days.
type period struct {
	Name                               string
	Captures, Created, Merged, Refused int
}

// chartDays is how many days the chart of the overview has.
const chartDays = 30

func (v *visit) overview() (screen, error) {
	var shown overview
	var err error
	if shown.Views, err = v.Query.Projections(v.ctx); err != nil {
		return screen{}, err
	}
	for _, view := range shown.Views {
		shown.Lag = max(shown.Lag, view.Lag)
		if !view.Running {
			shown.Stopped++
		}
	}
	if v.identity.May("leads:read") {
		if err := v.addArrivals(&shown); err != nil {
			return screen{}, err
		}
	}
	if shown.Hooks = v.identity.May("webhooks:read"); shown.Hooks {
		list, err := v.Query.Endpoints(v.ctx, v.identity.Account, query.Page{Limit: rows})
		if err != nil {
			return screen{}, err
		}
		shown.Endpoints = list.Items
	}
	return screen{name: "overview", title: "Overview", data: shown, live: true}, nil
}

func (v *visit) addArrivals(to *overview) error {
	today := v.Now().UTC().Truncate(24 * time.Hour)
	first := today.AddDate(0, 0, 1-chartDays)
	to.Since = first.Format(time.DateOnly)
	days, err := v.Query.Days(v.ctx, v.identity.Account, first)
	if err != nil {
		return err
	}
	drawn := newChart("Captures by day and source", days, steps(query.ReportFilter{Interval: query.Day, Since: first, Until: today.AddDate(0, 0, 1)}), captures)
	to.Chart = &drawn
	for _, p := range []struct {
		name string
		days int
	}{{"Today", 1}, {"7 days", 7}, {"30 days", chartDays}} {
		to.Periods = append(to.Periods, count(p.name, days, today.AddDate(0, 0, 1-p.days)))
	}
	return nil
}

// captures are arrivals of all outcomes.
func captures(d query.DayCount) int { return d.Created + d.Merged + d.Refused }

func count(name string, days []query.DayCount, since time.Time) period {
	p := period{Name: name}
	for _, d := range days {
		if !d.Day.Before(since) {
			p.Captures += captures(d)
			p.Created, p.Merged, p.Refused = p.Created+d.Created, p.Merged+d.Merged, p.Refused+d.Refused
		}
	}
	return p
}

func (v *visit) projections() (screen, error) {
	views, err := v.Query.Projections(v.ctx)
	if err != nil {
		return screen{}, err
	}
	health := struct {
		Views    []query.Projection
		Troubles []Trouble
	}{Views: views}
	if v.Troubles != nil {
		health.Troubles = v.Troubles(v.ctx)
	}
	return screen{name: "projections", title: "Projections", data: health, live: true}, nil
}

// usageDays is how many days usage is shown of: as many as deliveries are kept.
const usageDays = 30

func (v *visit) usage() (screen, error) {
	days, err := v.usageDays()
	return screen{name: "usage", title: "Usage", data: days, live: true}, err
}

func (v *visit) usageDays() ([]query.UsageDay, error) {
	today := v.Now().UTC().Truncate(24 * time.Hour)
	return v.Query.Usage(v.ctx, v.identity.Account, today.AddDate(0, 0, 1-usageDays), usageDays)
}
