package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

// DayCount is what became of a day's arrivals from one source. Days are UTC's.
type DayCount struct {
	Day     time.Time
	Source  string
	Created int
	Merged  int
	Refused int
}

// Days counts an account's arrivals from a day on, by day and source.
func (r *Reader) Days(ctx context.Context, account string, since time.Time) ([]DayCount, error) {
	rows, err := r.pool.Query(ctx, `
		SELECT day, source, created, merged, refused FROM views.source_day
		 WHERE account = $1 AND day >= $2::date ORDER BY day, source`, account, since)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	days, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DayCount])
	return days, schema.Unavailable(err)
}
