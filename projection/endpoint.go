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

// endpointRow is a row of the table, its columns in their order.
type endpointRow struct {
	ID, Account, URL string
	Events           []byte // JSON
	Description      string
	CreatedAt        time.Time
	DisabledReason   *string
	DisabledAt       *time.Time
}

// evolve folds an event into the row, which is nil when there is no such endpoint, or not any more.
func (r *endpointRow) evolve(e Event) (_ *endpointRow, err error) {
	switch data := e.Data.(type) {
	case event.WebhookRegistered:
		r = &endpointRow{
			ID: event.WebhookID(e.Stream), Account: e.Metadata.Account, URL: data.URL, Description: data.Description, CreatedAt: e.At,
		}
		r.Events, err = json.Marshal(data.Events)
		return r, err
	case event.WebhookDeleted, event.WebhookAbandoned:
		return nil, nil
	}
	if r == nil {
		return nil, fmt.Errorf("%s at revision %d: %w", e.Stream, e.Revision, errGap)
	}
	switch data := e.Data.(type) {
	case event.WebhookUpdated:
		r.URL, r.Description = data.URL, data.Description
		r.Events, err = json.Marshal(data.Events)
	case event.WebhookDisabled:
		r.DisabledReason, r.DisabledAt = &data.Reason, &e.At
	case event.WebhookEnabled:
		r.DisabledReason, r.DisabledAt = nil, nil
	}
	return r, err
}

// Apply implements Projector.
func (EndpointView) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	ids := map[string]struct{}{}
	for _, e := range batch {
		ids[event.WebhookID(e.Stream)] = struct{}{}
	}
	endpoints, err := findEndpoints(ctx, tx, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return err
	}
	for _, e := range batch {
		id := event.WebhookID(e.Stream)
		if endpoints[id], err = endpoints[id].evolve(e); err != nil {
			return err
		}
	}
	return saveEndpoints(ctx, tx, endpoints)
}

func findEndpoints(ctx context.Context, tx pgx.Tx, ids []string) (map[string]*endpointRow, error) {
	rows, err := tx.Query(ctx, `
		SELECT webhook_id, account, url, events, description, created_at, disabled_reason, disabled_at
		  FROM endpoint WHERE webhook_id = ANY ($1)`, ids)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[endpointRow])
	if err != nil {
		return nil, err
	}
	endpoints := make(map[string]*endpointRow, len(ids))
	for _, r := range found {
		endpoints[r.ID] = r
	}
	return endpoints, nil
}

// saveEndpoints writes the rows and removes those of endpoints that are gone.
func saveEndpoints(ctx context.Context, tx pgx.Tx, endpoints map[string]*endpointRow) error {
	var gone, ids, accounts, urls, descriptions []string
	var events [][]byte
	var created []time.Time
	var reasons []*string
	var disabled []*time.Time
	for _, id := range slices.Sorted(maps.Keys(endpoints)) {
		r := endpoints[id]
		if r == nil {
			gone = append(gone, id)
			continue
		}
		ids, accounts, urls = append(ids, id), append(accounts, r.Account), append(urls, r.URL)
		events, descriptions, created = append(events, r.Events), append(descriptions, r.Description), append(created, r.CreatedAt)
		reasons, disabled = append(reasons, r.DisabledReason), append(disabled, r.DisabledAt)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM endpoint WHERE webhook_id = ANY ($1)`, gone); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO endpoint (webhook_id, account, url, events, description, created_at, disabled_reason, disabled_at)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::jsonb[], $5::text[], $6::timestamptz[], $7::text[], $8::timestamptz[])
		    ON CONFLICT (webhook_id) DO UPDATE
		   SET url = excluded.url, events = excluded.events, description = excluded.description,
		       disabled_reason = excluded.disabled_reason, disabled_at = excluded.disabled_at`,
		ids, accounts, urls, events, descriptions, created, reasons, disabled)
	return err
}
