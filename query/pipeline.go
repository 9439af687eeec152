package query

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// The reports of this file are as of a position: events behind it do not count, and an erasure changes no number.

// PipelineFilter selects leads, arrivals or conversions of a period.
type PipelineFilter struct {
	Since    time.Time           // inclusive; zero: no bound
	Until    time.Time           // exclusive; likewise
	Interval string              // of PipelineArrivals
	AsOf     eventstore.Position // that the view of touches has reached
}

// Funnel counts the leads at each stage.
type Funnel struct {
	AsOf eventstore.Position `json:"asOf"`
	Rows []FunnelRow         `json:"rows"`
}

// FunnelRow counts the leads of a first source that are at a stage.
type FunnelRow struct {
	Stage  string `json:"stage"` // folded by account.FoldStage
	Source string `json:"source"`
	Leads  int64  `json:"leads"`
}

// funnel reads the stage of a lead from its last change, or else from the arrival that created it. A lead that a split
// created has a change. One that was joined into another is at attribution.NoStage.
const funnel = `
	WITH opened AS (
	     SELECT lead_id, source, stage FROM views.touch
	      WHERE account = $1 AND kind = 'created' AND kind <> 'visit' AND position <= $2 AND at >= $3 AND at < $4
	      UNION ALL
	     SELECT o.owner, t.source, '' FROM views.touch_owner o JOIN views.touch t USING (position)
	      WHERE o.account = $1 AND o.begins AND o.since <= $2 AND t.at >= $3 AND t.at < $4),
	     staged AS (
	     SELECT opened.source, coalesce(changed.stage, opened.stage) AS stage
	       FROM opened LEFT JOIN LATERAL (
	            SELECT stage FROM views.lead_change c
	             WHERE c.lead_id = opened.lead_id AND c.stage <> '' AND c.position <= $2
	             ORDER BY c.position DESC LIMIT 1) AS changed ON true)
	SELECT stage, source, count(*) FROM staged WHERE stage <> '' AND stage <> $5
	 GROUP BY stage, source ORDER BY stage, source`

// Funnel counts the leads that were created in a period, by the stage that they are at and their first source.
func (r *Reader) Funnel(ctx context.Context, account string, filter PipelineFilter) (Funnel, error) {
	since, until := filter.bounds()
	rows, err := r.pool.Query(ctx, funnel, pgx.QueryExecModeCacheDescribe, account, int64(filter.AsOf), since, until,
		attribution.NoStage)
	if err != nil {
		return Funnel{}, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[FunnelRow])
	return Funnel{filter.AsOf, found}, schema.Unavailable(err)
}

// bounds are those of a period within what PostgreSQL can hold.
func (f PipelineFilter) bounds() (since, until time.Time) {
	since, until = firstDay, lastDay
	if !f.Since.IsZero() {
		since = f.Since
	}
	if !f.Until.IsZero() {
		until = f.Until
	}
	return since, until
}

// PipelineArrivals counts new leads and merges over time.
type PipelineArrivals struct {
	AsOf eventstore.Position   `json:"asOf"`
	Rows []PipelineArrivalsRow `json:"rows"`
}

// PipelineArrivalsRow counts those of an interval, UTC.
type PipelineArrivalsRow struct {
	From    Timestamp `json:"from"`
	Created int64     `json:"created"`
	Merged  int64     `json:"merged"`
}

// PipelineArrivals counts the arrivals that created a lead and those that were merged into one, by when the persons
// came. Intervals without arrivals have no row.
func (r *Reader) PipelineArrivals(
	ctx context.Context, account string, filter PipelineFilter,
) (PipelineArrivals, error) {
	since, until := filter.bounds()
	rows, err := r.pool.Query(ctx, `
		SELECT date_trunc($5, at, 'UTC'), count(*) FILTER (WHERE kind = 'created'), count(*) FILTER (WHERE kind = 'merged')
		  FROM views.touch
		 WHERE account = $1 AND kind <> 'visit' AND position <= $2 AND at >= $3 AND at < $4
		 GROUP BY 1 ORDER BY 1`,
		pgx.QueryExecModeCacheDescribe, account, int64(filter.AsOf), since, until, filter.Interval)
	if err != nil {
		return PipelineArrivals{}, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[PipelineArrivalsRow])
	return PipelineArrivals{filter.AsOf, found}, schema.Unavailable(err)
}

