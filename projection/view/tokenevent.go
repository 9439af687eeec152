package view

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// TokenEvent has a row for each event of an API token, with its actor, address and request, and a Merkle tree for each account whose leaves
// are these rows.
type TokenEvent struct{}

func (TokenEvent) Name() string     { return schema.TokenEvent }
func (TokenEvent) Version() int     { return 2 }
func (TokenEvent) Tables() []string { return []string{"token_event", "token_tree"} }
func (TokenEvent) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.TokenPrefix, event.TokenUsePrefix}}
}

func (TokenEvent) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
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

// tokenTree is an account's tree while a batch is added to it.
type tokenTree struct {
	account string
	edge    *audit.Edge
	first   int64       // ordinal of the first added hash
	added   []tlog.Hash // new hashes, in storage order
}

func (t *tokenTree) add(entry audit.Entry) error {
	leaf, err := entry.LeafHash(t.account)
	if err != nil {
		return err
	}
	stored, err := t.edge.Add(leaf)
	t.added = append(t.added, stored...)
	return err
}

// openTrees resumes the trees of the accounts of events. It returns them by account.
func openTrees(ctx context.Context, tx pgx.Tx, events []projection.Event) (map[string]*tokenTree, error) {
	trees := map[string]*tokenTree{}
	for _, e := range events {
		trees[e.Metadata.Account] = &tokenTree{account: e.Metadata.Account}
	}
	rows, err := tx.Query(ctx, `
		SELECT account, coalesce((SELECT max(ordinal) FROM token_tree t WHERE t.account = a.account), -1)
		  FROM unnest($1::text[]) AS a (account)`, slices.Sorted(maps.Keys(trees)))
	if err != nil {
		return nil, err
	}
	var account string
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&account, &last}, func() error {
		trees[account].first = last + 1
		return nil
	})
	if err != nil {
		return nil, err
	}
	for account, tree := range trees {
		size := int64(0)
		if tree.first > 0 {
			size = audit.SizeOf(tree.first - 1)
		}
		if tree.edge, err = audit.Resume(size, schema.TreeHashes(ctx, tx, "token_tree", account)); err != nil {
			return nil, err
		}
	}
	return trees, nil
}

func saveTrees(ctx context.Context, tx pgx.Tx, trees map[string]*tokenTree) error {
	var accounts []string
	var ordinals []int64
	var hashes [][]byte
	for account, tree := range trees {
		for i := range tree.added {
			accounts, ordinals = append(accounts, account), append(ordinals, tree.first+int64(i))
			hashes = append(hashes, tree.added[i][:])
		}
	}
	_, err := tx.Exec(ctx, `INSERT INTO token_tree (account, ordinal, hash) SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[])`,
		accounts, ordinals, hashes)
	return err
}
