// Package resubmit captures the quarantined arrivals of an intake again, in the background, after its owner has corrected the mapping.
// Requests and their progress are rows of the views' database, so that any process can continue an interrupted request.
package resubmit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Request selects the arrivals that are quarantined at an intake and were received in an interval. A zero time sets no bound.
type Request struct {
	Account    string
	IntakeID   string
	Since      time.Time // inclusive
	Until      time.Time // exclusive
	Actor      string    // who made the request
	Credential string
	RequestID  string // the service's own
}

// Queue holds the requests in the database.
type Queue struct {
	Pool  *pgxpool.Pool
	Store eventstore.Store
}

// Add adds a request for the arrivals that are on the log now. The errors are those of the log and of the database.
func (q Queue) Add(ctx context.Context, r Request) error {
	head, err := q.Store.Head(ctx)
	if err != nil {
		return err
	}
	_, err = q.Pool.Exec(ctx, `
		INSERT INTO arrival.resubmission (resubmission_id, account, intake_id, since, until, last, actor, credential, request_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		ulid.Make().String(), r.Account, r.IntakeID, zeronull.Timestamptz(r.Since), zeronull.Timestamptz(r.Until), int64(head), r.Actor, r.Credential, r.RequestID)
	return schema.Unavailable(err)
}

// Progress is the progress of a request.
type Progress struct {
	IntakeID   string
	At         time.Time // when it was requested
	Actor      string
	Arrivals   int64     // captured again or quarantined again
	FinishedAt time.Time // zero: not finished
}

// Latest returns the latest requests of an account, the newest first.
func (q Queue) Latest(ctx context.Context, account string, limit int) ([]Progress, error) {
	rows, err := q.Pool.Query(ctx, `
		SELECT resubmission_id, intake_id, actor, arrivals, finished_at FROM arrival.resubmission
		 WHERE account = $1 ORDER BY resubmission_id DESC LIMIT $2`, account, limit)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Progress, err error) {
		var id string
		if err := row.Scan(&id, &p.IntakeID, &p.Actor, &p.Arrivals, (*zeronull.Timestamptz)(&p.FinishedAt)); err != nil {
			return p, err
		}
		made, err := ulid.ParseStrict(id)
		p.At = made.Timestamp().UTC()
		return p, err
	})
	return found, schema.Unavailable(err)
}

// Worker processes requests. Any number of workers may run on one database; each request is processed by one at a time.
type Worker struct {
	Queue
	// Resubmit captures one arrival again. An outcome such as a conflict is not an error.
	Resubmit func(ctx context.Context, r Request, arrivalID string) error
	Log      *slog.Logger
}

const (
	poll  = time.Second
	retry = 5 * time.Second
	// pageSize is how many arrivals are captured before the progress is saved. If the process is killed before that, they are captured again,
	// which has no effect.
	pageSize = 50
)

// Run processes requests until the context is done.
func (w Worker) Run(ctx context.Context) {
	work := eventstore.Background{Work: "resubmit arrivals", Interval: poll, Retry: retry, Log: w.Log}
	work.Run(ctx, w.Turn)
}

// Turn processes the oldest request that no other worker processes. Worked is false when there is none, or the view lags.
func (w Worker) Turn(ctx context.Context) (worked bool, err error) {
	err = pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error {
		var id string
		var r Request
		var last, reached int64
		err := tx.QueryRow(ctx, `
			SELECT resubmission_id, account, intake_id, since, until, actor, credential, request_id, last, reached
			  FROM arrival.resubmission
			 WHERE finished_at IS NULL AND last <= (SELECT position FROM views.checkpoint WHERE projector = $1)
			 ORDER BY resubmission_id LIMIT 1 FOR UPDATE SKIP LOCKED`, schema.Arrival).
			Scan(&id, &r.Account, &r.IntakeID, (*zeronull.Timestamptz)(&r.Since), (*zeronull.Timestamptz)(&r.Until), &r.Actor, &r.Credential, &r.RequestID,
				&last, &reached)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		page, err := quarantined(ctx, tx, r, reached, last)
		if err != nil {
			return err
		}
		for _, arrival := range page {
			if err := w.Resubmit(ctx, r, arrival.ID); err != nil {
				return err
			}
			reached = arrival.Position
		}
		worked = true
		_, err = tx.Exec(ctx, `
			UPDATE arrival.resubmission SET reached = $2, arrivals = arrivals + $3, finished_at = CASE WHEN $4 THEN now() END WHERE resubmission_id = $1`,
			id, reached, len(page), len(page) < pageSize)
		return err
	})
	return worked, schema.Unavailable(err)
}

// quarantinedArrival is an arrival and its position on the log.
type quarantinedArrival struct {
	ID       string
	Position int64
}

// quarantined returns the next page of arrivals. Its second condition on the state matches that of the index.
func quarantined(ctx context.Context, tx pgx.Tx, r Request, after, last int64) ([]quarantinedArrival, error) {
	rows, err := tx.Query(ctx, `
		SELECT arrival_id, position FROM views.arrival
		 WHERE account = $1 AND intake_id = $2 AND state = 'quarantined' AND state IN ('received', 'quarantined') AND position > $3 AND position <= $4
		   AND ($5::timestamptz IS NULL OR received_at >= $5) AND ($6::timestamptz IS NULL OR received_at < $6)
		 ORDER BY position LIMIT $7`,
		r.Account, r.IntakeID, after, last, zeronull.Timestamptz(r.Since), zeronull.Timestamptz(r.Until), pageSize)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[quarantinedArrival])
}
