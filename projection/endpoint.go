package projection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// EndpointView keeps the webhook endpoints that are there.
type EndpointView struct{}

// Name implements Projector.
func (EndpointView) Name() string { return schema.Endpoint }

// Version implements Projector.
func (EndpointView) Version() int { return 1 }

// Tables implements Projector.
func (EndpointView) Tables() []string { return []string{"endpoint"} }

// Filter implements Projector.
func (EndpointView) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.WebhookPrefix}}
}

type endpointRow struct {
	event.WebhookRegistered
	account   string
	createdAt time.Time
}

// Apply implements Projector.
func (EndpointView) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	registered := map[string]endpointRow{}
	var gone []string
	for _, e := range batch {
		id := event.WebhookID(e.Stream)
		switch data := e.Data.(type) {
		case event.WebhookRegistered:
			registered[id] = endpointRow{data, e.Metadata.Account, e.At}
		case event.WebhookDeleted:
			delete(registered, id)
			gone = append(gone, id)
		}
	}
	if len(gone) > 0 {
		if _, err := tx.Exec(ctx, `DELETE FROM endpoint WHERE webhook_id = ANY ($1)`, gone); err != nil {
			return err
		}
	}
	if len(registered) == 0 {
		return nil
	}
	return saveEndpoints(ctx, tx, registered)
}

func saveEndpoints(ctx context.Context, tx pgx.Tx, registered map[string]endpointRow) error {
	var ids, accounts, urls, descriptions []string
	var events [][]byte
	var created []time.Time
	for _, id := range slices.Sorted(maps.Keys(registered)) {
		r := registered[id]
		types, err := json.Marshal(r.Events)
		if err != nil {
			return fmt.Errorf("events of endpoint %s: %w", id, err)
		}
		ids, accounts, urls = append(ids, id), append(accounts, r.account), append(urls, r.URL)
		events, descriptions, created = append(events, types), append(descriptions, r.Description), append(created, r.createdAt)
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO endpoint (webhook_id, account, url, events, description, created_at)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::text[], $6::timestamptz[])`,
		ids, accounts, urls, events, descriptions, created)
	return err
}
