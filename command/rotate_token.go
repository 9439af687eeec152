package command

import (
	"context"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// RotateToken is the command that replaces the value of a token. Once it is answered, the old value is refused.
type RotateToken struct {
	Caller  Caller
	TokenID string
}

// RotateToken gives a token of the caller's account a new value. The errors are token.ErrNotFound and those of
// the store.
func (h *Handlers) RotateToken(ctx context.Context, cmd RotateToken) (TokenIssued, error) {
	if !event.ValidID(cmd.TokenID) {
		return TokenIssued{}, token.ErrNotFound
	}
	value, err := token.NewValue(cmd.TokenID, h.random)
	if err != nil {
		return TokenIssued{}, err
	}
	issued := TokenIssued{ID: cmd.TokenID, Value: value}
	stream := event.TokenStream(cmd.TokenID)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := eventstore.Load(ctx, h.store, stream, token.Evolve)
		if err != nil {
			return err
		}
		at := h.after(state.UpdatedAt)
		rotated, err := state.Rotate(cmd.Caller.Account, value, at)
		if err != nil {
			return err
		}
		write, err := h.write(cmd.Caller, stream, expect, at, rotated)
		if err != nil {
			return err
		}
		issued.Token = token.Evolve(state, event.Fact{At: at, Metadata: cmd.Caller.metadata(), Data: rotated})
		issued.Position, err = h.store.Append(ctx, write)
		return err
	})
	return issued, err
}
