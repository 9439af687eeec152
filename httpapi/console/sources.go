package console

import (
	"cmp"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// sourcePage shows the captures and the value of each source in a span of time.
type sourcePage struct {
	filtered
	Sources   []string // that can be asked for
	Intervals []string
	Totals    []sourceTotal         // of all of the time
	Counts    []query.SourceCount   // by interval and source, the first of them
	Cut       bool                  // there are more than are shown
	Campaigns []query.CampaignCount // of all of the time
	Chart     chart
	Before    *earlier // nil: there is no comparison
}

// sourceTotal has the captures and the value of a source over all intervals.
type sourceTotal struct {
	query.SourceCount
	Between string // the first touch and this one, where it was a later one: the median
	Then    string // touches of the period before, and the change since
	worth   amount // of which Value is the text
}

// Bounds of a report: its default days, the rows of a page, and the rows of its totals and its chart, which suffice for
// all sources of 300 years or 120 steps. An export has all rows.
const (
	reportDays     = 30
	reportShown    = 400
	reportRows     = 5000
	campaignsShown = 50
)

// intervals are the steps of a report that the page offers.
var intervals = []string{query.Day, query.Week, query.Month}

func (v *visit) sources() (screen, error) {
	p := v.params()
	filter := v.reportFilter(p)
	shown := sourcePage{
		Sources: lead.Sources(), Intervals: intervals, filtered: p.filtered("since", "until", "interval", "source"),
	}
	shown.Wrong, shown.Query = p.wrong, p.with("compare", "")
	shown.show("source", words)
	shown.show("interval", words)
	maps.Copy(shown.Filter, map[string]string{ // with the defaults
		"interval": filter.Interval, "since": filter.Since.Format(time.DateOnly),
		"until": filter.Until.AddDate(0, 0, -1).Format(time.DateOnly),
	})
	if shown.Wrong != nil {
		return screen{name: "sources", title: "Sources", status: http.StatusBadRequest, data: shown}, nil
	}
	all, drawn, columns, title := filter, filter, steps(filter), "Touches by "+filter.Interval+" and source"
	all.Interval = query.Year
	if drawn.Since.Before(columns[0]) {
		drawn.Since = columns[0]
		title += " since " + columns[0].Format(time.DateOnly)
	}
	if p.text("compare") == comparing {
		var err error
		shown.Before = earlierPeriod(filter)
		if shown.Before.First, err = v.Query.FirstDay(v.ctx, v.identity.Account); err != nil {
			return screen{}, err
		}
	}
	var years, list, latest, yearsBefore, latestBefore query.List[query.SourceCount]
	var between []query.Between
	asking, ctx := errgroup.WithContext(v.ctx)
	ask := func(f query.ReportFilter, rows int, into *query.List[query.SourceCount]) {
		asking.Go(func() (err error) {
			*into, err = v.Query.SourceReport(ctx, v.identity.Account, f, query.Page{Limit: rows})
			return err
		})
	}
	ask(all, reportRows, &years)
	ask(filter, reportShown, &list)
	ask(drawn, reportRows, &latest)
	drawnBefore := shown.Before
	if e := shown.Before; e != nil && e.Known() {
		drawnBefore = new(*e)
		if drawn.Since.After(filter.Since) {
			drawnBefore.Since = e.back(drawn.Since)
		}
		allBefore := e.ReportFilter
		allBefore.Interval = query.Year
		ask(allBefore, reportRows, &yearsBefore)
		ask(drawnBefore.ReportFilter, reportRows, &latestBefore)
	}
	asking.Go(func() (err error) {
		between, err = v.Query.BetweenTouches(ctx, v.identity.Account, filter.Since, filter.Until)
		return err
	})
	asking.Go(func() (err error) {
		arrivals := query.SourceFilter{Source: filter.Source, Since: filter.Since, Until: filter.Until}
		shown.Campaigns, err = v.Query.Campaigns(ctx, v.identity.Account, arrivals, campaignsShown)
		return err
	})
	if err := asking.Wait(); err != nil {
		return screen{}, err
	}
	shown.Totals = totals(years.Items, between)
	if shown.Before != nil && shown.Before.Known() {
		drawnBefore.Counts = arrivals(latestBefore.Items)
		compareTotals(shown.Totals, totals(yearsBefore.Items, nil))
	}
	shown.Chart = newChart(series{
		title: title, interval: filter.Interval, steps: columns, counts: arrivals(latest.Items),
		count: func(d query.DayCount) int { return d.Created + d.Merged }, before: drawnBefore,
	})
	shown.Chart.Switch = p.compared()
	shown.Counts, shown.Cut = list.Items, list.NextCursor != ""
	return screen{name: "sources", title: "Sources", data: shown, live: true, calls: v.reportCalls(filter)}, nil
}

// compareTotals sets the totals of each source in the period before.
func compareTotals(now, then []sourceTotal) {
	for i := range now {
		earlier := 0
		for _, t := range then {
			if t.Source == now[i].Source {
				earlier = t.Created + t.Merged
			}
		}
		now[i].Then = changeFrom(now[i].Created+now[i].Merged, earlier)
	}
}

// reportCalls return the report of a filter, and the touches of its time.
func (v *visit) reportCalls(f query.ReportFilter) []call {
	since, until := stamp(f.Since), stamp(f.Until)
	report := v.get("leads:read", "This report", "/api/v1/crm/sources/report", "interval", f.Interval, "source",
		f.Source, "since", since, "until", until)
	touches := v.get("leads:read", "The touches, with medium and campaign", "/api/v1/crm/touches", "source", f.Source,
		"since", since, "until", until)
	var file call
	if f.Source == "" {
		file = v.program("leads:read", "The touches as a CSV file", "export touches", "--since", since,
			"--until", until).withNote(recorded)
	}
	return v.calls(report, touches.withNote(oldestFirst), file)
}

// reportFilter reads the filter of a report, by default the last 30 days.
func (v *visit) reportFilter(p *params) query.ReportFilter {
	f := query.ReportFilter{
		Interval: cmp.Or(p.oneOf("interval", intervals...), query.Day), Source: p.source(), Since: p.day("since"),
		Until: p.until("until"),
	}
	if f.Until.IsZero() {
		f.Until = v.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	}
	if f.Since.IsZero() {
		f.Since = f.Until.AddDate(0, 0, -reportDays)
	}
	if !f.Since.Before(f.Until) {
		p.wrong.Add("since", "must be before the end")
	}
	return f
}

// mostSteps is the most columns of a chart. Of a longer time it shows the end.
const mostSteps = 120

// steps are the intervals of a report.
func steps(f query.ReportFilter) (all []time.Time) {
	at := f.Since.Truncate(24 * time.Hour)
	next := func(t time.Time) time.Time { return t.AddDate(0, 0, 1) }
	switch f.Interval {
	case query.Week:
		at = at.AddDate(0, 0, -(int(at.Weekday())+6)%7)
		next = func(t time.Time) time.Time { return t.AddDate(0, 0, 7) }
	case query.Month:
		at = time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
		next = func(t time.Time) time.Time { return t.AddDate(0, 1, 0) }
	}
	for ; at.Before(f.Until); at = next(at) {
		if all = append(all, at); len(all) > mostSteps {
			all = all[1:]
		}
	}
	return all
}

func arrivals(counts []query.SourceCount) []query.DayCount {
	days := make([]query.DayCount, len(counts))
	for i, c := range counts {
		days[i] = query.DayCount{
			Day: time.Time(c.From), Source: c.Source, Created: c.Created, Merged: c.Merged, Refused: c.Refused,
		}
	}
	return days
}

// totals adds up the intervals of each source, and sorts the sources by captures, most first.
func totals(counts []query.SourceCount, between []query.Between) (all []sourceTotal) {
	for _, c := range counts {
		i := slices.IndexFunc(all, func(t sourceTotal) bool { return t.Source == c.Source })
		if i < 0 {
			i = len(all)
			all = append(all, sourceTotal{SourceCount: query.SourceCount{Source: c.Source}})
		}
		t := &all[i]
		t.Created, t.Merged, t.Refused, t.Won = t.Created+c.Created, t.Merged+c.Merged, t.Refused+c.Refused, t.Won+c.Won
		t.worth.add(string(c.Value))
	}
	for i := range all {
		all[i].Value = jsontext.Value(all[i].worth.String())
	}
	for _, b := range between {
		for i := range all {
			if all[i].Source == b.Source {
				all[i].Between = span(b.Median)
			}
		}
	}
	slices.SortFunc(all, func(a, b sourceTotal) int {
		return cmp.Or(cmp.Compare(b.Created+b.Merged, a.Created+a.Merged), cmp.Compare(a.Source, b.Source))
	})
	return all
}

// amount is a sum of exact decimals of at most 4 places, as amounts have, in ten thousandths.
type amount struct{ big.Int }

// add ignores a text that is not such a decimal.
func (a *amount) add(decimal string) {
	whole, fraction, _ := strings.Cut(decimal, ".")
	if whole == "0" && fraction == "" {
		return // most are
	}
	if len(fraction) > 4 {
		return
	}
	if n, ok := new(big.Int).SetString(whole+fraction+"0000"[len(fraction):], 10); ok {
		a.Add(&a.Int, n)
	}
}

func (a *amount) String() string {
	text := new(big.Rat).SetFrac(&a.Int, big.NewInt(10_000)).FloatString(4)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// span formats a duration in its two largest units.
func span(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d >= 24*time.Hour:
		return plural(int(d/(24*time.Hour)), "day") + " " + formatInt(int64(d%(24*time.Hour)/time.Hour)) + " h"
	case d >= time.Hour:
		return formatInt(int64(d/time.Hour)) + " h " + formatInt(int64(d%time.Hour/time.Minute)) + " min"
	case d >= time.Minute:
		return formatInt(int64(d/time.Minute)) + " min " + formatInt(int64(d%time.Minute/time.Second)) + " s"
	}
	return formatInt(int64(d/time.Second)) + " s"
}
