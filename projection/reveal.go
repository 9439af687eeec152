package projection

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// Reveals has a row for each time that somebody asked to see personal data.
type Reveals struct{}

func (Reveals) Name() string     { return schema.Reveal }
func (Reveals) Version() int     { return 1 }
func (Reveals) Tables() []string { return []string{"reveal"} }
func (Reveals) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.RevealPrefix}}
}

func (Reveals) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	var reveals rows
	for _, e := range batch {
		revealed, ok := e.Data.(event.LeadRevealed)
		if !ok {
			continue
		}
		reveals.row(9)
		reveals.bigint(int64(e.Position))
		reveals.text(e.Metadata.Account)
		reveals.timestamp(e.At)
		reveals.text(e.Metadata.Actor)
		reveals.text(revealed.What)
		reveals.text(revealed.LeadID)
		reveals.text(e.Metadata.IP)
		reveals.text(e.Metadata.UserAgent)
		reveals.text(e.Metadata.RequestID)
	}
	return reveals.insert(ctx, tx, "reveal", "position", "account", "at", "actor", "what", "lead_id", "ip", "user_agent", "request_id")
}
