package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// RotateToken is the command that replaces the value of a token. Once it is answered, the old value is refused.
type RotateToken struct {
	Caller  Caller
	TokenID string
}

// RotateToken gives a token of the caller's account a new value. The errors are token.ErrNotFound, ErrLeadsHidden and
// those of the store.
func (h *Handlers) RotateToken(ctx context.Context, cmd RotateToken) (TokenIssued, error) {
	value, err := token.NewValue(cmd.TokenID, h.random)
	if err != nil {
		return TokenIssued{}, err
	}
	rotated, position, err := h.changeToken(ctx, cmd.Caller, cmd.TokenID, func(
		state token.State, at time.Time,
	) (event.Data, []eventstore.Write, error) {
		fact, err := state.Rotate(cmd.Caller.Account, value, at)
		if err != nil {
			return nil, nil, err
		}
		account, err := h.mayIssue(ctx, cmd.Caller)
		return fact, []eventstore.Write{account}, err
	})
	if err != nil {
		return TokenIssued{}, err
	}
	return TokenIssued{ID: cmd.TokenID, Token: rotated, Value: value, Position: position}, nil
}
