package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

const (
	// clockSkew is how far the clocks of processes that append may be apart for a list by time to miss nothing.
	clockSkew = time.Hour
	// nearPositions are rather read than halved once more.
	nearPositions = 500
)

// happened adds the condition that rows of an account, in a table that is in the order of the log, are not of before one time
// and of before another; a zero time sets no bound. PostgreSQL would look for these times from an end of the log on, so it is
// told between which positions they are.
func (r *Reader) happened(ctx context.Context, s *selection, table, account string, since, until time.Time) error {
	s.within(`at`, since, until)
	if !storable(account) {
		return nil // nothing matches
	}
	if !since.IsZero() {
		earlier, _, err := r.around(ctx, table, account, since.Add(-clockSkew))
		if err != nil {
			return err
		}
		s.and(`position > ?`, earlier)
	}
	if !until.IsZero() {
		_, last, err := r.around(ctx, table, account, until.Add(clockSkew))
		if err != nil {
			return err
		}
		s.and(`position <= ?`, last)
	}
	return nil
}

// around finds, by bisection, a position up to which an account's rows are of before a time, and a later one behind which they
// are not. Times grow with positions, except for how far clocks differ. The account's last row is behind every middle, so the
// row that follows a middle is always one of the account's.
func (r *Reader) around(ctx context.Context, table, account string, at time.Time) (before, last int64, err error) {
	err = r.pool.QueryRow(ctx, `
		WITH RECURSIVE half (before, last) AS (
		    SELECT 0::bigint, coalesce((SELECT max(position) FROM `+table+` WHERE account = $1), 0)
		     UNION ALL
		    SELECT CASE WHEN at < $2 THEN position ELSE before END, CASE WHEN at < $2 THEN last ELSE (before + last) / 2 END
		      FROM half CROSS JOIN LATERAL (
		           SELECT position, at FROM `+table+`
		            WHERE (account, position) > ($1, (before + last) / 2) ORDER BY account, position LIMIT 1) AS next
		     WHERE last - before > $3
		)
		SELECT before, last FROM half ORDER BY last - before LIMIT 1`, pgx.QueryExecModeCacheDescribe, account, at, nearPositions).Scan(&before, &last)
	return before, last, schema.Unavailable(err)
}
