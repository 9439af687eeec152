package view

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Endpoint is the view of the webhook endpoints that are not deleted.
type Endpoint struct{}

func (Endpoint) Name() string     { return schema.Endpoint }
func (Endpoint) Version() int     { return 1 }
func (Endpoint) Tables() []string { return []string{"endpoint"} }
func (Endpoint) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.WebhookPrefix}}
}

// Apply sends a statement for each event, all in one round trip: endpoints rarely change.
func (Endpoint) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	var statements pgx.Batch
	for _, e := range batch {
		if err := queueEndpoint(&statements, event.WebhookID(e.Stream), e); err != nil {
			return fmt.Errorf("events of endpoint %s: %w", event.WebhookID(e.Stream), err)
		}
	}
	return tx.SendBatch(ctx, &statements).Close()
}

func queueEndpoint(to *pgx.Batch, id string, e projection.Event) error {
	var change *pgx.QueuedQuery // of an endpoint that must exist
	switch data := e.Data.(type) {
	case event.WebhookRegistered:
		events, err := json.Marshal(data.Events)
		if err != nil {
			return err
		}
		to.Queue(`
			INSERT INTO endpoint (webhook_id, url, events, description, filter, ordering, rate_limit, header_names,
			  account, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			id, data.URL, events, data.Description, data.Filter, data.Ordering, data.RateLimit,
			append([]string{}, data.HeaderNames...), e.Metadata.Account, e.At)
		return nil
	case event.WebhookDeleted:
		to.Queue(`DELETE FROM endpoint WHERE webhook_id = $1`, id)
		return nil
	case event.WebhookUpdated:
		events, err := json.Marshal(data.Events)
		if err != nil {
			return err
		}
		change = to.Queue(`
			UPDATE endpoint SET url = $2, events = $3, description = $4, filter = $5, ordering = $6, rate_limit = $7,
			  header_names = $8
			 WHERE webhook_id = $1`,
			id, data.URL, events, data.Description, data.Filter, data.Ordering, data.RateLimit,
			append([]string{}, data.HeaderNames...))
	case event.WebhookDisabled:
		change = to.Queue(`UPDATE endpoint SET disabled_reason = $2, disabled_at = $3 WHERE webhook_id = $1`,
			id, data.Reason, e.At)
	case event.WebhookEnabled:
		change = to.Queue(`UPDATE endpoint SET disabled_reason = NULL, disabled_at = NULL WHERE webhook_id = $1`, id)
	default:
		change = to.Queue(`SELECT FROM endpoint WHERE webhook_id = $1`, id)
	}
	change.Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%s at revision %d: %w", e.Stream, e.Revision, errGap)
		}
		return nil
	})
	return nil
}
