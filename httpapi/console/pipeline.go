package console

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// pipelinePage has three pictures of a period as of a position: leads by stage, new leads beside merges, and the time
// to won.
type pipelinePage struct {
	Filter map[string]string
	filtered
	Intervals []string
	AsOf      eventstore.Position
	Funnel    barChart
	Arrivals  chart
	Won       barChart
	TimeToWon query.TimeToWon
	Median    string
	Sources   []sourceMedian
	Calls     []call // that reproduce the pictures, in their order
}

// barChart has a bar for each row, made of a part for each source.
type barChart struct {
	Rows   []bar
	Legend []legend
	Total  int
}

type bar struct {
	Name   string
	Total  int
	Counts []int // in the order of the legend
	Parts  []barPart
}

// barPart has its place in hundredths of the longest bar.
type barPart struct {
	Class    string
	X, Width float64
}

// sourceMedian is the time to won of the leads of a first source.
type sourceMedian struct {
	Source string
	Leads  int
	Median string
}

// newBars draws rows whose counts are in the order of the legend.
func newBars(rows []bar, keys []legend) barChart {
	c := barChart{Rows: rows, Legend: keys}
	longest := 1
	for i, row := range rows {
		for j, n := range row.Counts {
			c.Rows[i].Total += n
			c.Legend[j].Count += n
		}
		c.Total += c.Rows[i].Total
		longest = max(longest, c.Rows[i].Total)
	}
	for i, row := range c.Rows {
		x := 0.0
		for j, n := range row.Counts {
			width := 100 * float64(n) / float64(longest)
			c.Rows[i].Parts = append(c.Rows[i].Parts, barPart{keys[j].Class, x, width})
			x += width
		}
	}
	return c
}

// funnelBars has a bar for each stage of the account, in their order, and behind them one for each stage that the
// account has removed.
func funnelBars(stages []string, rows []query.FunnelRow) barChart {
	var keys []legend
	names := map[string]string{}
	var order []string
	for _, stage := range stages {
		folded := account.FoldStage(stage)
		names[folded] = stage
		order = append(order, folded)
	}
	for _, row := range rows {
		if !slices.ContainsFunc(keys, func(l legend) bool { return l.Source == row.Source }) {
			keys = append(keys, legend{Source: row.Source, Class: class(row.Source)})
		}
		if !slices.Contains(order, row.Stage) {
			order = append(order, row.Stage)
		}
	}
	slices.SortFunc(keys, func(a, b legend) int { return cmp.Compare(a.Source, b.Source) })
	bars := make([]bar, len(order))
	for i, stage := range order {
		bars[i] = bar{Name: cmp.Or(names[stage], stage), Counts: make([]int, len(keys))}
		for _, row := range rows {
			if row.Stage == stage {
				bars[i].Counts[slices.IndexFunc(keys, func(l legend) bool { return l.Source == row.Source })] = int(row.Leads)
			}
		}
	}
	return newBars(bars, keys)
}

// wonBars has a bar for each span of days.
func wonBars(rows []query.TimeToWonRow) barChart {
	bars := make([]bar, len(rows))
	for i, row := range rows {
		name := "over " + formatInt(int64(row.FromDays)) + " days"
		switch {
		case row.UntilDays != nil && row.FromDays == 0:
			name = "under " + plural(*row.UntilDays, "day")
		case row.UntilDays != nil:
			name = formatInt(int64(row.FromDays)) + " to " + plural(*row.UntilDays, "day")
		}
		bars[i] = bar{Name: name, Counts: []int{row.Leads}}
	}
	return newBars(bars, []legend{{Source: "won", Class: "s5"}})
}

