package view

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// Reveal has a row for each time that personal data was revealed.
type Reveal struct{}

func (Reveal) Name() string     { return schema.Reveal }
func (Reveal) Version() int     { return 1 }
func (Reveal) Tables() []string { return []string{"reveal"} }
func (Reveal) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.RevealPrefix}}
}

func (Reveal) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	var reveals rows
	for _, e := range batch {
		revealed, ok := e.Data.(event.LeadRevealed)
		if !ok {
			continue
		}
		reveals.row(10)
		reveals.bigint(int64(e.Position))
		reveals.text(e.Metadata.Account)
		reveals.timestamp(e.At)
		reveals.text(e.Metadata.Actor)
		reveals.text(revealed.What)
		reveals.text(revealed.LeadID)
		reveals.text(revealed.ArrivalID)
		reveals.text(e.Metadata.IP)
		reveals.text(e.Metadata.UserAgent)
		reveals.text(e.Metadata.RequestID)
	}
	return reveals.insert(ctx, tx, "reveal", "position", "account", "at", "actor", "what", "lead_id", "arrival_id", "ip", "user_agent", "request_id")
}
