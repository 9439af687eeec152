package query

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
)

// TokenEvent is one event of a token, for auditors. Data has no hash of a value.
type TokenEvent = audit.Entry

// TokenEventTypes returns the public names of the events in the audit trail.
func TokenEventTypes() []string {
	return []string{"token.created", "token.rotated", "token.expiring", "token.deleted", "token.refused"}
}

// AuditFilter selects token events. Empty fields select all.
type AuditFilter struct {
	TokenID string
	Type    string    // public name, such as token.rotated
	Since   time.Time // inclusive
	Until   time.Time // exclusive
}

const tokenEventColumns = `
	SELECT position, event_id, token_id, type, at, actor, ip, user_agent, request_id, data, digest, leaf
	FROM views.token_event`

// TokenEvents lists the events of one token, oldest first. The errors are ErrNotFound and ErrCursor.
func (r *Reader) TokenEvents(ctx context.Context, account, id string, p Page) (List[TokenEvent], error) {
	if !event.ValidID(id) {
		return List[TokenEvent]{}, ErrNotFound
	}
	list, err := r.AuditTokens(ctx, account, AuditFilter{TokenID: id}, p)
	switch {
	case err != nil || len(list.Items) > 0:
	case p.Cursor == "": // an existing token has at least the event of its creation
		err = ErrNotFound
	default:
		_, err = one(ctx, r, pgx.RowTo[bool],
			`SELECT true FROM views.token_event WHERE token_id = $1 AND account = $2 LIMIT 1`, id, account)
	}
	return list, err
}

// AuditTokens lists the events of an account's tokens, oldest first. The error is ErrCursor for a cursor of another
// list.
func (r *Reader) AuditTokens(
	ctx context.Context, account string, filter AuditFilter, p Page,
) (List[TokenEvent], error) {
	s := filter.selection(account)
	return pageByPosition(ctx, r, s, cursorOf(tokenEventCursor, account), p, scanTokenEvent)
}

// LatestTokenEvents is AuditTokens, newest first.
func (r *Reader) LatestTokenEvents(
	ctx context.Context, account string, filter AuditFilter, p Page,
) (List[TokenEvent], error) {
	s := filter.selection(account)
	s.order = `position DESC`
	return pageByPosition(ctx, r, s, cursorOf(auditCursor, account), p, scanTokenEvent)
}

// AuditTokensAll yields everything that AuditTokens lists, in constant memory. It ends after yielding an error.
func (r *Reader) AuditTokensAll(ctx context.Context, account string, filter AuditFilter) iter.Seq2[TokenEvent, error] {
	return All(func(p Page) (List[TokenEvent], error) { return r.AuditTokens(ctx, account, filter, p) })
}

func (f AuditFilter) selection(account string) selection {
	s := selection{from: tokenEventColumns, order: `position`}
	s.and(`account = ?`, account)
	s.equal(`token_id`, f.TokenID)
	s.equal(`type`, f.Type)
	s.within(`at`, f.Since, f.Until)
	return s
}

func scanTokenEvent(row pgx.CollectableRow) (positioned[TokenEvent], error) {
	var e positioned[TokenEvent]
	var at time.Time
	var data []byte
	err := row.Scan(&e.position, &e.item.ID, &e.item.TokenID, &e.item.Type, &at, &e.item.Actor,
		&e.item.IP, &e.item.UserAgent, &e.item.RequestID, &data, &e.item.Digest, &e.item.Leaf)
	if err != nil {
		return e, err
	}
	e.item.Position, e.item.At, e.item.Data = eventstore.Position(e.position), audit.FormatTime(at), data
	e.item, err = e.item.Sealed()
	return e, err
}

// TreeSizeError reports a size that the tree does not have.
type TreeSizeError struct {
	Param string // that gave it
	Wants string // the valid values, as "must be …"
}

func (e *TreeSizeError) Error() string { return e.Param + " " + e.Wants }

// Newest selects the tree as it is now.
const Newest = -1

// TreeHead returns the size and root of an account's audit tree at a size. The error is *TreeSizeError when the tree is
// smaller.
func (r *Reader) TreeHead(ctx context.Context, account string, size int64) (tlog.Tree, error) {
	size, err := r.treeSize(ctx, account, size)
	if err != nil {
		return tlog.Tree{}, err
	}
	root, err := tlog.TreeHash(size, r.tree(ctx, account))
	return tlog.Tree{N: size, Hash: root}, err
}

