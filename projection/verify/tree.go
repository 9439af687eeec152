package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

// noteLeaf records the hash of an event that is a leaf of its account's tree. An unreadable event, for which data is nil, still counts as a
// leaf.
func (r *logReader) noteLeaf(e eventstore.Recorded, data event.Data) error {
	if !audit.IsLeaf(e.Type) {
		return nil
	}
	account := e.Metadata.Account
	index := r.leaves[account]
	r.leaves[account]++
	if data == nil {
		return nil
	}
	entry, err := audit.NewEntry(e, data, index)
	if err != nil {
		return err
	}
	hash, err := entry.LeafHash(account)
	if err != nil {
		return err
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

// checkTree returns the events of the log that do not match the leaves of the stored trees. The comparison of the view with a fresh fold
// shows whether the trees are complete.
func checkTree(ctx context.Context, tx pgx.Tx, limit int) ([]string, error) {
	projector := view.TokenEvent{}
	rows, err := tx.Query(ctx, `
		SELECT format('audit tree of account %s: event at position %s of stream %s is not the one that the tree was made of',
		              leaf.account, position, stream)
		  FROM leaf LEFT JOIN views.token_tree t ON t.account = leaf.account AND t.level = 0 AND t.number = leaf.index / 256
		 WHERE substring(t.hashes FROM (leaf.index % 256 * 32 + 1)::integer FOR 32) IS DISTINCT FROM leaf.hash
		   AND position <= (SELECT position FROM views.checkpoint WHERE projector = $1 AND version = $2)
		 ORDER BY position LIMIT $3`, projector.Name(), projector.Version(), limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// compareCheckpoints reports checkpoints that do not match the stored trees. If the log was changed and the views were rebuilt, the trees
// match the log, but not an earlier checkpoint.
func compareCheckpoints(ctx context.Context, tx pgx.Tx, checkpoints []merkle.Checkpoint) (findings []string, err error) {
	for _, signed := range checkpoints {
		size, err := schema.TokenTreeSize(ctx, tx, signed.Account)
		if err != nil {
			return findings, err
		}
		if size < signed.N {
			findings = append(findings, fmt.Sprintf("audit tree of account %s: has lost leaves: a checkpoint of size %d was signed", signed.Account, signed.N))
			continue
		}
		root, err := tlog.TreeHash(signed.N, schema.TokenTree(signed.Account).Hashes(ctx, tx))
		if errors.Is(err, merkle.ErrTiles) {
			findings = append(findings, fmt.Sprintf("audit tree of account %s: %v", signed.Account, err))
			continue
		}
		if err != nil {
			return findings, err
		}
		if root != signed.Hash {
			findings = append(findings, fmt.Sprintf("audit tree of account %s: its first %d leaves are not those of the checkpoint that was signed",
				signed.Account, signed.N))
		}
	}
	return findings, nil
}
