package query

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
)

// mostQueued bounds the cost of counting what is queued for an endpoint.
const mostQueued = 10_000

var endpointColumns = `
	SELECT e.webhook_id, url, events, description, created_at, disabled_reason, disabled_at, last_success_at, last_failure_at, failing_since,
	       (SELECT count(*) FROM (SELECT FROM delivery.queue q WHERE q.webhook_id = e.webhook_id LIMIT ` + strconv.Itoa(mostQueued) + `) AS counted),
	       p.generation, p.since, p.until, p.queued, p.finished_at, p.error
	  FROM views.endpoint e
	  LEFT JOIN delivery.health h ON h.webhook_id = e.webhook_id
	  LEFT JOIN LATERAL (SELECT generation, since, until, queued, finished_at, error FROM delivery.replay r WHERE r.webhook_id = e.webhook_id ORDER BY generation DESC LIMIT 1) p ON true`

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

// Endpoint returns one endpoint's record. The error is ErrNotFound when the account has no such endpoint or no longer has it.
func (r *Reader) Endpoint(ctx context.Context, account, id string) (Endpoint, error) {
	if !event.ValidID(id) {
		return Endpoint{}, ErrNotFound
	}
	return one(ctx, r, scanEndpoint, endpointColumns+` WHERE e.webhook_id = $1 AND account = $2`, id, account)
}

// EndpointAfter returns the record of an endpoint that a command has just changed, which the view may not show yet, with its known
// health.
func (r *Reader) EndpointAfter(ctx context.Context, id string, s webhook.State) (Endpoint, error) {
	known, err := r.Endpoint(ctx, s.Account, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Endpoint{}, err
	}
	e := NewEndpoint(id, s)
	e.LastSuccessAt, e.LastFailureAt, e.Queued = known.LastSuccessAt, known.LastFailureAt, known.Queued
	e.Replay = known.Replay
	if time.Time(known.FailingSince).After(s.Since) {
		e.FailingSince = known.FailingSince
	}
	return e, nil
}

// NewEndpoint returns the record of an endpoint to which nothing was sent yet.
func NewEndpoint(id string, s webhook.State) Endpoint {
	e := Endpoint{
		WebhookID: id, URL: s.URL, Events: s.Events, Description: s.Description, CreatedAt: Timestamp(s.CreatedAt),
		DisabledAt: Timestamp(s.DisabledAt),
	}
	if s.DisabledReason != "" {
		e.DisabledReason = &s.DisabledReason
	}
	e.setState()
	return e
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
	err = row.Scan(&e.WebhookID, &e.URL, jsonOf{&e.Events}, &e.Description, &e.CreatedAt, &e.DisabledReason, &e.DisabledAt,
		&e.LastSuccessAt, &e.LastFailureAt, &e.FailingSince, &e.Queued,
		&generation, &replay.Since, &replay.Until, (*zeronull.Int8)(&replay.Queued), &replay.FinishedAt, &replay.Error)
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
