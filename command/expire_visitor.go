package command

import (
	"context"
	"errors"
	"time"
)

// ExpireVisitor asks that a visitor be forgotten whose last activity is older than a time.
type ExpireVisitor struct {
	Account string
	Stream  string
	Before  time.Time
}

// ExpireVisitor does what DeleteVisitor does, unless the visitor has done something since or is forgotten already. Any number of
// processes may ask for it.
func (h *Handlers) ExpireVisitor(ctx context.Context, cmd ExpireVisitor) error {
	forget := ForgetVisitor{Caller: Caller{Account: cmd.Account, Actor: "system:expiry"}, Stream: cmd.Stream}
	found, err := h.forgettable(ctx, forget)
	if err != nil || !found.acted.Before(cmd.Before) {
		return err
	}
	_, err = h.forgetAll(ctx, forget, found)
	if errors.Is(err, ErrNotLost) { // another process was faster, and the visitor has come again
		return nil
	}
	return err
}
