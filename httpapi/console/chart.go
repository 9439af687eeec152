package console

import (
	"cmp"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
)

// chart is columns of parts, a column for each day: what of it came from each source. It is drawn by the template; here is
// where everything goes.
type chart struct {
	Width, Height float64
	Columns       []column
	Lines         []line // across, with a number each
	Legend        []legend
	Total         int
	Title         string
}

type column struct {
	x, width float64
	Middle   float64
	Label    string // of the day; empty on most columns
	Day      string
	Parts    []part
	Counts   []int // in the order of the legend
	Total    int
}

// part has its place and its words ready: a page may have more than a thousand, and a template takes its time for each value.
type part struct {
	Class string
	Place template.HTMLAttr
	Title string
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

// newChart draws the count of each step, a day or a longer interval.
func newChart(title string, days []query.DayCount, steps []time.Time, count func(query.DayCount) int) chart {
	totals, bySource := map[time.Time]int{}, map[string]int{}
	parts := map[time.Time][]query.DayCount{}
	for _, d := range days {
		if n := count(d); n > 0 {
			totals[d.Day] += n
			bySource[d.Source] += n
			parts[d.Day] = append(parts[d.Day], d)
		}
	}
	c := chart{Width: chartWidth, Height: chartHeight, Title: title}
	for source, n := range bySource {
		c.Total += n
		c.Legend = append(c.Legend, legend{source, class(source), n})
	}
	slices.SortFunc(c.Legend, func(a, b legend) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Source, b.Source)) })
	top := c.scale(slices.Max(append(slices.Collect(maps.Values(totals)), 1)))
	pitch := (chartWidth - chartLeft) / float64(len(steps))
	for i, day := range steps {
		one := column{x: chartLeft + float64(i)*pitch + pitch*.12, width: pitch * .76, Day: day.Format(time.DateOnly), Total: totals[day]}
		one.Middle = one.x + one.width/2
		if i%max(1, len(steps)/10) == 0 {
			one.Label = day.Format("2 Jan")
		}
		one.stack(parts[day], c.Legend, top, count)
		c.Columns = append(c.Columns, one)
	}
	return c
}

// floor is the bottom of the columns.
const floor = chartHeight - chartBottom

// stack places a day's parts on top of each other, the source that is largest in total at the bottom.
func (c *column) stack(parts []query.DayCount, order []legend, top int, count func(query.DayCount) int) {
	y := floor
	c.Counts = make([]int, len(order))
	for i, l := range order {
		for _, p := range parts {
			if p.Source == l.Source {
				c.Counts[i] = count(p)
				height := (floor - chartTop) * float64(c.Counts[i]) / float64(top)
				y -= height
				c.Parts = append(c.Parts, part{l.Class, c.place(y, height), c.Day + ", " + words(p.Source) + ": " + number(c.Counts[i])})
			}
		}
	}
}

// place is where a part of the column is drawn, as attributes of its rectangle.
func (c *column) place(y, height float64) template.HTMLAttr {
	var attributes []byte
	for _, a := range []struct {
		name  string
		value float64
	}{{`x="`, c.x}, {`" width="`, c.width}, {`" y="`, y}, {`" height="`, height}} {
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
	return "s" + strconv.Itoa(slices.Index(lead.Sources(), source)+1)
}
