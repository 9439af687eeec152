package delivery

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What becomes of a row.
const (
	queued    = "queued"
	delivered = "delivered"
	failed    = "failed"
	cancelled = "cancelled"
)

// result is what a row in hand came to.
type result struct {
	row
	state     string
	attempted bool
	outcome   outcome
	wait      time.Duration // until the next attempt, when queued
}

// settle writes down results, together, in one round trip, which is one transaction, and may be done again when it is
// not known whether it was. A delivery that succeeded counts whoever has the row by now; one that did not leaves a
// delivery alone that is finished already. It returns which endpoints have failed for too long.
func (c *Courier) settle(ctx context.Context, results []result) (failing []Verdict, err error) {
	batch := &pgx.Batch{}
	// Plans are kept, and are mostly made while the queue is empty, when reading the whole of it looks cheap.
	batch.Queue(`SELECT set_config('enable_seqscan', 'off', true)`)
	finish(batch, results)
	putBack(batch, results)
	saveAttempts(batch, results)
	saveHealth(batch, results, func(v Verdict) { failing = append(failing, v) })
	return failing, c.pool.SendBatch(ctx, batch).Close()
}

// refused tells that the database will not have what is written down, however often it is asked.
func refused(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && slices.Contains([]string{"22", "23", "54"}, answer.Code[:min(2, len(answer.Code))])
}

// finish takes deliveries that are finished off the queue. The bounds of their ids keep the other days out of it.
func finish(batch *pgx.Batch, results []result) {
	var ids, states []string
	for _, r := range results {
		if r.state != queued {
			ids, states = append(ids, r.id), append(states, r.state)
		}
	}
	if len(ids) == 0 {
		return
	}
	batch.Queue(`
		WITH gone AS (
		    DELETE FROM delivery.queue q USING unnest($1::text[], $2::text[]) AS u (id, state)
		     WHERE q.delivery_id = u.id RETURNING u.id, u.state
		)
		UPDATE delivery.delivery d SET state = gone.state, finished_at = now()
		  FROM gone WHERE d.delivery_id = gone.id AND d.delivery_id BETWEEN $3 AND $4`,
		ids, states, slices.Min(ids), slices.Max(ids))
}

// putBack leaves in the queue what is to be sent later, in its place when it need not wait.
func putBack(batch *pgx.Batch, results []result) {
	var ids []string
	var attempts []int32
	var waits []int64
	for _, r := range results {
		if r.state == queued {
			ids, attempts, waits = append(ids, r.id), append(attempts, made(r)), append(waits, r.wait.Microseconds())
		}
	}
	if len(ids) == 0 {
		return
	}
	batch.Queue(`
		UPDATE delivery.queue q
		   SET attempts = greatest(q.attempts, u.attempts), lease = NULL,
		       due_at = CASE WHEN u.wait = 0 THEN q.due_at ELSE now() + u.wait * interval '1 microsecond' END
		  FROM unnest($1::text[], $2::integer[], $3::bigint[]) AS u (id, attempts, wait)
		 WHERE q.delivery_id = u.id`, ids, attempts, waits)
}

// made is how many attempts were made with this one. A sum in the database would count it again with each writing down.
func made(r result) int32 {
	if r.attempted {
		return int32(r.attempts) + 1
	}
	return int32(r.attempts)
}

// saveAttempts keeps what was answered, unless the delivery was cancelled meanwhile: its lead may be erased.
func saveAttempts(batch *pgx.Batch, results []result) {
	var ids, responses, errs []string
	var at []time.Time
	var statuses, durations []int32
	for _, r := range results {
		if !r.attempted {
			continue
		}
		message := ""
		if r.outcome.err != nil {
			message = storable(r.outcome.err.Error())
		}
		ids, at = append(ids, r.id), append(at, r.outcome.at)
		statuses, durations = append(statuses, int32(r.outcome.status)), append(durations, int32(r.outcome.took.Milliseconds()))
		responses, errs = append(responses, r.outcome.response), append(errs, message)
	}
	if len(ids) == 0 {
		return
	}
	batch.Queue(`
		INSERT INTO delivery.attempt (delivery_id, at, status, duration_ms, response, error)
		SELECT u.id, at, status, took, CASE WHEN d.delivery_id IS NULL THEN response ELSE '' END, error
		  FROM unnest($1::text[], $2::timestamptz[], $3::integer[], $4::integer[], $5::text[], $6::text[])
		       AS u (id, at, status, took, response, error)
		  LEFT JOIN delivery.delivery d ON d.delivery_id = u.id AND d.delivery_id BETWEEN $7 AND $8 AND d.state = 'cancelled'
		    ON CONFLICT DO NOTHING`,
		ids, at, statuses, durations, responses, errs, slices.Min(ids), slices.Max(ids))
}
