package delivery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
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

// settle writes down results, together. A delivery that succeeded counts whoever has the row by now; one that did not
// leaves a row alone that is finished already.
func (c *Courier) settle(ctx context.Context, results []result) error {
	return pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		for _, r := range results {
			batch.Queue(`
				UPDATE delivery.delivery
				   SET state = $2, attempts = attempts + $3, lease = NULL, due_at = now() + $4::bigint * interval '1 microsecond',
				       finished_at = CASE WHEN $2 <> 'queued' THEN now() END
				 WHERE seq = $1 AND state = 'queued'`, r.seq, r.state, count(r.attempted), r.wait.Microseconds())
			if !r.attempted {
				continue
			}
			message := ""
			if r.outcome.err != nil {
				message = r.outcome.err.Error()
			}
			batch.Queue(`
				INSERT INTO delivery.attempt (seq, number, at, status, duration_ms, response, error)
				SELECT $1, coalesce(max(number), 0) + 1, $2, $3, $4, $5, $6 FROM delivery.attempt WHERE seq = $1`,
				r.seq, r.outcome.at, r.outcome.status, r.outcome.took.Milliseconds(), r.outcome.response, message)
		}
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		return saveHealth(ctx, tx, results)
	})
}

func count(attempted bool) int {
	if attempted {
		return 1
	}
	return 0
}

// saveHealth notes when each endpoint last answered well, and when not. In the order of ids, so that couriers do not
// wait for each other in a circle.
func saveHealth(ctx context.Context, tx pgx.Tx, results []result) error {
	var ids []string
	var good, bad []*time.Time
	for _, r := range results {
		if !r.attempted {
			continue
		}
		ids = append(ids, r.webhookID)
		if r.outcome.success() {
			good, bad = append(good, &r.outcome.at), append(bad, nil)
			continue
		}
		good, bad = append(good, nil), append(bad, &r.outcome.at)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO delivery.health AS h (webhook_id, last_success_at, last_failure_at)
		SELECT id, max(good), max(bad) FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS u (id, good, bad)
		 GROUP BY id ORDER BY id
		    ON CONFLICT (webhook_id) DO UPDATE
		   SET last_success_at = greatest(h.last_success_at, excluded.last_success_at),
		       last_failure_at = greatest(h.last_failure_at, excluded.last_failure_at)`, ids, good, bad)
	return err
}
