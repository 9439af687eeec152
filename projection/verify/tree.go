package verify

import (
	"context"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/view"
)

// noteLeaf records the hash of an event that is a leaf of its account's tree. An unreadable event, for which data is
// nil, still counts as a leaf.
func (r *logReader) noteLeaf(e eventstore.Recorded, data event.Data) error {
	if !audit.IsLeaf(e.Type) {
		return nil
	}
	account := e.Metadata.Account
	index := r.leaves[account]
	r.leaves[account]++
	var hash tlog.Hash
	if data != nil {
		entry, err := audit.NewEntry(e, data, index)
		if err == nil {
			hash, err = entry.LeafHash(account)
		}
		if err != nil {
			return err
		}
	}
	if signed := r.trees[account]; signed != nil {
		if _, err := signed.add(hash); err != nil {
			return err
		}
	}
	if data == nil {
		return nil
	}
	r.leaf = append(r.leaf, []any{int64(e.Position), e.Stream, account, index, hash[:]})
	return nil
}

func (r *logReader) flushLeaves(ctx context.Context) error {
	_, err := r.tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "leaf"},
		[]string{"position", "stream", "account", "index", "hash"}, pgx.CopyFromRows(r.leaf))
	r.leaf = r.leaf[:0]
	return err
}

// checkTree returns the events of the log that do not match the leaves of the stored trees. The comparison of the view
// with a fresh fold shows whether the trees are complete.
func checkTree(ctx context.Context, tx pgx.Tx, limit int) ([]string, error) {
	projector := view.TokenEvent{}
	rows, err := tx.Query(ctx, `
		SELECT format('audit tree of account %s: event at position %s of stream %s is not the one that the tree was made of',
		              leaf.account, position, stream)
		  FROM leaf LEFT JOIN views.token_tree t ON t.account = leaf.account AND t.level = 0
		  AND t.number = leaf.index / 256
		 WHERE substring(t.hashes FROM (leaf.index % 256 * 32 + 1)::integer FOR 32) IS DISTINCT FROM leaf.hash
		   AND position <= (SELECT position FROM views.checkpoint WHERE projector = $1 AND version = $2)
		 ORDER BY position LIMIT $3`, projector.Name(), projector.Version(), limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
