package console

import (
	"cmp"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// chart has a column for each interval, made of a part for each source. This file computes the coordinates, and the
// template draws them. The script shows the values of the column at the pointer or in focus.
type chart struct {
	Width, Height float64
	Columns       []column
	Lines         []line // across, with a number each
	Legend        []legend
	Total         int
	Title         string
	Period        string // that Total is of
	Before        *earlier
	Then          int    // total of the period before
	Outline       string // of the period before: a path
	Switch        string // query string of the page with or without the period before
}

// series is the data of a chart.
type series struct {
	title    string
	interval string
	steps    []time.Time
	counts   []query.DayCount // by step and source
	count    func(query.DayCount) int
	before   *earlier // nil: there is no comparison
}

type column struct {
	x, width float64
	Middle   float64
	Reach    template.HTMLAttr // of the pointer: its place
	Label    string            // on the axis; empty on most columns
	Day      string
	Name     string // of the interval
	Parts    []part
	Counts   []int // in the order of the legend
	Total    int
	Before   int    // total of the interval before that it is compared with
	Then     string // that interval with its total; empty: there is no comparison
}

// part has its coordinates as text, because a page may have more than a thousand parts and a template is slow for each
// value.
type part struct {
	Class     string
	Rectangle template.HTMLAttr
}

type line struct {
	Y      float64
	Number int
}

type legend struct {
	Source, Class string
	Count         int
}

// Measures of a chart, in units of its own.
const (
	chartWidth, chartHeight = 960.0, 220.0
	chartLeft, chartTop     = 46.0, 8.0
	chartBottom             = 24.0
)

// newChart draws the count of each step.
func newChart(s series) chart {
	totals, then, bySource := map[time.Time]int{}, map[time.Time]int{}, map[string]int{}
	parts := map[time.Time][]query.DayCount{}
	for _, d := range s.counts {
		if n := s.count(d); n > 0 {
			totals[d.Day] += n
			bySource[d.Source] += n
			parts[d.Day] = append(parts[d.Day], d)
		}
	}
	c := chart{
		Width: chartWidth, Height: chartHeight, Title: s.title, Before: s.before,
		Period: intervalName(s.interval, s.steps[0]) + " to " + intervalName(s.interval, s.steps[len(s.steps)-1]),
	}
	for source, n := range bySource {
		c.Total += n
		c.Legend = append(c.Legend, legend{source, class(source), n})
	}
	slices.SortFunc(c.Legend, func(a, b legend) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Source, b.Source))
	})
	if s.before != nil {
		for _, d := range s.before.Counts {
			then[d.Day] += s.count(d)
			c.Then += s.count(d)
		}
	}
	top := c.scale(
		slices.Max(slices.Concat(slices.Collect(maps.Values(totals)), slices.Collect(maps.Values(then)), []int{1})),
	)
	pitch := (chartWidth - chartLeft) / float64(len(s.steps))
	for i, day := range s.steps {
		one := column{
			x: chartLeft + float64(i)*pitch + pitch*.12, width: pitch * .76, Day: day.Format(time.DateOnly),
			Name: intervalName(s.interval, day), Total: totals[day],
		}
		one.Middle = one.x + one.width/2
		one.Reach = rectangle(chartLeft+float64(i)*pitch, pitch, chartTop, floor-chartTop)
		if i%max(1, len(s.steps)/10) == 0 {
			one.Label = day.Format("2 Jan")
		}
		one.stack(parts[day], c.Legend, top, s.count)
		if s.before != nil && s.before.Known() {
			earlier := s.before.back(day)
			one.Before = then[earlier]
			one.Then = changeFrom(one.Total, one.Before) + ", " + intervalName(s.interval, earlier)
		}
		c.Columns = append(c.Columns, one)
	}
	if s.before != nil && s.before.Known() {
		c.outline(pitch, top)
	}
	return c
}

// intervalName is an interval as people call it.
func intervalName(interval string, from time.Time) string {
	switch interval {
	case query.Week:
		return "week of " + from.Format("2 Jan 2006")
	case query.Month:
		return from.Format("January 2006")
	}
	return from.Format("Mon 2 Jan 2006")
}

// outline draws the totals of the period before, as steps over the columns that they are compared with.
func (c *chart) outline(pitch float64, top int) {
	path := []byte("M" + coordinate(chartLeft) + " " + coordinate(floor))
	for i, one := range c.Columns {
		y := floor - (floor-chartTop)*float64(one.Before)/float64(top)
		path = append(path, "V"+coordinate(y)+"H"+coordinate(chartLeft+float64(i+1)*pitch)...)
	}
	c.Outline = string(path) + "V" + coordinate(floor)
}

func coordinate(value float64) string { return strconv.FormatFloat(value, 'f', 2, 64) }

// floor is the bottom of the columns.
const floor = chartHeight - chartBottom

// stack places a step's parts on top of each other, the source that is largest in total at the bottom.
func (c *column) stack(parts []query.DayCount, order []legend, top int, count func(query.DayCount) int) {
	y := floor
	c.Counts = make([]int, len(order))
	for i, l := range order {
		for _, p := range parts {
			if p.Source == l.Source {
				c.Counts[i] = count(p)
				height := (floor - chartTop) * float64(c.Counts[i]) / float64(top)
				y -= height
				c.Parts = append(c.Parts, part{l.Class, rectangle(c.x, c.width, y, height)})
			}
		}
	}
}

// Values are the counts of the sources, in the order of the legend.
func (c column) Values() string {
	values := make([]string, len(c.Counts))
	for i, n := range c.Counts {
		values[i] = number(n)
	}
	return strings.Join(values, "|")
}

// Spoken is everything that the chart shows of a column.
func (c chart) Spoken(of column) string {
	parts := []string{of.Name + ": " + number(of.Total)}
	for i, n := range of.Counts {
		if n > 0 {
			parts = append(parts, words(c.Legend[i].Source)+" "+number(n))
		}
	}
	if of.Then != "" {
		parts = append(parts, of.Then)
	}
	return strings.Join(parts, "; ")
}

// Against is the total of the period before, and the change since; empty when there is none.
func (c chart) Against() string {
	if c.Before == nil || !c.Before.Known() {
		return ""
	}
	return changeFrom(c.Total, c.Then) + ", " + c.Before.Days()
}

// rectangle is where a rectangle is drawn, as its attributes.
func rectangle(x, width, y, height float64) template.HTMLAttr {
	var attributes []byte
	for _, a := range []struct {
		name  string
		value float64
	}{{`x="`, x}, {`" width="`, width}, {`" y="`, y}, {`" height="`, height}} {
		attributes = strconv.AppendFloat(append(attributes, a.name...), a.value, 'f', 2, 64)
	}
	return template.HTMLAttr(append(attributes, '"'))
}

// scale draws lines at round numbers, and returns the one at the top.
func (c *chart) scale(most int) int {
	step := 1 // 1, 2 or 5 times a power of ten
	for power := 1; step*4 < most; power *= 10 {
		for _, factor := range []int{2, 5, 10} {
			if step*4 < most {
				step = factor * power
			}
		}
	}
	top := (most + step - 1) / step * step
	for n := 0; n <= top; n += step {
		c.Lines = append(c.Lines, line{floor - (floor-chartTop)*float64(n)/float64(top), n})
	}
	return top
}

// class is the colour of a source, the same on every page.
func class(source string) string {
	switch source { // of the picture of new leads and merges
	case "created":
		return "s5"
	case "merged":
		return "s1"
	}
	return "s" + strconv.Itoa(slices.Index(lead.Sources(), source)+1)
}
