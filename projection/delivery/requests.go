package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

// testType is the type of a test delivery. It is sent only to the tested endpoint, whatever its types are.
const testType = "webhook.test"

// requests holds the tests, retries and replays of a batch, requested by owners of endpoints.
type requests struct {
	retries []retry
	replays []replay
	healthy []string      // endpoints whose earlier failures no longer count
	endings []ending      // all replays of an endpoint end
	ended   []EndedReplay // according to their events on the log
}

type retry struct {
	webhookID   string
	deliveryIDs []string
	position    eventstore.Position
}

// ending is the end of an endpoint's replays, because it was disabled or deleted.
type ending struct {
	webhookID, reason string
	position          eventstore.Position
}

// replay is a request to send the events of a time range again.
type replay struct {
	webhookID  string
	generation int
	requestID  ulid.ULID
	account    string
	events     []string // types that the endpoint was subscribed to at the request
	filter     string   // of the endpoint at the request
	since      time.Time
	until      *time.Time // nil: up to the request
	requested  eventstore.Position
	reached    *eventstore.Position // nil: not started
	disabled   bool                 // the endpoint was disabled at reached, since a time in the range
	failure    string               // why it fails; empty: it does not
}

// add adds the request in an event of an endpoint's stream. A test adds a row to the queue.
func (r *requests) add(webhookID string, now endpoint, e projection.Event, rows *queue) {
	switch data := e.Data.(type) {
	case event.WebhookEnabled:
		r.healthy = append(r.healthy, webhookID)
	case event.WebhookUpdated:
		if slices.Contains(data.Changed, "url") {
			r.healthy = append(r.healthy, webhookID)
		}
	case event.WebhookDisabled:
		r.endings = append(r.endings, ending{webhookID, "the endpoint was disabled", e.Position})
	case event.WebhookDeleted:
		r.endings = append(r.endings, ending{webhookID, "the endpoint was deleted", e.Position})
	case event.WebhookTested:
		rows.add(e.ID, webhookID, webhook.Message{Type: testType}, 0, e)
	case event.WebhookRetried:
		ids := data.DeliveryIDs
		if data.DeliveryID != "" {
			ids = []string{data.DeliveryID}
		}
		r.retries = append(r.retries, retry{webhookID, ids, e.Position})
	case event.WebhookReplayed:
		r.replays = append(r.replays, newReplay(webhookID, now, e, data))
	case event.WebhookReplayEnded:
		r.ended = append(r.ended, EndedReplay{webhookID, data.Generation, data.Error})
	}
}

// addEarlier adds a request from before deliveries began. A replay that was running then has ended.
func (r *requests) addEarlier(webhookID string, now endpoint, e projection.Event) {
	switch data := e.Data.(type) {
	case event.WebhookReplayed:
		p := newReplay(webhookID, now, e, data)
		p.reached, p.failure = &p.requested, "deliveries began after it was asked for"
		r.replays = append(r.replays, p)
	case event.WebhookReplayEnded:
		r.ended = append(r.ended, EndedReplay{webhookID, data.Generation, data.Error})
	}
}

func newReplay(webhookID string, now endpoint, e projection.Event, data event.WebhookReplayed) replay {
	p := replay{
		webhookID: webhookID, generation: data.Generation, requestID: e.ID, account: now.account, events: now.Events,
		filter: now.Filter, since: data.Since, requested: e.Position,
	}
	if data.Until.Before(e.At) {
		p.until = &data.Until
	}
	return p
}

// save executes the requests, each once even if the log is read again. The rows of the batch must be saved first.
func (r *requests) save(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	for _, retry := range r.retries {
		retry.save(batch)
	}
	for _, p := range r.replays {
		batch.Queue(`
			INSERT INTO replay (webhook_id, generation, request_id, account, events, filter, since, until, requested,
			  reached, error)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, nullif($11, '')) ON CONFLICT DO NOTHING`,
			p.webhookID, p.generation, p.requestID.String(), p.account, p.events, p.filter, p.since, p.until,
			int64(p.requested), p.reached, p.failure)
	}
	for _, e := range r.ended {
		batch.Queue(`
			UPDATE replay SET finished_at = coalesce(finished_at, now()), error = nullif($3, '') WHERE webhook_id = $1
			AND generation = $2`,
			e.WebhookID, e.Generation, e.Failure)
	}
	for _, e := range r.endings {
		batch.Queue(`UPDATE replay SET finished_at = now(), error = $2 WHERE webhook_id = $1 AND finished_at IS NULL
			AND requested < $3`,
			e.webhookID, e.reason, int64(e.position))
	}
	if len(r.healthy) > 0 {
		batch.Queue(`UPDATE health SET failing_since = NULL WHERE webhook_id = ANY ($1)`, r.healthy)
	}
	if batch.Len() == 0 {
		return nil
	}
	batch.Queue(awaitDisk)
	batch.Queue(notifyCouriers)
	return tx.SendBatch(ctx, batch).Close()
}

// save queues finished deliveries again, at the start of the schedule and outside of their lane, and makes waiting ones
// due. A delivery in flight becomes due when its attempt fails. A delivery behind others in its lane is not changed.
func (r retry) save(batch *pgx.Batch) {
	// Locks are taken in the same order as when a delivery is finished.
	batch.Queue(`SELECT FROM queue WHERE delivery_id = ANY ($1) ORDER BY delivery_id FOR UPDATE`, r.deliveryIDs)
	batch.Queue(`
		WITH again AS (
		    UPDATE delivery SET state = 'queued', finished_at = NULL, retried = $3
		     WHERE delivery_id = ANY ($1) AND webhook_id = $2 AND retried < $3
		    RETURNING delivery_id, webhook_id, event_id, type, stream, revision, position, part, renderer, retried
		)
		INSERT INTO queue AS q (delivery_id, webhook_id, event_id, type, stream, revision, position, part, renderer,
		  retried)
		SELECT * FROM again
		    ON CONFLICT (delivery_id) DO UPDATE
		   SET retried = excluded.retried, due_at = CASE WHEN q.lease IS NULL AND q.due_at < 'infinity' THEN now()
		   ELSE q.due_at END`,
		r.deliveryIDs, r.webhookID, int64(r.position))
}
