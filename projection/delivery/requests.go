package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

// testType is the type of a test. It is sent only to the endpoint that it tests, whatever types that asked for.
const testType = "webhook.test"

// requests are the tests, retries and replays that owners of endpoints asked for in a batch.
type requests struct {
	retries []retry
	replays []replay
	fresh   []string // endpoints whose earlier failures do not count any more
}

type retry struct {
	webhookID, deliveryID string
	position              eventstore.Position
}

// replay is a request to send the events of a span of time again.
type replay struct {
	webhookID    string
	generation   int
	requestID    ulid.ULID
	account      string
	events       []string // asked for at the time
	since, until time.Time
	requested    eventstore.Position
	reached      *eventstore.Position // nil: not begun
}

// add adds the request of an event on an endpoint's stream. A test becomes a row of the batch.
func (r *requests) add(webhookID string, now endpoint, e projection.Event, rows *queue) {
	switch data := e.Data.(type) {
	case event.WebhookEnabled:
		r.fresh = append(r.fresh, webhookID)
	case event.WebhookUpdated:
		if slices.Contains(data.Changed, "url") {
			r.fresh = append(r.fresh, webhookID)
		}
	case event.WebhookTested:
		rows.add(e.ID, webhookID, testType, 0, e)
	case event.WebhookRetried:
		r.retries = append(r.retries, retry{webhookID, data.DeliveryID, e.Position})
	case event.WebhookReplayed:
		r.replays = append(r.replays, replay{
			webhookID: webhookID, generation: data.Generation, requestID: e.ID, account: now.account, events: now.events,
			since: data.Since, until: data.Until, requested: e.Position,
		})
	}
}

// save carries out the requests, each once even if the log is read again. It must come after the rows of the batch are saved.
func (r *requests) save(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	for _, retry := range r.retries {
		retry.save(batch)
	}
	for _, p := range r.replays {
		batch.Queue(`
			INSERT INTO replay (webhook_id, generation, request_id, account, events, since, until, requested)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING`,
			p.webhookID, p.generation, p.requestID.String(), p.account, p.events, p.since, p.until, int64(p.requested))
	}
	if len(r.fresh) > 0 {
		batch.Queue(`UPDATE health SET failing_since = NULL WHERE webhook_id = ANY ($1)`, r.fresh)
	}
	if batch.Len() == 0 {
		return nil
	}
	batch.Queue(awaitDisk)
	batch.Queue(notifyCouriers)
	return tx.SendBatch(ctx, batch).Close()
}

// save queues a finished delivery again, at the start of its schedule, and makes a waiting one due. One that is being attempted is
// due when the attempt ends, unless that succeeds.
func (r retry) save(batch *pgx.Batch) {
	// Whoever finishes a delivery locks its row in the queue first, too.
	batch.Queue(`SELECT FROM queue WHERE delivery_id = $1 FOR UPDATE`, r.deliveryID)
	batch.Queue(`
		WITH again AS (
		    UPDATE delivery SET state = 'queued', finished_at = NULL, retried = $3
		     WHERE delivery_id = $1 AND webhook_id = $2 AND retried < $3
		    RETURNING delivery_id, webhook_id, event_id, type, stream, revision, position, renderer, retried
		)
		INSERT INTO queue AS q (delivery_id, webhook_id, event_id, type, stream, revision, position, renderer, retried)
		SELECT * FROM again
		    ON CONFLICT (delivery_id) DO UPDATE
		   SET retried = excluded.retried, due_at = CASE WHEN q.lease IS NULL THEN now() ELSE q.due_at END`,
		r.deliveryID, r.webhookID, int64(r.position))
}
