package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/projection/schema"
)

// RefusedArrival is an arrival that was answered with a conflict. It has nothing of the person who arrived.
type RefusedArrival struct {
	At          Timestamp  `json:"at"`
	Source      string     `json:"source"`
	Code        string     `json:"code"`
	LeadID      string     `json:"leadId"`      // the lead that is there
	OtherLeadID *string    `json:"otherLeadId"` // a second one, when phone and email belong to two
	Credential  Credential `json:"credential"`
	RequestID   string     `json:"requestId"`
}

// RefusedFilter selects refused arrivals. Empty fields select all.
type RefusedFilter struct {
	Source string
	Code   string
	Since  time.Time // inclusive
	Until  time.Time // exclusive
}

// Refused lists an account's refused arrivals, oldest first. The error is ErrCursor for a cursor of another list.
func (r *Reader) Refused(ctx context.Context, account string, filter RefusedFilter, p Page) (List[RefusedArrival], error) {
	s := selection{
		from:  `SELECT position, at, source, code, lead_id, nullif(other_lead_id, ''), credential, request_id FROM views.refused`,
		order: `position`,
	}
	s.and(`account = ?`, account)
	s.equal(`source`, filter.Source)
	s.equal(`code`, filter.Code)
	if err := r.arrived(ctx, &s, account, filter.Since, filter.Until); err != nil {
		return List[RefusedArrival]{}, err
	}
	if err := s.goOn(`>`, cursorOf(refusedCursor, account), p.Cursor); err != nil {
		return List[RefusedArrival]{}, err
	}
	return pageByPosition(ctx, r, s, cursorOf(refusedCursor, account), p.Limit, scanRefused)
}

const (
	// clockSkew is how far the clocks of processes that append may be apart for a list by time to miss nothing: a zone's difference
	// is less. What auditors are shown depends on no clock: there are fewer token events and reveals.
	clockSkew = 24 * time.Hour
	// nearPositions are rather read than halved once more.
	nearPositions = 500
)

// arrived adds the condition that an account's refused arrivals are not of before one time and of before another; a zero time
// sets no bound. PostgreSQL would look for these times from the beginning of the log on, so it is told between which positions
// they are.
func (r *Reader) arrived(ctx context.Context, s *selection, account string, since, until time.Time) error {
	s.within(`at`, since, until)
	if !storable(account) {
		return nil // nothing matches
	}
	if !since.IsZero() {
		earlier, _, err := r.around(ctx, account, since.Add(-clockSkew))
		if err != nil {
			return err
		}
		s.and(`position > ?`, earlier)
	}
	if !until.IsZero() {
		_, last, err := r.around(ctx, account, until.Add(clockSkew))
		if err != nil {
			return err
		}
		s.and(`position <= ?`, last)
	}
	return nil
}

// around finds, by bisection, a position up to which an account's refused arrivals are of before a time, and a later one behind
// which they are not. Times grow with positions, except for how far clocks differ. The account's last row is behind every
// middle, so the row that follows a middle is always one of the account's.
func (r *Reader) around(ctx context.Context, account string, at time.Time) (before, last int64, err error) {
	err = r.pool.QueryRow(ctx, `
		WITH RECURSIVE half (before, last) AS (
		    SELECT 0::bigint, coalesce((SELECT max(position) FROM views.refused WHERE account = $1), 0)
		     UNION ALL
		    SELECT CASE WHEN at < $2 THEN position ELSE before END, CASE WHEN at < $2 THEN last ELSE (before + last) / 2 END
		      FROM half CROSS JOIN LATERAL (
		           SELECT position, at FROM views.refused
		            WHERE (account, position) > ($1, (before + last) / 2) ORDER BY account, position LIMIT 1) AS next
		     WHERE last - before > $3
		)
		SELECT before, last FROM half ORDER BY last - before LIMIT 1`, pgx.QueryExecModeCacheDescribe, account, at, nearPositions).Scan(&before, &last)
	return before, last, schema.Unavailable(err)
}

func scanRefused(row pgx.CollectableRow) (placed[RefusedArrival], error) {
	var a placed[RefusedArrival]
	err := row.Scan(&a.position, &a.item.At, &a.item.Source, &a.item.Code, &a.item.LeadID, &a.item.OtherLeadID,
		&a.item.Credential, &a.item.RequestID)
	return a, err
}
