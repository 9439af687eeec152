package view

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// VisitorActivity has a row for each activity of a visitor. It does not store the visitor's lead: leads have the ids of
// their visitors, and readers join the two. So the activity and the lead may be recorded in any order.
type VisitorActivity struct{}

func (VisitorActivity) Name() string     { return schema.VisitorActivity }
func (VisitorActivity) Version() int     { return 2 }
func (VisitorActivity) Tables() []string { return []string{"visitor_activity"} }
func (VisitorActivity) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.VisitorPrefix}}
}

func (VisitorActivity) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	var recorded activities
	for _, e := range batch {
		if d, forgotten := e.Data.(event.VisitorForgotten); forgotten {
			if err := recorded.forget(ctx, tx, e.Stream, d); err != nil {
				return err
			}
			continue
		}
		acted, ok := e.Data.(event.VisitorActed)
		if !ok || e.Erased {
			continue
		}
		properties, err := json.Marshal(acted.Properties, json.Deterministic(true), jsontext.PreserveRawStrings(true))
		if err != nil {
			return fmt.Errorf("properties of the event at position %d: %w", e.Position, err)
		}
		recorded.row(13)
		recorded.bigint(int64(e.Position))
		recorded.text(e.ID.String())
		recorded.text(e.Metadata.Account)
		recorded.text(acted.VisitorID)
		recorded.text(acted.Kind)
		recorded.timestamp(acted.At)
		recorded.timestamp(e.At)
		recorded.text(acted.URL)
		recorded.text(acted.Title)
		recorded.text(acted.Referrer)
		recorded.json(properties)
		recorded.text(e.Stream)
		recorded.bigint(e.KeyID)
	}
	return recorded.save(ctx, tx)
}

// activities are rows of a batch that are not inserted yet.
type activities struct{ rows }

func (a *activities) save(ctx context.Context, tx pgx.Tx) error {
	return a.insert(ctx, tx, "visitor_activity", "position", "activity_id", "account", "visitor_id", "type", "at",
		"recorded_at", "url", "title", "referrer", "properties", "stream", "key_id")
}

// forget deletes the earlier activities of a visitor that a fact covers, including those in the batch.
func (a *activities) forget(ctx context.Context, tx pgx.Tx, stream string, fact event.VisitorForgotten) error {
	if err := a.save(ctx, tx); err != nil {
		return err
	}
	a.rows = rows{}
	_, err := tx.Exec(ctx, `DELETE FROM visitor_activity WHERE stream = $1`+sealedBy, stream,
		len(fact.Keys) == 0, fact.KeyIDs())
	return err
}
