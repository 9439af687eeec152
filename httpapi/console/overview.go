package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/query"
)

// overview is the first page: arrivals, views and endpoints at a glance.
type overview struct {
	Storage   int            // bytes that the account may store in a day, of which few are left; 0: enough
	Failing   []query.Intake // intakes whose latest arrivals were quarantined
	Preview   bool           // their arrivals may be previewed
	Start     *start         // nil: the account is past the first steps
	Demo      *demo          // nil: it has none
	Chart     *chart
	Periods   []period
	Views     []query.Projection
	Lag       uint64 // of the view that is furthest behind
	Stopped   int    // views that no process maintains
	Endpoints []query.Endpoint
	Hooks     bool // endpoints may be seen
	Since     string
	Before    *earlier // nil: there is no comparison
}

// period counts arrivals of some days.
type period struct {
	Name                               string
	Captures, Created, Merged, Refused int
	Then                               string // the same of the period before; empty: there is no comparison
}

// chartDays is how many days the chart of the overview has.
const chartDays = 30

func (v *visit) overview(mask masker) (screen, error) {
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
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	if settings.State.StorageLow(v.Now()) {
		shown.Storage = settings.State.StoragePerDay
	}
	if v.identity.May("leads:read") {
		if err := v.addArrivals(&shown); err != nil {
			return screen{}, err
		}
		if err := v.addStart(&shown, mask); err != nil {
			return screen{}, err
		}
	}
	if v.identity.May("intakes:read") {
		list, err := v.Query.Intakes(v.ctx, v.identity.Account, query.Page{Limit: rows})
		if err != nil {
			return screen{}, err
		}
		shown.Failing = slices.DeleteFunc(list.Items, func(i query.Intake) bool { return i.State != intake.Failing })
		shown.Preview = v.caller.ReadsLeads && v.identity.May("intakes:write")
	}
	if shown.Hooks = v.identity.May("webhooks:read"); shown.Hooks {
		list, err := v.Query.Endpoints(v.ctx, v.identity.Account, query.Page{Limit: rows})
		if err != nil {
			return screen{}, err
		}
		shown.Endpoints = list.Items
	}
	calls := v.calls(
		v.get("leads:read", "Captures by day and source", "/api/v1/crm/sources/report", "since",
			shown.Since+"T00:00:00Z"), v.endpointsCall(),
	)
	page := screen{name: "overview", title: "Overview", data: shown, live: true, calls: calls}
	if shown.Start != nil && shown.Start.Lead != nil {
		page.reveals = mask.reveals(shown.Start.Lead.LeadID)
	}
	return page, nil
}

func (v *visit) addArrivals(to *overview) error {
	today := v.Now().UTC().Truncate(day)
	shown := query.ReportFilter{
		Interval: query.Day, Since: today.AddDate(0, 0, 1-chartDays), Until: today.AddDate(0, 0, 1),
	}
	to.Since = shown.Since.Format(time.DateOnly)
	p, from := v.params(), shown.Since
	var err error
	if p.text("compare") == comparing {
		to.Before = earlierPeriod(shown)
		if to.Before.First, err = v.Query.FirstDay(v.ctx, v.identity.Account); err != nil {
			return err
		}
		from = to.Before.Since
	}
	days, err := v.Query.Days(v.ctx, v.identity.Account, from)
	if err != nil {
		return err
	}
	begin, _ := slices.BinarySearchFunc(days, shown.Since, func(d query.DayCount, at time.Time) int {
		return d.Day.Compare(at)
	})
	if to.Before != nil {
		to.Before.Counts = days[:begin]
	}
	drawn := newChart(series{
		title: "Captures by day and source", interval: query.Day, steps: steps(shown), counts: days[begin:],
		count: captures, before: to.Before,
	})
	drawn.Switch = p.compared()
	to.Chart = &drawn
	for _, p := range []struct {
		name string
		days int
	}{{"Today", 1}, {"7 days", 7}, {"30 days", chartDays}} {
		since := today.AddDate(0, 0, 1-p.days)
		one := count(p.name, days, since, shown.Until)
		if to.Before != nil && !to.Before.First.IsZero() && to.Before.First.Before(since) {
			then := count("", days, since.AddDate(0, 0, -p.days), since).Captures
			if one.Then = changeFrom(one.Captures, then) + " in the " + p.name + " before"; p.days == 1 {
				one.Then = number(then) + " in all of yesterday" // a part of a day is not compared with a whole one
			}
		}
		to.Periods = append(to.Periods, one)
	}
	return nil
}

// compared is the query string of the page with the period before, or without it if it is shown.
func (p *params) compared() string {
	if p.text("compare") == comparing {
		return cmp.Or(p.with("compare", ""), "?")
	}
	return p.with("compare", comparing)
}

// captures are arrivals of all outcomes.
func captures(d query.DayCount) int { return d.Created + d.Merged + d.Refused }

func count(name string, days []query.DayCount, since, until time.Time) period {
	p := period{Name: name}
	for _, d := range days {
		if !d.Day.Before(since) && d.Day.Before(until) {
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
	ready := v.get("", "Whether the database, the log and the views are available", "/readyz")
	return screen{name: "projections", title: "Data status", data: health, live: true, calls: v.calls(ready)}, nil
}

// usagePage is what an account did, and how long it keeps leads.
type usagePage struct {
	Days          []query.UsageDay
	RetentionDays int    // 0: without end
	KeepStages    string // a list
}

func (v *visit) usage() (screen, error) {
	days, err := v.Query.Usage(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	shown := usagePage{days, settings.State.RetentionDays, strings.Join(settings.State.KeepStages, ", ")}
	calls := v.calls(v.get("leads:read", "Usage by day", "/api/v1/crm/usage"),
		v.get("leads:read", "Leads that are due to be erased", "/api/v1/crm/retention"))
	return screen{name: "usage", title: "Usage", data: shown, live: true, calls: calls}, nil
}
