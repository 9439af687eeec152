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
	fresh   []string      // endpoints whose earlier failures do not count any more
	ended   []ending      // of all replays of an endpoint
	over    []EndedReplay // as the log has it
}

type retry struct {
	webhookID, deliveryID string
	position              eventstore.Position
}

// ending is that an endpoint was disabled or deleted, which ends its replays.
type ending struct {
	webhookID, why string
	position       eventstore.Position
}

// replay is a request to send the events of a span of time again.
type replay struct {
	webhookID  string
	generation int
	requestID  ulid.ULID
	account    string
	events     []string // asked for at the time
	since      time.Time
	until      *time.Time // nil: up to the request
	requested  eventstore.Position
	reached    *eventstore.Position // nil: not begun
	disabled   bool                 // the endpoint was disabled at reached, since a time in the span
	failure    string               // why it is not carried out; empty: it is
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
	case event.WebhookDisabled:
		r.ended = append(r.ended, ending{webhookID, "the endpoint was disabled", e.Position})
	case event.WebhookDeleted:
		r.ended = append(r.ended, ending{webhookID, "the endpoint was deleted", e.Position})
	case event.WebhookTested:
		rows.add(e.ID, webhookID, testType, 0, e)
	case event.WebhookRetried:
		r.retries = append(r.retries, retry{webhookID, data.DeliveryID, e.Position})
	case event.WebhookReplayed:
		r.replays = append(r.replays, newReplay(webhookID, now, e, data))
	case event.WebhookReplayEnded:
		r.over = append(r.over, EndedReplay{webhookID, data.Generation, data.Error})
	}
}

// addEarlier adds what is to be known of a request of before deliveries began: a replay that was running then has ended.
func (r *requests) addEarlier(webhookID string, now endpoint, e projection.Event) {
	switch data := e.Data.(type) {
	case event.WebhookReplayed:
		p := newReplay(webhookID, now, e, data)
		p.reached, p.failure = &p.requested, "deliveries began after it was asked for"
		r.replays = append(r.replays, p)
	case event.WebhookReplayEnded:
		r.over = append(r.over, EndedReplay{webhookID, data.Generation, data.Error})
	}
}

func newReplay(webhookID string, now endpoint, e projection.Event, data event.WebhookReplayed) replay {
	p := replay{
		webhookID: webhookID, generation: data.Generation, requestID: e.ID, account: now.account, events: now.events,
		since: data.Since, requested: e.Position,
	}
	if data.Until.Before(e.At) {
		p.until = &data.Until
	}
	return p
}

// save carries out the requests, each once even if the log is read again. It must come after the rows of the batch are saved.
func (r *requests) save(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	for _, retry := range r.retries {
		retry.save(batch)
	}
	for _, p := range r.replays {
		batch.Queue(`
			INSERT INTO replay (webhook_id, generation, request_id, account, events, since, until, requested, reached, error)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, nullif($10, '')) ON CONFLICT DO NOTHING`,
			p.webhookID, p.generation, p.requestID.String(), p.account, p.events, p.since, p.until, int64(p.requested), p.reached, p.failure)
	}
	for _, e := range r.over {
		batch.Queue(`
			UPDATE replay SET finished_at = coalesce(finished_at, now()), error = nullif($3, '') WHERE webhook_id = $1 AND generation = $2`,
			e.WebhookID, e.Generation, e.Failure)
	}
	for _, e := range r.ended {
		batch.Queue(`UPDATE replay SET finished_at = now(), error = $2 WHERE webhook_id = $1 AND finished_at IS NULL AND requested < $3`,
			e.webhookID, e.why, int64(e.position))
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
