package projection

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// VisitorActivity keeps what visitors did, a row each. Which lead a visitor is, it does not say: leads know their
// visitors, and readers join the two. So it does not matter whether the activity or the lead came first.
type VisitorActivity struct{}

// Name implements Projector.
func (VisitorActivity) Name() string { return schema.VisitorActivity }

// Version implements Projector.
func (VisitorActivity) Version() int { return 1 }

// Tables implements Projector.
func (VisitorActivity) Tables() []string { return []string{"visitor_activity"} }

// Filter implements Projector.
func (VisitorActivity) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.VisitorPrefix}}
}

// Apply implements Projector.
func (VisitorActivity) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	var recorded rows
	for _, e := range batch {
		acted, ok := e.Data.(event.VisitorActed)
		if !ok {
			continue
		}
		properties, err := json.Marshal(acted.Properties, json.Deterministic(true), jsontext.PreserveRawStrings(true))
		if err != nil {
			return fmt.Errorf("properties of the event at position %d: %w", e.Position, err)
		}
		recorded.row(11)
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
	}
	return recorded.insert(ctx, tx, "visitor_activity", "position", "activity_id", "account", "visitor_id", "type", "at",
		"recorded_at", "url", "title", "referrer", "properties")
}