func (v *visit) pipeline() (screen, error) {
	p := v.params()
	period := v.reportFilter(p)
	shown := pipelinePage{
		Intervals: intervals, filtered: p.filtered("since", "until", "interval", "asOf"),
	}
	shown.Filter = shown.filtered.Filter
	shown.Filter["interval"] = period.Interval
	shown.Filter["since"] = period.Since.Format(time.DateOnly)
	shown.Filter["until"] = period.Until.AddDate(0, 0, -1).Format(time.DateOnly)
	page := screen{name: "pipeline", title: "Pipeline"}
	at, err := query.ParseAsOf(p.text("asOf"))
	if err != nil {
		p.wrong.Add("asOf", err.Error())
	}
	if p.wrong == nil {
		if shown.AsOf, err = v.Query.PositionAsOf(v.ctx, at); errors.Is(err, query.ErrAsOf) {
			p.wrong.Add("asOf", query.ErrAsOf.Error())
		} else if err != nil {
			return screen{}, err
		}
	}
	if shown.Wrong = p.wrong; shown.Wrong != nil {
		page.status, page.data = http.StatusBadRequest, shown
		return page, nil
	}
	settings, err := v.Directory.Account(v.ctx, v.identity.Account)
	if err != nil {
		return screen{}, err
	}
	filter := query.PipelineFilter{
		Since: period.Since, Until: period.Until, Interval: period.Interval, AsOf: shown.AsOf,
	}
	var funnel query.Funnel
	var arrivals query.PipelineArrivals
	asking, ctx := errgroup.WithContext(v.ctx)
	asking.Go(func() (err error) {
		funnel, err = v.Query.Funnel(ctx, v.identity.Account, filter)
		return err
	})
	asking.Go(func() (err error) {
		arrivals, err = v.Query.PipelineArrivals(ctx, v.identity.Account, filter)
		return err
	})
	asking.Go(func() (err error) {
		shown.TimeToWon, err = v.Query.TimeToWon(ctx, v.identity.Account, filter)
		return err
	})
	if err := asking.Wait(); err != nil {
		return screen{}, err
	}
	shown.Funnel, shown.Won = funnelBars(settings.State.Stages, funnel.Rows), wonBars(shown.TimeToWon.Rows)
	shown.Arrivals = arrivalsChart(period, arrivals.Rows)
	if seconds := shown.TimeToWon.MedianSeconds; seconds != nil {
		shown.Median = span(time.Duration(*seconds) * time.Second)
	}
	for _, of := range shown.TimeToWon.Sources {
		shown.Sources = append(shown.Sources, sourceMedian{
			of.Source, of.Leads, span(time.Duration(of.MedianSeconds) * time.Second),
		})
	}
	for _, report := range [][2]string{
		{"Leads by stage and source", "funnel"}, {"New leads and merges", "arrivals"}, {"Time to won", "time-to-won"},
	} {
		interval, asOf := "", shown.AsOf
		switch report[1] {
		case "arrivals":
			interval = period.Interval
		case "time-to-won":
			asOf = shown.TimeToWon.AsOf
		}
		shown.Calls = append(shown.Calls, v.get("leads:read", report[0], "/api/v1/crm/pipeline/"+report[1],
			"since", stamp(period.Since), "until", stamp(period.Until), "interval", interval,
			"asOf", formatInt(int64(asOf))))
	}
	page.data, page.calls = shown, v.calls(shown.Calls...)
	return page, nil
}

// arrivalsChart draws new leads and merges as two parts of each column.
func arrivalsChart(period query.ReportFilter, rows []query.PipelineArrivalsRow) chart {
	columns := steps(period)
	var counts []query.DayCount
	for _, row := range rows {
		at := time.Time(row.From).UTC()
		if at.Before(columns[0]) {
			continue // the chart has the end of a long period
		}
		counts = append(counts, query.DayCount{Day: at, Source: "created", Created: int(row.Created)},
			query.DayCount{Day: at, Source: "merged", Created: int(row.Merged)})
	}
	title := "New leads and merges by " + period.Interval
	if columns[0].After(period.Since) {
		title += " since " + columns[0].Format(time.DateOnly)
	}
	return newChart(series{
		title: title, interval: period.Interval, steps: columns, counts: counts,
		count: func(d query.DayCount) int { return d.Created },
	})
}
