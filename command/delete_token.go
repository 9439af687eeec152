package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// DeleteToken deletes a token: it is refused from then on. Its history stays.
type DeleteToken struct {
	Caller  Caller
	TokenID string
}

// DeleteToken ends a token of the caller's account and frees its slot. The errors are token.ErrNotFound and those of
// the store.
func (h *Handlers) DeleteToken(ctx context.Context, cmd DeleteToken) (eventstore.Position, error) {
	_, position, err := h.changeToken(ctx, cmd.Caller, cmd.TokenID, func(
		state token.State, _ time.Time,
	) (event.Data, []eventstore.Write, error) {
		deleted, err := state.Delete(cmd.Caller.Account)
		if err != nil {
			return nil, nil, err
		}
		release, err := h.releaseSlot(ctx, cmd.Caller, tokenSlots, state.Slot, cmd.TokenID)
		return deleted, release, err
	})
	return position, err
}
