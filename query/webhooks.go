package query

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Endpoint is a webhook endpoint's record, without its secret.
type Endpoint struct {
	WebhookID      string     `json:"webhookId"`
	URL            string     `json:"url"`
	Events         []string   `json:"events"`
	Description    string     `json:"description"`
	Filter         string     `json:"filter"`    // empty: everything is sent
	Ordering       string     `json:"ordering"`  // none, lead or endpoint
	RateLimit      float64    `json:"rateLimit"` // attempts a second; 0: no limit
	Headers        OwnHeaders `json:"headers"`
	State          string     `json:"state"`          // enabled or disabled
	DisabledReason *string    `json:"disabledReason"` // owner, gone or failing
	DisabledAt     Timestamp  `json:"disabledAt"`
	CreatedAt      Timestamp  `json:"createdAt"`
	LastSuccessAt  Timestamp  `json:"lastSuccessAt"`
	LastFailureAt  Timestamp  `json:"lastFailureAt"`
	FailingSince   Timestamp  `json:"failingSince"` // the first failure after the last success
	// deliveries that were not made since the filter was set, as it did not match
	Filtered     int64 `json:"filtered"`
	FilterFailed int64 `json:"filterFailed"` // nor those, as it could not be computed
	// deliveries still to be made; more than 10,000 are not counted
	Queued int             `json:"queued"`
	Replay *EndpointReplay `json:"replay"` // the latest; null: there was none
}

// EndpointReplay is a request to send the events of a span of time to an endpoint again.
type EndpointReplay struct {
	Generation int       `json:"generation"` // the endpoint's first is 1
	State      string    `json:"state"`      // running, finished or failed
	Since      Timestamp `json:"since"`
	Until      Timestamp `json:"until"`      // null: up to the request
	Queued     int64     `json:"queued"`     // deliveries that it made
	FinishedAt Timestamp `json:"finishedAt"` // null: it is running
	Error      *string   `json:"error"`      // why it failed
}

// maxQueued bounds the cost of counting an endpoint's queued deliveries.
const maxQueued = 10_000

var endpointColumns = `
	SELECT e.webhook_id, url, events, description, filter, ordering, rate_limit, header_names, created_at,
	  disabled_reason, disabled_at, last_success_at, last_failure_at, failing_since,
	       coalesce(f.filtered, 0), coalesce(f.failed, 0),
	       (SELECT count(*) FROM (SELECT FROM delivery.queue q WHERE q.webhook_id = e.webhook_id
	         LIMIT ` + strconv.Itoa(maxQueued) + `) AS counted),
	       p.generation, p.since, p.until, p.queued, p.finished_at, p.error
	  FROM views.endpoint e
	  LEFT JOIN delivery.health h ON h.webhook_id = e.webhook_id
	  LEFT JOIN delivery.filter_count f ON f.webhook_id = e.webhook_id
	  LEFT JOIN LATERAL (SELECT generation, since, until, queued, finished_at, error FROM delivery.replay r
	    WHERE r.webhook_id = e.webhook_id ORDER BY generation DESC LIMIT 1) p ON true`

// Endpoints lists an account's webhook endpoints, newest first. The error is ErrCursor for a cursor of another list.
func (r *Reader) Endpoints(ctx context.Context, account string, p Page) (List[Endpoint], error) {
	s := selection{from: endpointColumns, order: `created_at DESC, e.webhook_id DESC`}
	s.and(`account = ?`, account)
	if _, err := s.olderThan(`e.webhook_id`, cursorOf(endpointCursor, account), p.Cursor); err != nil {
		return List[Endpoint]{}, err
	}
	return page(ctx, r, s, p.Limit, scanEndpoint, func(e Endpoint) string {
		return newestCursor{time.Time(e.CreatedAt), e.WebhookID}.encode(cursorOf(endpointCursor, account))
	})
}

// Endpoint returns one endpoint's record. The error is ErrNotFound when the account has no such endpoint or no longer
// has it.
func (r *Reader) Endpoint(ctx context.Context, account, id string) (Endpoint, error) {
	if !event.ValidID(id) {
		return Endpoint{}, ErrNotFound
	}
	return one(ctx, r, scanEndpoint, endpointColumns+` WHERE e.webhook_id = $1 AND account = $2`, id, account)
}

