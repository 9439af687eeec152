package view

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
)

// tokenTree is an account's tree while a batch is added to it.
type tokenTree struct {
	account string
	edge    *audit.Edge
	first   int64       // where the new hashes are stored
	added   []tlog.Hash // new hashes, one behind the other
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

// openTrees goes on with the trees of all accounts that events are of.
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
