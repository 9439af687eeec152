package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/query"
)

func TestBefore_PeriodOfEachInterval(t *testing.T) {
	for _, c := range []struct{ interval, since, last, want string }{
		{query.Day, "2026-11-01", "2026-11-30", "2026-10-02 to 2026-10-31"},
		{query.Day, "2026-03-01", "2026-03-01", "2026-02-28 to 2026-02-28"},
		{query.Week, "2026-11-02", "2026-11-15", "2026-10-19 to 2026-11-01"},
		{query.Week, "2026-10-26", "2026-11-24", "2026-09-21 to 2026-10-20"}, // 30 days, five weeks back
		{query.Month, "2026-10-01", "2026-11-30", "2026-08-01 to 2026-09-30"},
		{query.Month, "2026-10-15", "2026-11-14", "2026-09-15 to 2026-10-14"},
		{query.Month, "2026-03-31", "2026-03-31", "2026-02-28 to 2026-02-28"},
		{query.Month, "2026-11-10", "2026-11-12", "2026-10-10 to 2026-10-12"},
	} {
		since, err := time.Parse(time.DateOnly, c.since)
		require.NoError(t, err)
		last, err := time.Parse(time.DateOnly, c.last)
		require.NoError(t, err)
		e := earlierPeriod(query.ReportFilter{Interval: c.interval, Since: since, Until: last.AddDate(0, 0, 1)})
		require.Equal(t, c.want, e.Days(), "%s of %s to %s", c.interval, c.since, c.last)
	}
}

// The previous period ends before the period begins. Each of its intervals belongs to a column.
func TestBefore_CoversColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		since := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, rapid.IntRange(0, 2000).Draw(t, "since"))
		f := query.ReportFilter{
			Interval: rapid.SampledFrom([]string{query.Day, query.Week, query.Month}).Draw(t, "interval"),
			Since:    since, Until: since.AddDate(0, 0, rapid.IntRange(1, 100).Draw(t, "days")),
		}
		e := earlierPeriod(f)
		require.False(t, e.Until.After(f.Since))
		require.True(t, e.Since.Before(e.Until))
		var compared []time.Time
		for _, step := range steps(f) {
			compared = append(compared, e.back(step))
		}
		for _, step := range steps(e.ReportFilter) {
			require.Contains(t, compared, step, "%s from %s", f.Interval, f.Since)
		}
	})
}

func TestChange_InPercent(t *testing.T) {
	for _, c := range []struct {
		current, before int
		want            string
	}{
		{3, 2, "+50.0 % from 2"}, {1, 2, "−50.0 % from 2"}, {2, 2, "±0 % from 2"}, {0, 3, "−100.0 % from 3"},
		{5, 0, "from 0"}, {100001, 100000, "±0 % from 100,000"},
	} {
		require.Equal(t, c.want, changeFrom(c.current, c.before))
	}
}
