package query

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

// UsageDay is how much an account did on a day, UTC.
type UsageDay struct {
	Day        Timestamp `json:"day"`        // its first moment
	Captures   int       `json:"captures"`   // arrivals, whatever became of them
	Refused    int       `json:"refused"`    // those of them that were answered with a conflict
	Deliveries int       `json:"deliveries"` // events queued for endpoints; of an endpoint not more than 10,000 are counted
}

var usage = `
	SELECT day::timestamp AT TIME ZONE 'UTC',
	       coalesce((SELECT sum(created + merged + refused) FROM views.source_day s WHERE s.account = $1 AND s.day = d.day), 0)::bigint,
	       coalesce((SELECT sum(refused) FROM views.source_day s WHERE s.account = $1 AND s.day = d.day), 0)::bigint,
	       coalesce((SELECT sum(n) FROM delivery.endpoint e CROSS JOIN LATERAL (
	           SELECT count(*) AS n FROM (
	               SELECT FROM delivery.delivery q WHERE q.webhook_id = e.webhook_id
	                  AND q.delivery_id >= delivery.first_id(d.day) AND q.delivery_id < delivery.first_id(d.day + 1) LIMIT ` + strconv.Itoa(mostQueued) + `) AS counted) AS c
	         WHERE e.account = $1), 0)::bigint
	  FROM (SELECT $2::date + n AS day FROM generate_series(0, $3::integer - 1) AS n) AS d
	 ORDER BY day DESC`

// Usage tells how much an account did on each of some days, the latest first.
func (r *Reader) Usage(ctx context.Context, account string, first time.Time, days int) ([]UsageDay, error) {
	rows, err := r.pool.Query(ctx, usage, account, first, days)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d UsageDay, err error) {
		err = row.Scan(stamp(&d.Day), &d.Captures, &d.Refused, &d.Deliveries)
		return d, err
	})
	return found, schema.Unavailable(err)
}
