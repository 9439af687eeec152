package console

import (
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/query"
)

// comparing is the value of the parameter compare that adds the period before to a page.
const comparing = "previous"

// earlier is the period before another: as long, and divided into the same intervals.
type earlier struct {
	query.ReportFilter
	First  time.Time // the account's first day with an arrival; zero: there is none
	Counts []query.DayCount
	back   func(time.Time) time.Time // to the interval before that one is compared with
}

// earlierPeriod returns the period before that of a filter. It ends where the other begins, or up to six days earlier
// if this makes weeks whole. Months are compared with months, whatever their lengths.
func earlierPeriod(f query.ReportFilter) *earlier {
	since, until := f.Since.Truncate(day), f.Until.Add(day-1).Truncate(day)
	days := int((until.Unix() - since.Unix()) / int64(day/time.Second))
	if f.Interval == query.Week {
		days = (days + 6) / 7 * 7
	}
	back := func(t time.Time) time.Time { return t.AddDate(0, 0, -days) }
	if f.Interval == query.Month {
		months := max(1, 12*(until.Year()-since.Year())+int(until.Month()-since.Month()))
		if addMonths(since, months).Before(until) {
			months++
		}
		back = func(t time.Time) time.Time { return addMonths(t, -months) }
	}
	e := &earlier{ReportFilter: f, back: back}
	e.Since, e.Until = back(since), back(until)
	if last := back(until.AddDate(0, 0, -1)); !last.Before(e.Until) { // both are the last day of a shorter month
		e.Until = last.AddDate(0, 0, 1)
	}
	return e
}

const day = 24 * time.Hour

// addMonths is the same day of another month, or its last day.
func addMonths(t time.Time, n int) time.Time {
	first := time.Date(t.Year(), t.Month()+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(t.Day(), last)-1)
}

// Known reports whether the account had data in the period.
func (e *earlier) Known() bool { return !e.First.IsZero() && e.First.Before(e.Until) }

// Days are the first and the last day.
func (e *earlier) Days() string {
	return e.Since.Format(time.DateOnly) + " to " + e.Until.AddDate(0, 0, -1).Format(time.DateOnly)
}

// Note names the data that a comparison lacks; empty if it is complete.
func (e *earlier) Note() string {
	switch {
	case e.First.IsZero():
		return "There are no data to compare with yet."
	case !e.Known():
		return "The first data are of " + e.First.Format(time.DateOnly) + ". The period before, " + e.Days() +
			", has none."
	case e.First.After(e.Since):
		return "The first data are of " + e.First.Format(time.DateOnly) + ", within the " +
			"period before, " + e.Days() + "."
	}
	return ""
}

// change is by how much a count differs from an earlier one, in percent; empty when that was 0.
func change(now, then int) string {
	if then == 0 {
		return ""
	}
	percent := 100 * float64(now-then) / float64(then)
	text := strconv.FormatFloat(max(percent, -percent), 'f', 1, 64)
	switch {
	case text == "0.0":
		return "±0 %"
	case percent < 0:
		return "−" + text + " %"
	}
	return "+" + text + " %"
}

// changeFrom is the change from an earlier count.
func changeFrom(now, then int) string {
	return strings.TrimSpace(change(now, then) + " from " + number(then))
}
