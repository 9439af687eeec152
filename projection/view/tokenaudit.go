package view

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// TokenAudit is the view of what happened to API tokens, who did it, from where and by which request; and of the Merkle trees whose
// leaves are these rows.
type TokenAudit struct{}

func (TokenAudit) Name() string     { return schema.TokenEvent }
func (TokenAudit) Version() int     { return 2 }
func (TokenAudit) Tables() []string { return []string{"token_event", "token_tree"} }
func (TokenAudit) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.TokenPrefix, event.TokenUsePrefix}}
}

func (TokenAudit) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	leaves := slices.DeleteFunc(slices.Clone(batch), func(e projection.Event) bool { return !audit.IsLeaf(e.Type) })
	if len(leaves) == 0 {
		return nil
	}
	trees, err := openTrees(ctx, tx, leaves)
	if err != nil {
		return err
	}
	var events rows
	for _, e := range leaves {
		tree := trees[e.Metadata.Account]
		entry, err := audit.NewEntry(*e.Recorded, e.Data, tree.edge.Size())
		if err == nil {
			err = tree.add(entry)
		}
		if err != nil {
			return fmt.Errorf("event at position %d: %w", e.Position, err)
		}
		events.row(13)
		events.bigint(int64(e.Position))
		events.text(entry.ID)
		events.text(entry.TokenID)
		events.text(e.Metadata.Account)
		events.text(entry.Type)
		events.timestamp(e.At)
		events.text(entry.Actor)
		events.text(entry.IP)
		events.text(entry.UserAgent)
		events.text(entry.RequestID)
		events.json(entry.Data)
		events.text(entry.Digest)
		events.bigint(entry.Leaf)
	}
	err = events.insert(ctx, tx, "token_event", "position", "event_id", "token_id", "account", "type", "at", "actor", "ip",
		"user_agent", "request_id", "data", "digest", "leaf")
	if err != nil {
		return err
	}
	return saveTrees(ctx, tx, trees)
}