// EndpointAfter returns the record of an endpoint that a command has just changed, which the view may not show yet,
// with its known health.
func (r *Reader) EndpointAfter(ctx context.Context, id string, s webhook.State) (Endpoint, error) {
	known, err := r.Endpoint(ctx, s.Account, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Endpoint{}, err
	}
	e := NewEndpoint(id, s)
	e.LastSuccessAt, e.LastFailureAt, e.Queued = known.LastSuccessAt, known.LastFailureAt, known.Queued
	e.Replay = known.Replay
	if known.Filter == e.Filter {
		e.Filtered, e.FilterFailed = known.Filtered, known.FilterFailed
	}
	if time.Time(known.FailingSince).After(s.Since) {
		e.FailingSince = known.FailingSince
	}
	return e, nil
}

// NewEndpoint returns the record of an endpoint to which nothing was sent yet.
func NewEndpoint(id string, s webhook.State) Endpoint {
	e := Endpoint{
		WebhookID: id, URL: s.URL, Events: s.Events, Description: s.Description, Filter: s.Filter,
		Ordering: cmp.Or(s.Ordering, webhook.Unordered), RateLimit: s.RateLimit, Headers: hiddenHeaders(s.HeaderNames),
		CreatedAt: Timestamp(s.CreatedAt), DisabledAt: Timestamp(s.DisabledAt),
	}
	if s.DisabledReason != "" {
		e.DisabledReason = &s.DisabledReason
	}
	e.setState()
	return e
}

// OwnHeaders are an endpoint's own headers. The values are hidden.
type OwnHeaders map[string]string

func hiddenHeaders(names []string) OwnHeaders {
	headers := make(OwnHeaders, len(names))
	for _, name := range names {
		headers[name] = webhook.HiddenValue
	}
	return headers
}

func (e *Endpoint) setState() {
	e.State = "enabled"
	if e.DisabledReason != nil {
		e.State = "disabled"
	}
}

func scanEndpoint(row pgx.CollectableRow) (e Endpoint, err error) {
	var generation *int
	var replay EndpointReplay
	var names []string
	err = row.Scan(&e.WebhookID, &e.URL, jsonOf{&e.Events}, &e.Description, &e.Filter, &e.Ordering, &e.RateLimit,
		&names, &e.CreatedAt, &e.DisabledReason, &e.DisabledAt,
		&e.LastSuccessAt, &e.LastFailureAt, &e.FailingSince, &e.Filtered, &e.FilterFailed, &e.Queued,
		&generation, &replay.Since, &replay.Until, (*zeronull.Int8)(&replay.Queued), &replay.FinishedAt, &replay.Error)
	e.Headers, e.Ordering = hiddenHeaders(names), cmp.Or(e.Ordering, webhook.Unordered)
	e.setState()
	if generation != nil {
		replay.Generation = *generation
		switch {
		case replay.Error != nil:
			replay.State = "failed"
		case time.Time(replay.FinishedAt).IsZero():
			replay.State = "running"
		default:
			replay.State = "finished"
		}
		e.Replay = &replay
	}
	return e, err
}

