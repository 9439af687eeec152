package courier

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/delivery"
)

// States of a delivery.
const (
	queued    = "queued"
	delivered = "delivered"
	failed    = "failed"
	cancelled = "cancelled"
)

// result is the outcome of a claimed row.
type result struct {
	row
	state     string
	attempted bool
	recorded  bool // the reason why no attempt was made is recorded like an attempt
	forgotten bool // the lead of the delivery is erased
	outcome   outcome
	wait      time.Duration // before the next attempt, if queued
}

// saveAll saves results in batches, and retries until they are saved or the context is done. A delivery whose result is
// lost is sent again.
func (c *Courier) saveAll(ctx context.Context) {
	var disabling sync.WaitGroup
	defer disabling.Wait()
	for first := range c.results {
		batch := []result{first}
		for len(batch) < saveBatch && len(c.results) > 0 {
			batch = append(batch, <-c.results)
		}
		for len(batch) > 0 {
			c.saveWithRetry(ctx, batch, &disabling)
			again, wanted := c.windows.saved(batch)
			if wanted {
				c.wakeUp()
			}
			batch = again
		}
	}
}

func (c *Courier) saveWithRetry(ctx context.Context, batch []result, disabling *sync.WaitGroup) {
	for backoff := (eventstore.Backoff{Shortest: minBackoff, Longest: maxBackoff}); ctx.Err() == nil; {
		failing, err := c.save(ctx, batch)
		switch {
		case err == nil:
			c.Watcher.finished(batch)
			c.disableAll(ctx, disabling, failing)
			return
		case rejected(err):
			c.saveRejected(ctx, batch, disabling, err)
			return
		}
		if !backoff.Failing() { // logged once
			c.Log.Warn("results of deliveries not saved, retrying", slog.Int("results", len(batch)),
				slog.Any("error", err))
		}
		_ = backoff.Wait(ctx)
	}
}

// saveRejected saves a batch that the database rejects because of one of its results: it splits the batch in halves,
// and saves a single result without its attempt.
func (c *Courier) saveRejected(ctx context.Context, batch []result, disabling *sync.WaitGroup, why error) {
	if len(batch) > 1 {
		c.saveWithRetry(ctx, batch[:len(batch)/2], disabling)
		c.saveWithRetry(ctx, batch[len(batch)/2:], disabling)
		return
	}
	r := batch[0]
	c.Log.Error("result of a delivery rejected by the database", slog.String("deliveryId", r.id),
		slog.Any("error", why))
	if r.attempted || r.recorded {
		r.attempts, r.attempted, r.recorded = int(attemptsMade(r)), false, false
		only := []result{r}
		c.saveWithRetry(ctx, only, disabling)
		batch[0].state, batch[0].wait = only[0].state, only[0].wait
	}
}

// save saves results in one round trip and one transaction. It can be repeated if its outcome is unknown. A success
// counts even if another courier has claimed the row since; a failure does not change a finished delivery. A result is
// set to queued if the owner requested a retry during the attempt. It returns the endpoints that have failed for too
// long.
func (c *Courier) save(ctx context.Context, results []result) (failing []command.DisableWebhookEndpoint, err error) {
	batch := &pgx.Batch{}
	// Plans are cached, and mostly made while the queue is empty, when a sequential scan looks cheap.
	batch.Queue(`SELECT set_config('enable_seqscan', 'off', true)`)
	webhooks, lanes := finishedLanes(results)
	if len(lanes) > 0 {
		delivery.LockLanes(batch, webhooks)
	}
	saveAttempts(batch, results)
	var retried []string
	finish(batch, results, &retried)
	requeue(batch, results)
	if len(lanes) > 0 {
		batch.Queue(`SELECT delivery.advance($1, $2)`, webhooks, lanes)
	}
	clearResponses(batch, results)
	saveHealth(batch, results, func(f command.DisableWebhookEndpoint) { failing = append(failing, f) })
	if err := c.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return failing, err
	}
	for i := range results {
		if slices.Contains(retried, results[i].id) {
			results[i].state, results[i].wait = queued, 0
		}
	}
	return failing, nil
}

// finishedLanes returns the lanes of finished deliveries, with their endpoints.
func finishedLanes(results []result) (webhooks, lanes []string) {
	for _, r := range results {
		if r.lane != nil && r.state != queued {
			webhooks, lanes = append(webhooks, r.webhookID), append(lanes, *r.lane)
		}
	}
	return webhooks, lanes
}

// rejected reports whether the database will reject the same statement every time.
func rejected(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) &&
		slices.Contains([]string{"22", "23", "54"}, answer.Code[:min(2, len(answer.Code))])
}

