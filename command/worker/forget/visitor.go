package forget

import (
	"context"
	"errors"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection"
)

// ErrNotLost means that all activities of a visitor can be read, so that ForgetVisitor has nothing to forget.
var ErrNotLost = errors.New("nothing of the visitor is lost")

// VisitorForgotten is the result of ForgetVisitor.
type VisitorForgotten struct {
	Again     bool // the visitor was forgotten before; this call finished the erasure
	Remaining bool // other activities can be read, and are kept
	Position  eventstore.Position
}

// ForgetVisitor forgets the activities of a visitor that cannot be read because their key is lost. With finish it only
// finishes an earlier call. The errors are ErrNotLost and those of facts, of the keys and of the views.
func (e Eraser) ForgetVisitor(
	ctx context.Context, facts command.Erasure, stream string, finish bool,
) (done VisitorForgotten, err error) {
	// 1. The fact. It names the lost keys, unless no activity can be read.
	done.Position, done.Again, done.Remaining, err = facts.ForgetLost(ctx, stream, finish)
	switch {
	case err != nil:
		return VisitorForgotten{}, err
	case done.Position == 0:
		return VisitorForgotten{}, ErrNotLost
	}
	// 2. Keys that were restored, for example from a backup.
	if err := e.Keys.DestroyReturned(ctx, stream); err != nil {
		return done, err
	}
	// 3. The views delete the activities themselves.
	if err := e.Views.Await(ctx, done.Position); err != nil {
		return done, err
	}
	// 4. Copies of the views, which do not follow the log.
	_, _, lost, err := facts.Visitor(ctx, stream)
	if err != nil {
		return done, err
	}
	return done, e.Views.DeleteFromCopies(ctx, projection.Forgotten{Keys: map[string][]int64{stream: lost}})
}

// DeleteVisitor forgets all activities of a visitor, whether or not a lead is linked with them. Later ones are sealed
// with a new key, and are kept.
func (e Eraser) DeleteVisitor(ctx context.Context, facts command.Erasure, stream string) (VisitorForgotten, error) {
	_, readable, _, err := facts.Visitor(ctx, stream)
	if err != nil {
		return VisitorForgotten{}, err
	}
	return e.forgetAll(ctx, facts, stream, readable)
}

// ExpireVisitor does the same as DeleteVisitor if the visitor's last activity is older than a time. Concurrent calls
// for one visitor are safe.
func (e Eraser) ExpireVisitor(ctx context.Context, facts command.Erasure, stream string, before time.Time) error {
	last, readable, _, err := facts.Visitor(ctx, stream)
	if err != nil || !last.Before(before) {
		return err
	}
	_, err = e.forgetAll(ctx, facts, stream, readable)
	if errors.Is(err, ErrNotLost) { // another process was faster, and the visitor has returned
		return nil
	}
	return err
}

// forgetAll destroys the key of the readable activities of a visitor, and forgets all that cannot be read then.
func (e Eraser) forgetAll(
	ctx context.Context, facts command.Erasure, stream string, readable bool,
) (VisitorForgotten, error) {
	if readable {
		if err := e.Keys.Destroy(ctx, stream); err != nil {
			return VisitorForgotten{}, err
		}
	}
	return e.ForgetVisitor(ctx, facts, stream, false)
}
