package query

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
)

const endpointColumns = `
	SELECT webhook_id, url, events, description, created_at, last_success_at, last_failure_at
	  FROM views.endpoint LEFT JOIN delivery.health USING (webhook_id)`

// Endpoints lists an account's webhook endpoints, newest first. The error is ErrCursor for a cursor of another list.
func (r *Reader) Endpoints(ctx context.Context, account string, p Page) (List[Endpoint], error) {
	s := selection{from: endpointColumns, order: `created_at DESC, webhook_id DESC`}
	s.and(`account = ?`, account)
	if err := s.olderThan(`webhook_id`, endpointCursor, p.Cursor); err != nil {
		return List[Endpoint]{}, err
	}
	return page(ctx, r, s, p.Limit, scanEndpoint, func(e Endpoint) string {
		return newestCursor{time.Time(e.CreatedAt), e.WebhookID}.encode(endpointCursor)
	})
}

// Endpoint returns one endpoint's record. The error is ErrNotFound when the account has none such, or not any more.
func (r *Reader) Endpoint(ctx context.Context, account, id string) (Endpoint, error) {
	if !validID(id) {
		return Endpoint{}, ErrNotFound
	}
	return one(ctx, r, scanEndpoint, endpointColumns+` WHERE webhook_id = $1 AND account = $2`, id, account)
}

func scanEndpoint(row pgx.CollectableRow) (Endpoint, error) {
	e := Endpoint{State: "enabled"}
	var events []byte
	var success, failure *time.Time
	if err := row.Scan(&e.WebhookID, &e.URL, &events, &e.Description, stamp(&e.CreatedAt), &success, &failure); err != nil {
		return e, err
	}
	e.LastSuccessAt, e.LastFailureAt = orNone(success), orNone(failure)
	if err := json.Unmarshal(events, &e.Events); err != nil {
		return e, fmt.Errorf("events of an endpoint: %w", err)
	}
	return e, nil
}