// finish deletes finished deliveries from the queue. A failed delivery whose owner requested a retry after the claim is
// queued again, at the start of its schedule, and its id is added to retried. The bounds of the ids exclude the
// partitions of other days.
func finish(batch *pgx.Batch, results []result, retried *[]string) {
	var ids, states, lost []string
	var claimed []int64
	for _, r := range results {
		if r.state != queued {
			ids, states, claimed = append(ids, r.id), append(states, r.state), append(claimed, r.retried)
		}
		if r.state == failed {
			lost = append(lost, r.id)
		}
	}
	if len(ids) == 0 {
		return
	}
	if len(lost) > 0 { // the statement below must see a retry that is being committed
		batch.Queue(`SELECT FROM delivery.queue WHERE delivery_id = ANY ($1) ORDER BY delivery_id FOR UPDATE`, lost)
	}
	batch.Queue(`
		WITH done AS (
		    SELECT id, state, q.retried <> u.retried AND state = 'failed' AS again
		      FROM unnest($1::text[], $2::text[], $5::bigint[]) AS u (id, state, retried) JOIN delivery.queue q
		      ON q.delivery_id = id
		), kept AS (
		    UPDATE delivery.queue q SET attempts = 0, due_at = now(), lease = NULL
		      FROM done WHERE q.delivery_id = id AND again RETURNING id
		), gone AS (
		    DELETE FROM delivery.queue q USING done WHERE q.delivery_id = id AND NOT again
		    RETURNING id, done.state, q.lane
		), finished AS (
		    UPDATE delivery.delivery d SET state = gone.state, finished_at = now(), gave_way = gone.state = 'failed'
		    AND gone.lane IS NOT NULL
		      FROM gone WHERE d.delivery_id = id AND d.delivery_id BETWEEN $3 AND $4
		)
		SELECT id FROM kept`, ids, states, slices.Min(ids), slices.Max(ids), claimed).
		Query(func(rows pgx.Rows) (err error) {
			*retried, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
}

// requeue returns unfinished deliveries to the queue, with the same due time if they need not wait. A delivery does not
// wait if its owner requested a retry after it was claimed.
func requeue(batch *pgx.Batch, results []result) {
	var ids []string
	var attempts []int32
	var waits, claimed []int64
	for _, r := range results {
		if r.state == queued {
			ids, attempts, waits = append(ids, r.id), append(attempts, attemptsMade(r)),
				append(waits, r.wait.Microseconds())
			claimed = append(claimed, r.retried)
		}
	}
	if len(ids) == 0 {
		return
	}
	batch.Queue(`
		UPDATE delivery.queue q
		   SET attempts = greatest(q.attempts, u.attempts), lease = NULL,
		       due_at = CASE WHEN u.wait = 0 THEN q.due_at
		                     WHEN q.retried <> u.retried THEN now()
		                     ELSE now() + u.wait * interval '1 microsecond' END
		  FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::bigint[]) AS u (id, attempts, wait, retried)
		 WHERE q.delivery_id = u.id`, ids, attempts, waits, claimed)
}

// attemptsMade returns the number of attempts including this one. An increment in the database would count twice when
// save is repeated.
func attemptsMade(r result) int32 {
	if r.attempted {
		return int32(r.attempts) + 1
	}
	return int32(r.attempts)
}

// saveAttempts records attempts. The endpoint's response, and an error that may quote it, are recorded only if the row
// is still in the queue: otherwise another process has finished the delivery, and its lead may have been erased since.
func saveAttempts(batch *pgx.Batch, results []result) {
	var ids, responses, errs []string
	var at []time.Time
	var statuses, durations []int32
	for _, r := range results {
		if !r.attempted && !r.recorded {
			continue
		}
		message := ""
		if r.outcome.err != nil {
			message = storable(r.outcome.err.Error())
		}
		ids, at = append(ids, r.id), append(at, r.outcome.at)
		statuses, durations = append(statuses, int32(r.outcome.status)),
			append(durations, int32(r.outcome.took.Milliseconds()))
		responses, errs = append(responses, r.outcome.response), append(errs, message)
	}
	if len(ids) == 0 {
		return
	}
	batch.Queue(`
		WITH attempted AS (SELECT delivery_id FROM delivery.queue WHERE delivery_id = ANY ($1)
		  ORDER BY delivery_id FOR UPDATE)
		INSERT INTO delivery.attempt (delivery_id, at, status, duration_ms, response, error)
		SELECT u.id, at, status, took, CASE WHEN attempted.delivery_id IS NULL THEN '' ELSE response END,
		       CASE WHEN attempted.delivery_id IS NULL THEN '' ELSE error END
		  FROM unnest($1::text[], $2::timestamptz[], $3::integer[], $4::integer[], $5::text[], $6::text[])
		       AS u (id, at, status, took, response, error)
		  LEFT JOIN attempted ON attempted.delivery_id = u.id
		    ON CONFLICT DO NOTHING`,
		ids, at, statuses, durations, responses, errs)
}

// clearResponses deletes the responses to deliveries whose lead turned out to be erased. The erasure has done this
// already, except for a delivery that was retried later, while an earlier attempt was in flight.
func clearResponses(batch *pgx.Batch, results []result) {
	var ids []string
	for _, r := range results {
		if r.forgotten {
			ids = append(ids, r.id)
		}
	}
	if len(ids) > 0 {
		batch.Queue(`UPDATE delivery.attempt SET response = '', error = '' WHERE delivery_id = ANY ($1)`, ids)
	}
}

// disableAfter is how long an endpoint may fail. A failure that occurs this long after the first failure since the last
// success disables the endpoint.
const disableAfter = 5 * 24 * time.Hour

// disableEndpoint disables an endpoint, and reports whether that succeeded.
func (c *Courier) disableEndpoint(ctx context.Context, f command.DisableWebhookEndpoint) bool {
	if c.Disable == nil {
		return true
	}
	log := c.Log.With(slog.String("webhookId", f.WebhookID), slog.String("reason", f.Reason))
	if err := c.Disable(ctx, f); err != nil {
		log.Warn("endpoint not disabled", slog.Any("error", err))
		return false
	}
	log.Info("endpoint disabled")
	return true
}

// disableAll disables endpoints in the background. If that fails, the endpoint's next failed attempt repeats it.
func (c *Courier) disableAll(ctx context.Context, running *sync.WaitGroup, failing []command.DisableWebhookEndpoint) {
	for _, f := range failing {
		running.Go(func() { c.disableEndpoint(ctx, f) })
	}
}

// saveHealth records the last success and the last failure of each endpoint, and reports those that have failed for too
// long. It updates rows in the order of their ids, so that couriers do not deadlock.
func saveHealth(batch *pgx.Batch, results []result, report func(command.DisableWebhookEndpoint)) {
	var ids, urls []string
	var good, bad []*time.Time
	for _, r := range results {
		if !r.attempted {
			continue
		}
		ids, urls = append(ids, r.webhookID), append(urls, r.url)
		if r.outcome.success() {
			good, bad = append(good, &r.outcome.at), append(bad, nil)
			continue
		}
		good, bad = append(good, nil), append(bad, &r.outcome.at)
	}
	if len(ids) == 0 {
		return
	}
	// Of the results in a batch, a failure counts if it is later than the last success and was at the endpoint's
	// current URL: an attempt at an earlier URL may have been in flight when it was changed.
	batch.Queue(`
		WITH seen AS (
		    SELECT id, coalesce(max(url) FILTER (WHERE at_current_url), max(url)) AS url, max(good) AS good,
		    max(bad) AS bad,
		           min(bad) FILTER (WHERE at_current_url AND (bad > last OR last IS NULL)) AS first_bad
		      FROM (SELECT u.*, e.url IS NOT NULL AS at_current_url, max(good) OVER (PARTITION BY id) AS last
		              FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS u (id, url, good,
		                bad)
		              LEFT JOIN delivery.endpoint e ON e.webhook_id = u.id AND e.url = u.url) AS u
		     GROUP BY id
		), saved AS (
		    INSERT INTO delivery.health AS h (webhook_id, last_success_at, last_failure_at, failing_since)
		    SELECT id, good, bad, first_bad FROM seen ORDER BY id
		        ON CONFLICT (webhook_id) DO UPDATE
		       SET last_success_at = greatest(h.last_success_at, excluded.last_success_at),
		           last_failure_at = greatest(h.last_failure_at, excluded.last_failure_at),
		           failing_since = CASE WHEN excluded.last_success_at IS NOT NULL THEN excluded.failing_since
		                                WHEN h.failing_since IS NOT NULL THEN h.failing_since
		                                WHEN h.last_success_at IS NULL OR excluded.failing_since > h.last_success_at
		                                THEN excluded.failing_since END
		    RETURNING webhook_id, last_failure_at, failing_since
		)
		SELECT id, url, failing_since FROM saved JOIN seen ON id = webhook_id
		 WHERE bad IS NOT NULL AND last_failure_at - failing_since >= $5::bigint * interval '1 microsecond'`,
		ids, urls, good, bad, disableAfter.Microseconds()).Query(func(rows pgx.Rows) error {
		f := command.DisableWebhookEndpoint{Reason: webhook.Failing}
		_, err := pgx.ForEachRow(rows, []any{&f.WebhookID, &f.URL, &f.SeenFrom}, func() error {
			report(f)
			return nil
		})
		return err
	})
}
