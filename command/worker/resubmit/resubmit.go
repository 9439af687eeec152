// Package resubmit captures the quarantined arrivals of an intake again, in the background, after its owner has
// corrected the mapping. Requests and their progress are rows of the views' database, so that any process can continue
// an interrupted request.
package resubmit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Request selects the arrivals that are quarantined at an intake and were received in an interval. A zero time sets no
// bound.
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

// Add adds a request for the arrivals that are on the log now. It replaces an unfinished request with the same
// selection, because the mapping may have changed since. The errors are those of the log and of the database.
func (q Queue) Add(ctx context.Context, r Request) error {
	head, err := q.Store.Head(ctx)
	if err != nil {
		return err
	}
	_, err = q.Pool.Exec(ctx, `
		INSERT INTO arrival.resubmission (resubmission_id, account, intake_id, since, until, last, actor, credential,
		  request_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		    ON CONFLICT (account, intake_id, coalesce(since, '-infinity'), coalesce(until, 'infinity'))
		    WHERE finished_at IS NULL
		    DO UPDATE SET resubmission_id = excluded.resubmission_id, last = excluded.last, reached = 0, arrivals = 0,
		    claimed_until = now(),
		       actor = excluded.actor, credential = excluded.credential, request_id = excluded.request_id`,
		ulid.Make().String(), r.Account, r.IntakeID, zeronull.Timestamptz(r.Since), zeronull.Timestamptz(r.Until),
		int64(head), r.Actor, r.Credential, r.RequestID)
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
		if err := row.Scan(&id, &p.IntakeID, &p.Actor, &p.Arrivals,
			(*zeronull.Timestamptz)(&p.FinishedAt)); err != nil {
			return p, err
		}
		made, err := ulid.ParseStrict(id)
		p.At = made.Timestamp().UTC()
		return p, err
	})
	return found, schema.Unavailable(err)
}

// Worker processes requests. Any number of workers may run on one database; the requests of an account are processed by
// one at a time.
type Worker struct {
	Queue
	// Resubmit captures one arrival again. An outcome such as a conflict is not an error.
	Resubmit func(ctx context.Context, r Request, arrivalID string) error
	Log      *slog.Logger
}

// Commands returns a function for Worker.Resubmit that runs the command. The outcome is recorded on the log.
func Commands(
	directory *command.Directory, handlers *command.Handlers, log *slog.Logger,
) func(ctx context.Context, r Request, arrivalID string) error {
	return func(ctx context.Context, r Request, arrivalID string) error {
		caller := command.Caller{Account: r.Account, Actor: r.Actor, Credential: r.Credential, RequestID: r.RequestID}
		admission, err := directory.Admit(ctx, caller)
		if err == nil {
			_, err = handlers.ResubmitArrival(ctx, command.ResubmitArrival{Admission: admission, ArrivalID: arrivalID})
		}
		if errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, eventstore.ErrContended) || ctx.Err() != nil {
			return err
		}
		if err != nil && !command.Decided(err) {
			log.Warn("arrival not captured again", slog.String("arrival", arrivalID), slog.Any("error", err))
		}
		return nil
	}
}

const (
	poll = time.Second
	// workers is how many accounts a process serves at a time. Mappings have a limit of their own.
	workers = 4
	// An account's turn ends after pageSize arrivals, or when it has taken turnTime.
	pageSize = 10
	turnTime = time.Second
	// claim is how long a request of a killed worker waits. If a worker takes longer, arrivals are captured twice,
	// which has no effect.
	claim = time.Minute
	// saveTimeout bounds saving the progress, also of a worker that stops.
	saveTimeout = 2 * time.Second
)

// Run processes requests until the context is done.
func (w Worker) Run(ctx context.Context) {
	var running sync.WaitGroup
	for range workers {
		work := eventstore.Background{Work: "resubmit arrivals", Interval: poll, Log: w.Log}
		running.Go(func() { work.Run(ctx, w.RunOnce) })
	}
	running.Wait()
}

// RunOnce processes a page of the oldest request of the account whose last turn is the longest ago. Worked is false
// when there is none, or the view lags.
func (w Worker) RunOnce(ctx context.Context) (worked bool, err error) {
	c, err := w.claim(ctx)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, schema.Unavailable(err)
	}
	page, err := w.quarantined(ctx, c)
	done, begun := 0, time.Now()
	for err == nil && done < len(page) && (done == 0 || time.Since(begun) < turnTime) {
		if err = w.Resubmit(ctx, c.Request, page[done].ID); err == nil {
			c.reached = page[done].Position
			done++
		}
	}
	finished := err == nil && done == len(page) && done < pageSize
	if saved := w.save(ctx, c, done, finished); err == nil {
		err = saved
	}
	return true, schema.Unavailable(err)
}

// claimed is a request that a worker processes.
type claimed struct {
	Request
	id            string
	last, reached int64 // bounds of the positions of its arrivals
}

// claim claims a request. The error is pgx.ErrNoRows if there is none.
func (w Worker) claim(ctx context.Context) (c claimed, err error) {
	err = w.Pool.QueryRow(ctx, `
		UPDATE arrival.resubmission SET claimed_until = now() + $2
		 WHERE claimed_until <= now() AND finished_at IS NULL AND resubmission_id = (
		       SELECT min(resubmission_id) FILTER (WHERE last <= (SELECT position FROM views.checkpoint
		         WHERE projector = $1)) AS oldest
		         FROM arrival.resubmission
		        WHERE finished_at IS NULL
		        GROUP BY account
		       HAVING max(claimed_until) <= now() AND min(last) <= (SELECT position FROM views.checkpoint
		         WHERE projector = $1)
		        ORDER BY max(claimed_until), oldest
		        LIMIT 1)
		RETURNING resubmission_id, account, intake_id, since, until, actor, credential, request_id, last,
		  reached`, schema.Arrival, claim).
		Scan(&c.id, &c.Account, &c.IntakeID, (*zeronull.Timestamptz)(&c.Since), (*zeronull.Timestamptz)(&c.Until),
			&c.Actor, &c.Credential, &c.RequestID,
			&c.last, &c.reached)
	return c, err
}

// save saves how far a request has come, and ends the claim. It has no effect on a request that was replaced.
func (w Worker) save(ctx context.Context, c claimed, done int, finished bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	_, err := w.Pool.Exec(ctx, `
		UPDATE arrival.resubmission
		   SET reached = $2, arrivals = arrivals + $3, claimed_until = now(), finished_at = CASE WHEN $4 THEN now() END
		 WHERE resubmission_id = $1`, c.id, c.reached, done, finished)
	return err
}

// quarantinedArrival is an arrival and its position on the log.
type quarantinedArrival struct {
	ID       string
	Position int64
}

// quarantined returns the next page of arrivals. Its second condition on the state matches that of the index.
func (w Worker) quarantined(ctx context.Context, c claimed) ([]quarantinedArrival, error) {
	rows, err := w.Pool.Query(ctx, `
		SELECT arrival_id, position FROM views.arrival
		 WHERE account = $1 AND intake_id = $2 AND state = 'quarantined' AND state IN ('received', 'quarantined')
		 AND position > $3 AND position <= $4
		   AND ($5::timestamptz IS NULL OR received_at >= $5) AND ($6::timestamptz IS NULL OR received_at < $6)
		 ORDER BY position LIMIT $7`,
		c.Account, c.IntakeID, c.reached, c.last, zeronull.Timestamptz(c.Since),
		zeronull.Timestamptz(c.Until), pageSize)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[quarantinedArrival])
}
