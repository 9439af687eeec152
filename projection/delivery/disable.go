package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/webhook"
)

// disableAfter is how long an endpoint may fail. It is disabled by a failure that comes this long after the first failure since its
// last success.
const disableAfter = 5 * 24 * time.Hour

// Verdict is a courier's decision to disable an endpoint, because of failures at its URL since a time.
type Verdict struct {
	WebhookID, URL string
	Reason         string // webhook.Gone or webhook.Failing
	SeenFrom       time.Time
}

// switchOff carries out a verdict and reports whether it could.
func (c *Courier) switchOff(ctx context.Context, v Verdict) bool {
	if c.disable == nil {
		return true
	}
	log := c.log.With(slog.String("webhookId", v.WebhookID), slog.String("reason", v.Reason))
	if err := c.disable(ctx, v); err != nil {
		log.Warn("endpoint not disabled", slog.Any("error", err))
		return false
	}
	log.Info("endpoint disabled")
	return true
}

// switchOffAll carries out verdicts in the background. If one fails, the endpoint's next failure leads to another.
func (c *Courier) switchOffAll(ctx context.Context, running *sync.WaitGroup, verdicts []Verdict) {
	for _, v := range verdicts {
		running.Go(func() { c.switchOff(ctx, v) })
	}
}

// saveHealth notes when each endpoint last answered well, and when not, and hands to judge those that have failed for
// too long. In the order of ids, so that couriers do not wait for each other in a circle.
func saveHealth(batch *pgx.Batch, results []result, judge func(Verdict)) {
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
	// Among results that are written down together, failures that are later than the last success count, and of those the
	// ones at the endpoint's present URL: an attempt at another may have been under way when that was changed.
	batch.Queue(`
		WITH seen AS (
		    SELECT id, max(url) AS url, max(good) AS good, max(bad) AS bad,
		           min(bad) FILTER (WHERE there AND (bad > last OR last IS NULL)) AS first_bad
		      FROM (SELECT u.*, e.url IS NOT NULL AS there, max(good) OVER (PARTITION BY id) AS last
		              FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[]) AS u (id, url, good, bad)
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
		                                WHEN h.last_success_at IS NULL OR excluded.failing_since > h.last_success_at THEN excluded.failing_since END
		    RETURNING webhook_id, last_failure_at, failing_since
		)
		SELECT id, url, failing_since FROM saved JOIN seen ON id = webhook_id
		 WHERE bad IS NOT NULL AND last_failure_at - failing_since >= $5::bigint * interval '1 microsecond'`,
		ids, urls, good, bad, disableAfter.Microseconds()).Query(func(rows pgx.Rows) error {
		v := Verdict{Reason: webhook.Failing}
		_, err := pgx.ForEachRow(rows, []any{&v.WebhookID, &v.URL, &v.SeenFrom}, func() error {
			judge(v)
			return nil
		})
		return err
	})
}
