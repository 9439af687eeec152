package query

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Delivery is the delivery of one event to one endpoint.
type Delivery struct {
	DeliveryID    string    `json:"deliveryId"`
	WebhookID     string    `json:"webhookId"`
	EventID       string    `json:"eventId"`
	Type          string    `json:"type"`
	State         string    `json:"state"` // queued, delivered, failed or cancelled
	CreatedAt     Timestamp `json:"createdAt"`
	FinishedAt    Timestamp `json:"finishedAt"`
	NextAttemptAt Timestamp `json:"nextAttemptAt"` // null when there is none
	Attempts      []Attempt `json:"attempts"`      // oldest first
}

// Attempt is one request made to an endpoint.
type Attempt struct {
	At         Timestamp `json:"at"`
	Status     int       `json:"status"` // 0: there was no answer
	DurationMS int       `json:"durationMs"`
	Response   string    `json:"response"` // the first 1 KiB
	Error      string    `json:"error"`
}

const deliveryColumns = `
	SELECT d.delivery_id, d.webhook_id, d.event_id, d.type, d.state, d.created_at, d.finished_at, q.due_at
	  FROM delivery.delivery d LEFT JOIN delivery.queue q USING (delivery_id)`

// Deliveries lists what was queued for an endpoint, newest first. Responses of receivers, which may repeat a lead, are empty
// without readsLeads. The errors are ErrNotFound, when the account has no such endpoint or no longer has it, and ErrCursor.
func (r *Reader) Deliveries(ctx context.Context, account, webhookID string, readsLeads bool, p Page) (List[Delivery], error) {
	if _, err := r.Endpoint(ctx, account, webhookID); err != nil {
		return List[Delivery]{}, err
	}
	s := selection{from: deliveryColumns, order: `d.delivery_id DESC`}
	s.and(`d.webhook_id = ?`, webhookID)
	if p.Cursor != "" {
		last, err := decodeCursor(cursorOf(deliveryCursor, account), p.Cursor, 1)
		if err != nil {
			return List[Delivery]{}, err
		}
		s.and(`d.delivery_id < ?`, last[0])
	}
	after := func(d Delivery) string { return encodeCursor(cursorOf(deliveryCursor, account), d.DeliveryID) }
	list, err := page(ctx, r, s, p.Limit, scanDelivery, after)
	if err != nil {
		return list, err
	}
	with, err := r.addAttempts(ctx, readsLeads, list.Items)
	if with < len(list.Items) {
		list = List[Delivery]{Items: list.Items[:with], NextCursor: after(list.Items[with-1])}
	}
	return list, err
}

// Delivery returns one delivery of an endpoint, as Deliveries does. The error is ErrNotFound when there is no such delivery.
func (r *Reader) Delivery(ctx context.Context, account, webhookID, id string, readsLeads bool) (Delivery, error) {
	if !event.ValidID(id) {
		return Delivery{}, ErrNotFound
	}
	if _, err := r.Endpoint(ctx, account, webhookID); err != nil {
		return Delivery{}, err
	}
	found, err := one(ctx, r, scanDelivery, deliveryColumns+` WHERE d.delivery_id = $1 AND d.webhook_id = $2`, id, webhookID)
	if err != nil {
		return found, err
	}
	items := []Delivery{found}
	_, err = r.addAttempts(ctx, readsLeads, items)
	return items[0], err
}

func scanDelivery(row pgx.CollectableRow) (Delivery, error) {
	d := Delivery{Attempts: []Attempt{}}
	err := row.Scan(&d.DeliveryID, &d.WebhookID, &d.EventID, &d.Type, &d.State, &d.CreatedAt, &d.FinishedAt, &d.NextAttemptAt)
	return d, err
}

// addAttempts adds their attempts to the first deliveries, as many as fit into a part of a list. With is the number of these.
func (r *Reader) addAttempts(ctx context.Context, readsLeads bool, deliveries []Delivery) (with int, err error) {
	places := make(map[string]int, len(deliveries))
	ids := make([]string, len(deliveries))
	for i, d := range deliveries {
		places[d.DeliveryID], ids[i] = i, d.DeliveryID
	}
	rows, err := r.pool.Query(ctx, `
		SELECT delivery_id, at, status, duration_ms, CASE WHEN $2 THEN response ELSE '' END, error
		  FROM delivery.attempt WHERE delivery_id = ANY ($1) ORDER BY delivery_id DESC, at`, ids, readsLeads)
	if err != nil {
		return len(deliveries), schema.Unavailable(err)
	}
	var id string
	var a Attempt
	bytes := 0
	with = len(deliveries)
	_, err = pgx.ForEachRow(rows, []any{&id, &a.At, &a.Status, &a.DurationMS, &a.Response, &a.Error}, func() error {
		d := &deliveries[places[id]]
		if bytes >= mostBytes && len(d.Attempts) == 0 {
			with = min(with, places[id])
		}
		if places[id] < with {
			d.Attempts = append(d.Attempts, a)
			bytes += sizeOf(rows)
		}
		return nil
	})
	return with, schema.Unavailable(err)
}
