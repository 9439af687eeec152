package view

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Refused has a row for each arrival that was refused with a conflict.
type Refused struct{}

func (Refused) Name() string     { return schema.Refused }
func (Refused) Version() int     { return 1 }
func (Refused) Tables() []string { return []string{"refused"} }
func (Refused) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.RefusedPrefix}}
}

func (Refused) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
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
	return arrivals.insert(ctx, tx, "refused", "position", "account", "at", "source", "code", "lead_id",
		"other_lead_id",
		"credential", "request_id")
}
