package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

// Between is how long leads took from their first touch until a source touched them too.
type Between struct {
	Source string
	Leads  int
	Median time.Duration
}

// latestTouches bounds what it costs to tell the time between touches.
const latestTouches = 2000

// BetweenTouches tells, by source, how long after a lead's first touch a later one came. It looks at the latest 2,000
// touches of the period, of all sources together.
func (r *Reader) BetweenTouches(ctx context.Context, account string, since, until time.Time) ([]Between, error) {
	filter := SourceFilter{Since: since, Until: until}
	s := filter.selection(account, `SELECT lead_id, source, first_seen_at FROM views.source_history`, `first_seen_at DESC, position DESC`)
	rows, err := r.pool.Query(ctx, `
		SELECT t.source, count(*), extract(epoch FROM percentile_disc(0.5) WITHIN GROUP (ORDER BY t.first_seen_at - l.created_at))::float8
		  FROM (`+s.sql(latestTouches)+`) t JOIN views.lead l USING (lead_id)
		 WHERE t.first_seen_at > l.created_at
		 GROUP BY t.source ORDER BY t.source`, s.args...)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Between, err error) {
		var seconds float64
		err = row.Scan(&b.Source, &b.Leads, &seconds)
		b.Median = time.Duration(seconds * float64(time.Second))
		return b, err
	})
	return found, schema.Unavailable(err)
}
