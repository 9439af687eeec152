package logtree

import (
	"context"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Erasure finds the event that erased a lead of an account. The error is ErrNotFound when it was not erased.
func (r Reader) Erasure(ctx context.Context, account, leadID string) (eventstore.Recorded, error) {
	return r.LeadEvent(ctx, account, leadID, func(e eventstore.Recorded) bool {
		return e.Type == event.LeadErased{}.EventType()
	})
}

// Certificate returns the certificate of an erasure that is finished. The error is ErrNotCovered.
func (r Reader) Certificate(
	ctx context.Context, erased eventstore.Recorded, now time.Time,
) (c audit.Certificate, err error) {
	proof, err := r.Receipt(ctx, erased.Position)
	if err != nil {
		return c, err
	}
	if c, err = audit.NewCertificate(erased, proof, now); err != nil {
		return c, err
	}
	c.Endpoints, err = r.notified(ctx, erased, now)
	return c, err
}

// notified returns the endpoints that the account had when a lead was erased, also those that were deleted later, and
// the outcome of lead.erased at each. It returns nil when an old erasure has no record at all: then it is not known
// whether there was none, or it is lost.
func (r Reader) notified(
	ctx context.Context, erased eventstore.Recorded, now time.Time,
) ([]audit.NotifiedEndpoint, error) {
	rows, err := r.Pool.Query(ctx, `
		SELECT e.webhook_id, e.url, coalesce(d.state, ''), d.finished_at, coalesce(d.attempts, 0), coalesce(d.status, 0)
		  FROM delivery.endpoint e
		  LEFT JOIN LATERAL (
		      SELECT state, finished_at, attempts, status
		        FROM (SELECT d.delivery_id, d.state, d.finished_at, a.attempts, a.status
		                FROM delivery.delivery d
		                LEFT JOIN LATERAL (SELECT count(*) AS attempts,
		                  (array_agg(status ORDER BY at DESC))[1] AS status
		                                     FROM delivery.attempt WHERE delivery_id = d.delivery_id) AS a ON true
		               WHERE d.stream = $2 AND d.event_id = $3 AND d.webhook_id = e.webhook_id
		               UNION ALL
		              SELECT '', state, finished_at, attempts, status FROM delivery.erasure WHERE event_id = $3
		              AND webhook_id = e.webhook_id) AS known
		       ORDER BY state = 'delivered' DESC, state = 'queued' DESC, delivery_id DESC LIMIT 1) AS d ON true
		 WHERE e.account = $1
		   AND (d.state IS NOT NULL OR NOT e.deleted
		        OR NOT EXISTS (SELECT FROM views.trail AS t
		                        WHERE t.account = $1 AND t.subject = e.webhook_id AND t.type = $4 AND t.at < $5))
		 ORDER BY e.webhook_id`,
		erased.Metadata.Account, erased.Stream, erased.ID.String(),
		event.PublicName(event.WebhookDeleted{}.EventType()), erased.At)
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	notified, recorded := []audit.NotifiedEndpoint{}, false
	var e audit.NotifiedEndpoint
	var address, state string
	var finished *time.Time
	_, err = pgx.ForEachRow(rows,
		[]any{&e.WebhookID, &address, &state, &finished, &e.Attempts, &e.Status}, func() error {
			id, err := ulid.Parse(e.WebhookID)
			if err == nil && state == "" && ulid.Time(id.Time()).After(erased.At) {
				return nil
			}
			recorded = recorded || state != ""
			e.State, e.AcknowledgedAt, e.Host = states[state], nil, ""
			if e.State == audit.Acknowledged && finished != nil {
				at := audit.FormatTime(*finished)
				e.AcknowledgedAt = &at
			}
			if parsed, err := url.Parse(address); err == nil {
				e.Host = parsed.Host // paths of endpoints may be secrets
			}
			notified = append(notified, e)
			return nil
		})
	if !recorded && len(notified) > 0 && now.Sub(erased.At) > schema.DeliveryDays*24*time.Hour {
		return nil, schema.Unavailable(err)
	}
	return notified, schema.Unavailable(err)
}

// states maps the states of deliveries.
var states = map[string]string{
	"": audit.NotSent, "queued": audit.Pending, "delivered": audit.Acknowledged, "failed": audit.Failed,
	"cancelled": audit.Cancelled,
}
