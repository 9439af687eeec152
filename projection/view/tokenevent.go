package view

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// TokenEvent has a row for each event of an API token, with its actor, address and request, and a Merkle tree for each
// account whose leaves are these rows.
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
		entry, err := audit.NewEntry(*e.Recorded, e.Data, tree.Size())
		if err == nil {
			err = tree.add(e.Metadata.Account, entry)
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
	err = events.insert(ctx, tx, "token_event", "position", "event_id", "token_id", "account", "type", "at", "actor",
		"ip",
		"user_agent", "request_id", "data", "digest", "leaf")
	if err != nil {
		return err
	}
	return saveTrees(ctx, tx, trees)
}

// tokenTree is an account's tree while a batch is added to it.
type tokenTree struct {
	*merkle.Tiles
	filled []merkle.Tile
}

func (t *tokenTree) add(account string, entry audit.Entry) error {
	leaf, err := entry.LeafHash(account)
	t.filled = append(t.filled, t.Add(leaf)...)
	return err
}

// openTrees resumes the trees of the accounts of events. It returns them by account.
func openTrees(ctx context.Context, tx pgx.Tx, events []projection.Event) (map[string]*tokenTree, error) {
	trees := map[string]*tokenTree{}
	for _, e := range events {
		trees[e.Metadata.Account] = nil
	}
	// The last tile of each level. No tree has more than eight levels of tiles.
	rows, err := tx.Query(ctx, `
		SELECT account, level, number, hashes
		  FROM unnest($1::text[]) AS a (account) CROSS JOIN generate_series(0, 7) AS l (level)
		 CROSS JOIN LATERAL (SELECT number, hashes FROM token_tree t
		                      WHERE t.account = a.account AND t.level = l.level ORDER BY number DESC
		                      LIMIT 1) AS last`, slices.Sorted(maps.Keys(trees)))
	if err != nil {
		return nil, err
	}
	edges := map[string][]merkle.Tile{}
	var account string
	var tile merkle.Tile
	_, err = pgx.ForEachRow(rows, []any{&account, &tile.Level, &tile.Number, &tile.Hashes}, func() error {
		edges[account] = append(edges[account], merkle.Tile{
			Level: tile.Level, Number: tile.Number, Hashes: bytes.Clone(tile.Hashes),
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for account := range trees {
		tiles, err := merkle.ResumeTiles(merkle.SizeOf(edges[account]), edges[account])
		if err != nil {
			return nil, fmt.Errorf("tree of account %s: %w", account, err)
		}
		trees[account] = &tokenTree{Tiles: tiles}
	}
	return trees, nil
}

func saveTrees(ctx context.Context, tx pgx.Tx, trees map[string]*tokenTree) error {
	var accounts []string
	var levels []int16
	var numbers []int64
	var hashes [][]byte
	for account, tree := range trees {
		for _, tile := range append(tree.filled, tree.Changed()...) {
			accounts, levels = append(accounts, account), append(levels, int16(tile.Level))
			numbers, hashes = append(numbers, tile.Number), append(hashes, tile.Hashes)
		}
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO token_tree (account, level, number, hashes) SELECT *
		FROM unnest($1::text[], $2::smallint[], $3::bigint[], $4::bytea[])
		ON CONFLICT (account, level, number) DO UPDATE SET hashes = excluded.hashes`, accounts, levels, numbers, hashes)
	return err
}