// Delivery is the delivery of one event to one endpoint.
type Delivery struct {
	DeliveryID    string    `json:"deliveryId"`
	WebhookID     string    `json:"webhookId"`
	EventID       string    `json:"eventId"`
	Type          string    `json:"type"`
	State         string    `json:"state"` // queued, delivered, failed or cancelled
	CreatedAt     Timestamp `json:"createdAt"`
	FinishedAt    Timestamp `json:"finishedAt"`
	NextAttemptAt Timestamp `json:"nextAttemptAt"` // null when there is none, or when another delivery comes first
	GaveWay       bool      `json:"gaveWay"`       // it failed, and later ones of its order were sent
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
	SELECT d.delivery_id, d.webhook_id, d.event_id, d.type, d.state, d.created_at, d.finished_at,
	  nullif(q.due_at, 'infinity'), d.gave_way
	  FROM delivery.delivery d LEFT JOIN delivery.queue q USING (delivery_id)`

// DeliveryFilter selects deliveries. Empty fields select all.
type DeliveryFilter struct{ State, Type string }

// DeliveryStates are the states of deliveries.
func DeliveryStates() []string { return []string{"queued", "delivered", "failed", "cancelled"} }

// DeliveryTypes are the types of events that deliveries can be of.
func DeliveryTypes() []string { return append(webhook.EventTypes(), "webhook.test") }

// Deliveries lists what was queued for an endpoint, newest first. With a filter, a page may have fewer items than its
// limit, or none, and be followed by others. Responses of receivers, which may repeat a lead, are empty
// without readsLeads. The errors are ErrNotFound, when the account has no such endpoint or no longer has it, and
// ErrCursor.
func (r *Reader) Deliveries(
	ctx context.Context, account, webhookID string, readsLeads bool, filter DeliveryFilter, p Page,
) (List[Delivery], error) {
	if _, err := r.Endpoint(ctx, account, webhookID); err != nil {
		return List[Delivery]{}, err
	}
	s := selection{from: deliveryColumns, order: `d.delivery_id DESC`, table: `delivery.delivery d`}
	s.and(`d.webhook_id = ?`, webhookID)
	if filter != (DeliveryFilter{}) {
		s.narrow = func(s *selection) {
			s.equal(`d.state`, filter.State)
			s.equal(`d.type`, filter.Type)
		}
	}
	if p.Cursor != "" {
		last, err := decodeCursor(cursorOf(deliveryCursor, account), p.Cursor, 1)
		if err != nil {
			return List[Delivery]{}, err
		}
		s.and(`d.delivery_id < ?`, last[0])
	}
	after := func(d Delivery) string { return encodeCursor(cursorOf(deliveryCursor, account), d.DeliveryID) }
	end, err := s.scan(ctx, r, `d.delivery_id`)
	if err != nil {
		return List[Delivery]{}, err
	}
	list, err := page(ctx, r, s, p.Limit, scanDelivery, after)
	if err != nil {
		return list, err
	}
	if end != nil && list.NextCursor == "" {
		list.NextCursor = after(Delivery{DeliveryID: end[0].(string)})
	}
	with, err := r.addAttempts(ctx, readsLeads, list.Items)
	if with < len(list.Items) {
		list = List[Delivery]{Items: list.Items[:with], NextCursor: after(list.Items[with-1])}
	}
	return list, err
}

// Delivery returns one delivery of an endpoint, as Deliveries does. The error is ErrNotFound when there is no such
// delivery.
func (r *Reader) Delivery(ctx context.Context, account, webhookID, id string, readsLeads bool) (Delivery, error) {
	if !event.ValidID(id) {
		return Delivery{}, ErrNotFound
	}
	if _, err := r.Endpoint(ctx, account, webhookID); err != nil {
		return Delivery{}, err
	}
	found, err := one(ctx, r, scanDelivery, deliveryColumns+` WHERE d.delivery_id = $1 AND d.webhook_id = $2`,
		id, webhookID)
	if err != nil {
		return found, err
	}
	items := []Delivery{found}
	_, err = r.addAttempts(ctx, readsLeads, items)
	return items[0], err
}

// MaxRetried is how many deliveries one request retries at most.
const MaxRetried = 1000

// FailedDeliveries returns the ids of an endpoint's deliveries that have failed since a time, the first that were
// queued, at most MaxRetried. More reports whether there are others. The error is ErrNotFound when the account has no
// such endpoint or no longer has it.
func (r *Reader) FailedDeliveries(
	ctx context.Context, account, webhookID string, since time.Time,
) (ids []string, more bool, err error) {
	if _, err := r.Endpoint(ctx, account, webhookID); err != nil {
		return nil, false, err
	}
	rows, err := r.pool.Query(ctx, `
		SELECT delivery_id FROM delivery.delivery
		 WHERE webhook_id = $1 AND state = 'failed' AND finished_at >= $2 ORDER BY delivery_id
		 LIMIT $3`, webhookID, since, MaxRetried+1)
	if err != nil {
		return nil, false, schema.Unavailable(err)
	}
	ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if more = len(ids) > MaxRetried; more {
		ids = ids[:MaxRetried]
	}
	return ids, more, schema.Unavailable(err)
}

func scanDelivery(row pgx.CollectableRow) (Delivery, error) {
	d := Delivery{Attempts: []Attempt{}}
	err := row.Scan(&d.DeliveryID, &d.WebhookID, &d.EventID, &d.Type, &d.State, &d.CreatedAt, &d.FinishedAt,
		&d.NextAttemptAt, &d.GaveWay)
	return d, err
}

// addAttempts adds their attempts to the first deliveries, as many as fit into a page. With is their number.
func (r *Reader) addAttempts(ctx context.Context, readsLeads bool, deliveries []Delivery) (with int, err error) {
	indexes := make(map[string]int, len(deliveries))
	ids := make([]string, len(deliveries))
	for i, d := range deliveries {
		indexes[d.DeliveryID], ids[i] = i, d.DeliveryID
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
		d := &deliveries[indexes[id]]
		if bytes >= maxPageBytes && len(d.Attempts) == 0 {
			with = min(with, indexes[id])
		}
		if indexes[id] < with {
			d.Attempts = append(d.Attempts, a)
			bytes += sizeOf(rows)
		}
		return nil
	})
	return with, schema.Unavailable(err)
}
