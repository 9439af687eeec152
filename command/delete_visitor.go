package command

import "context"

// DeleteVisitor asks that a visitor of a web site be forgotten, whether or not a lead is linked with them. The lead stays, without
// what the visitor did.
type DeleteVisitor struct {
	Caller    Caller
	VisitorID string // as given
}

// DeleteVisitor destroys the visitor's key, so that what the visitor did cannot be read, and then does what ForgetVisitor does
// about a lost key. What the visitor does from then on is sealed with a new key, and stays. If it is interrupted, asking again
// finishes it.
//
// The errors are ErrNoVisitor and those of the store.
func (h *Handlers) DeleteVisitor(ctx context.Context, cmd DeleteVisitor) (VisitorForgotten, error) {
	forget := ForgetVisitor{Caller: cmd.Caller, Stream: h.claims.Visitor(cmd.Caller.Account, cmd.VisitorID)}
	found, err := h.forgettable(ctx, forget)
	if err != nil {
		return VisitorForgotten{}, err
	}
	return h.forgetAll(ctx, forget, found)
}

// forgetAll destroys the key of what can be read of a visitor, if there is any, and forgets what cannot be read then.
func (h *Handlers) forgetAll(ctx context.Context, forget ForgetVisitor, found forgettable) (VisitorForgotten, error) {
	if found.Rest {
		if err := h.forgetting.Destroy(ctx, forget.Stream); err != nil {
			return VisitorForgotten{}, err
		}
	}
	return h.ForgetVisitor(ctx, forget)
}