// TimeToWon is how long leads took from their first touch to the conversion.
type TimeToWon struct {
	AsOf eventstore.Position `json:"asOf"`
	// Rebuilding is as in Attribution.
	Rebuilding    bool               `json:"rebuilding,omitzero"`
	Leads         int                `json:"leads"`
	MedianSeconds *int64             `json:"medianSeconds"` // null: no lead was won
	Rows          []TimeToWonRow     `json:"rows"`
	Sources       []TimeToWonOfFirst `json:"sources"`
}

// TimeToWonRow counts the leads that took as many days.
type TimeToWonRow struct {
	FromDays  int  `json:"fromDays"`
	UntilDays *int `json:"untilDays"` // exclusive; null: no bound
	Leads     int  `json:"leads"`
}

// TimeToWonOfFirst has the leads of a first source.
type TimeToWonOfFirst struct {
	Source        string `json:"source"`
	Leads         int    `json:"leads"`
	MedianSeconds int64  `json:"medianSeconds"`
}

// wonWithin are the first days of the rows of TimeToWon.
var wonWithin = []int{0, 1, 3, 7, 14, 30, 90, 180}

// TimeToWon measures the conversions of a period. Touches of up to a year before a conversion count.
func (r *Reader) TimeToWon(ctx context.Context, account string, filter PipelineFilter) (TimeToWon, error) {
	rules := attribution.Rules{
		Model: attribution.Last, Since: filter.Since, Until: filter.Until, Window: attribution.MaxWindow,
		HalfLife: attribution.DefaultHalfLife,
	}
	var took durations
	report, err := r.report(ctx, account, AttributionFilter{
		Rules: rules, By: attribution.BySource, AsOf: filter.AsOf,
	}, attribution.NewReport(rules), func(c attribution.Conversion) {
		if rules.Counts(c.At) {
			took.add(c)
		}
	})
	answer := took.answer()
	answer.AsOf, answer.Rebuilding = report.AsOf, report.Rebuilding
	return answer, err
}

// durations are the times from first touches to conversions.
type durations struct {
	all      []time.Duration
	bySource map[string][]time.Duration
}

// add adds a conversion, unless none of its touches are known.
func (d *durations) add(c attribution.Conversion) {
	var first *attribution.Touch
	for i := range c.Touches {
		t := &c.Touches[i]
		if t.At <= c.At && c.At-t.At <= attribution.MaxWindow.Milliseconds() && (first == nil || t.At < first.At) {
			first = t
		}
	}
	if first == nil {
		return
	}
	took := time.Duration(c.At-first.At) * time.Millisecond
	if d.bySource == nil {
		d.bySource = map[string][]time.Duration{}
	}
	d.all = append(d.all, took)
	d.bySource[first.Key] = append(d.bySource[first.Key], took)
}

func (d *durations) answer() TimeToWon {
	answer := TimeToWon{Leads: len(d.all), Rows: make([]TimeToWonRow, len(wonWithin)), Sources: []TimeToWonOfFirst{}}
	for i, days := range wonWithin {
		row := TimeToWonRow{FromDays: days}
		if i+1 < len(wonWithin) {
			row.UntilDays = &wonWithin[i+1]
		}
		for _, took := range d.all {
			if whole := int(took / attribution.Day); whole >= days && (row.UntilDays == nil || whole < *row.UntilDays) {
				row.Leads++
			}
		}
		answer.Rows[i] = row
	}
	if len(d.all) > 0 {
		answer.MedianSeconds = new(median(d.all))
	}
	for source, all := range d.bySource {
		answer.Sources = append(answer.Sources, TimeToWonOfFirst{source, len(all), median(all)})
	}
	slices.SortFunc(answer.Sources, func(a, b TimeToWonOfFirst) int {
		if a.Source < b.Source {
			return -1
		}
		return 1
	})
	return answer
}

// median is the lower one of two middle values, in seconds.
func median(all []time.Duration) int64 {
	slices.Sort(all)
	return int64(all[(len(all)-1)/2] / time.Second)
}
