package verify

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
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
	place := r.leaves[account]
	r.leaves[account]++
	if data == nil {
		return nil
	}
	entry, err := audit.NewEntry(e, data, place)
	if err != nil {
		return err
	}
	hash, err := entry.LeafHash(account)
	if err != nil {
		return err
	}
	r.leaf = append(r.leaf, []any{int64(e.Position), e.Stream, account, tlog.StoredHashIndex(0, place), hash[:]})
	return nil
}

func (r *logReader) flushLeaves(ctx context.Context) error {
	_, err := r.tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "leaf"},
		[]string{"position", "stream", "account", "ordinal", "hash"}, pgx.CopyFromRows(r.leaf))
	r.leaf = r.leaf[:0]
	return err
}

// checkTree returns the events of the log that do not match the leaves of the stored trees. The comparison of the view with a fresh fold
// shows whether the trees are complete.
func checkTree(ctx context.Context, tx pgx.Tx, limit int) ([]string, error) {
	projector := view.TokenEvent{}
	rows, err := tx.Query(ctx, `
		SELECT format('audit tree of account %s: event at position %s of stream %s is not the one that the tree was made of',
		              account, position, stream)
		  FROM leaf LEFT JOIN views.token_tree t USING (account, ordinal)
		 WHERE t.hash IS DISTINCT FROM leaf.hash
		   AND position <= (SELECT position FROM views.checkpoint WHERE projector = $1 AND version = $2)
		 ORDER BY position LIMIT $3`, projector.Name(), projector.Version(), limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// compareHeads reports signed heads that do not match the stored trees. If the log was changed and the views were rebuilt, the trees match
// the log, but not an earlier signed head.
func compareHeads(ctx context.Context, tx pgx.Tx, heads []audit.Head) (findings []string, err error) {
	for _, head := range heads {
		var last int64
		err := tx.QueryRow(ctx, `SELECT coalesce(max(ordinal), -1) FROM views.token_tree WHERE account = $1`, head.Account).Scan(&last)
		if err != nil {
			return findings, err
		}
		if last+1 < tlog.StoredHashCount(head.Size) {
			findings = append(findings, fmt.Sprintf("audit tree of account %s: has lost leaves: a head of size %d was signed", head.Account, head.Size))
			continue
		}
		root, err := tlog.TreeHash(head.Size, schema.TreeHashes(ctx, tx, "views.token_tree", head.Account))
		if err != nil {
			return findings, err
		}
		if root != head.Root {
			findings = append(findings, fmt.Sprintf("audit tree of account %s: its first %d leaves are not those of the head that was signed",
				head.Account, head.Size))
		}
	}
	return findings, nil
}