// EventProof proves that an event is a leaf of a tree.
type EventProof struct {
	Event TokenEvent
	Leaf  tlog.Hash
	Tree  tlog.Tree
	Path  tlog.RecordProof
}

// ProveTokenEvent proves that the tree of a size has the event at a position of the log. The errors are ErrNotFound,
// *TreeSizeError when the tree of that size ends before the event, and ErrBehind when the event is not in the tree yet.
func (r *Reader) ProveTokenEvent(
	ctx context.Context, account string, position eventstore.Position, size int64,
) (p EventProof, err error) {
	found, err := one(ctx, r, scanTokenEvent, tokenEventColumns+` WHERE position = $1 AND account = $2`,
		int64(position), account)
	if err != nil {
		return p, err
	}
	p.Event = found.item
	if p.Event.Leaf < 0 {
		return p, ErrBehind
	}
	if p.Leaf, err = p.Event.LeafHash(account); err != nil {
		return p, err
	}
	if p.Tree, err = r.TreeHead(ctx, account, size); err != nil {
		return p, err
	}
	if p.Tree.N <= p.Event.Leaf {
		return p, &TreeSizeError{
			"size", fmt.Sprintf("must be more than %d: so many token events come before this one", p.Event.Leaf),
		}
	}
	p.Path, err = tlog.ProveRecord(p.Tree.N, p.Event.Leaf, r.tree(ctx, account))
	return p, err
}

// ProveTokenEvents proves events of an account to be leaves of its tree as it is now. A path is nil for an event that
// is not in the tree yet.
func (r *Reader) ProveTokenEvents(
	ctx context.Context, account string, events []TokenEvent,
) (head tlog.Tree, paths []tlog.RecordProof, err error) {
	if head.N, err = r.treeSize(ctx, account, Newest); err != nil {
		return head, nil, err
	}
	tree := r.tree(ctx, account)
	if head.Hash, err = tlog.TreeHash(head.N, tree); err != nil {
		return head, nil, err
	}
	paths = make([]tlog.RecordProof, len(events))
	for i, e := range events {
		if e.Leaf < 0 || e.Leaf >= head.N {
			continue
		}
		if paths[i], err = tlog.ProveRecord(head.N, e.Leaf, tree); err != nil {
			return head, nil, err
		}
	}
	return head, paths, nil
}

// TreeProof proves that a tree is an earlier one with new leaves appended.
type TreeProof struct {
	From, To tlog.Tree
	Path     tlog.TreeProof
}

// ProveTree proves that the tree at a size is the beginning of the tree at another. The error is *TreeSizeError.
func (r *Reader) ProveTree(ctx context.Context, account string, from, to int64) (p TreeProof, err error) {
	if p.To, err = r.TreeHead(ctx, account, to); err != nil {
		return p, named(err, "to")
	}
	if from < 1 || from > p.To.N { // the empty tree needs no proof
		return p, &TreeSizeError{
			"from", fmt.Sprintf("must be from 1 to %d, the size of the later tree", p.To.N),
		}
	}
	if p.From, err = r.TreeHead(ctx, account, from); err != nil {
		return p, err
	}
	p.Path, err = tlog.ProveTree(p.To.N, from, r.tree(ctx, account))
	return p, err
}

func named(err error, param string) error {
	var size *TreeSizeError
	if errors.As(err, &size) {
		size.Param = param
	}
	return err
}

func (r *Reader) tree(ctx context.Context, account string) tlog.HashReader {
	return schema.TokenTree(account).Hashes(ctx, r.pool)
}

// treeSize is the size asked for, if the tree has it.
func (r *Reader) treeSize(ctx context.Context, account string, size int64) (int64, error) {
	newest, err := schema.TokenTreeSize(ctx, r.pool, account)
	switch {
	case err != nil:
		return 0, err
	case size == Newest:
		return newest, nil
	case size < 0 || size > newest:
		return 0, &TreeSizeError{"size", fmt.Sprintf("must be from 0 to %d: so many token events the tree has", newest)}
	}
	return size, nil
}
