package projection

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// RefusedArrivals has a row for each arrival that was answered with a conflict.
type RefusedArrivals struct{}

func (RefusedArrivals) Name() string     { return schema.Refused }
func (RefusedArrivals) Version() int     { return 1 }
func (RefusedArrivals) Tables() []string { return []string{"refused"} }
func (RefusedArrivals) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.RefusedPrefix}}
}

func (RefusedArrivals) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	var arrivals rows
	for _, e := range batch {
		refused, ok := e.Data.(event.LeadRefused)
		if !ok {
			continue
		}
		arrivals.row(9)
		arrivals.bigint(int64(e.Position))
		arrivals.text(e.Metadata.Account)
		arrivals.timestamp(e.At)
		arrivals.text(refused.Source)
		arrivals.text(refused.Code)
		arrivals.text(refused.LeadID)
		arrivals.text(refused.Other)
		arrivals.text(e.Metadata.Credential)
		arrivals.text(e.Metadata.RequestID)
	}
	return arrivals.insert(ctx, tx, "refused", "position", "account", "at", "source", "code", "lead_id", "other_lead_id",
		"credential", "request_id")
}
