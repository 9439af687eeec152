package projection

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// TokenAudit keeps what happened to API tokens: who did it, from where, by which request; and the Merkle trees over it,
// whose leaves are its rows.
type TokenAudit struct{}

func (TokenAudit) Name() string     { return schema.TokenEvent }
func (TokenAudit) Version() int     { return 2 }
func (TokenAudit) Tables() []string { return []string{"token_event", "token_tree"} }
func (TokenAudit) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.TokenPrefix, event.TokenUsePrefix}}
}

func (TokenAudit) Apply(ctx context.Context, tx pgx.Tx, batch []Event) error {
	leaves := slices.DeleteFunc(slices.Clone(batch), func(e Event) bool { return !audit.IsLeaf(e.Type) })
	if len(leaves) == 0 {
		return nil
	}
	trees, err := openTrees(ctx, tx, leaves)
	if err != nil {
		return err
	}
	var events tokenEventRows
	for _, e := range leaves {
		tree := trees[e.Metadata.Account]
		entry, err := audit.NewEntry(e.Recorded, e.Data, tree.edge.Size())
		if err == nil {
			err = tree.add(entry)
		}
		if err != nil {
			return fmt.Errorf("event at position %d: %w", e.Position, err)
		}
		events.add(e, entry)
	}
	if err := events.save(ctx, tx); err != nil {
		return err
	}
	return saveTrees(ctx, tx, trees)
}

// tokenEventRows are rows of the table, by column.
type tokenEventRows struct {
	positions, leaves                                                        []int64
	eventIDs, tokenIDs, accounts, types, actors, ips, agents, requests, sums []string
	times                                                                    []time.Time
	records                                                                  [][]byte
}

func (r *tokenEventRows) add(e Event, entry audit.Entry) {
	r.positions, r.leaves = append(r.positions, int64(e.Position)), append(r.leaves, entry.Leaf)
	r.eventIDs, r.tokenIDs = append(r.eventIDs, entry.ID), append(r.tokenIDs, entry.TokenID)
	r.accounts, r.types = append(r.accounts, e.Metadata.Account), append(r.types, entry.Type)
	r.times, r.records = append(r.times, e.At), append(r.records, entry.Data)
	r.actors, r.requests = append(r.actors, entry.Actor), append(r.requests, entry.RequestID)
	r.ips, r.agents, r.sums = append(r.ips, entry.IP), append(r.agents, entry.UserAgent), append(r.sums, entry.Digest)
}

func (r *tokenEventRows) save(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO token_event (position, event_id, token_id, account, type, at, actor, ip, user_agent, request_id, data, digest, leaf)
		SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[],
		                     $8::text[], $9::text[], $10::text[], $11::json[], $12::text[], $13::bigint[])`,
		r.positions, r.eventIDs, r.tokenIDs, r.accounts, r.types, r.times, r.actors, r.ips, r.agents, r.requests, r.records,
		r.sums, r.leaves)
	return err
}
