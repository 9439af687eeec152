package logcopy

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// ErrDiffers means that a copy differs from its source.
var ErrDiffers = errors.New("the copy differs from its source")

// Compare reads both logs in full, calls each with the two positions of every event, and returns the head of the tree
// over both. An error that is ErrDiffers names the first event that differs.
func Compare(
	ctx context.Context, from, to eventstore.Store, progress func(done, end eventstore.Position),
	each func(from, to eventstore.Position) error,
) (same tlog.Tree, err error) {
	end, err := from.Head(ctx)
	if err != nil {
		return same, err
	}
	copied, err := to.Head(ctx)
	if err != nil {
		return same, err
	}
	next, stop := iter.Pull2(upTo(ctx, to, copied))
	defer stop()
	var tree merkle.Tiles
	for e, err := range upTo(ctx, from, end) {
		if err != nil {
			return same, err
		}
		progress(e.Position, end)
		copied, err, more := next()
		if err != nil {
			return same, err
		}
		if !more || copied.ID != e.ID {
			return same, fmt.Errorf("%w: event %s of stream %s is not at its revision", ErrDiffers, e.ID, e.Stream)
		}
		leaf, err := audit.LogLeaf(e)
		if err != nil {
			return same, err
		}
		switch other, err := audit.LogLeaf(copied); {
		case err != nil:
			return same, err
		case other != leaf:
			return same, fmt.Errorf("%w: event %s of stream %s is not the same", ErrDiffers, e.ID, e.Stream)
		}
		tree.Add(leaf)
		if err := each(e.Position, copied.Position); err != nil {
			return same, err
		}
	}
	if _, err, more := next(); err != nil {
		return same, err
	} else if more {
		return same, fmt.Errorf("%w: it has events that the source has not", ErrDiffers)
	}
	return tree.Head()
}
