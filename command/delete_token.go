package command

import (
	"context"

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
func (h *Handlers) DeleteToken(ctx context.Context, cmd DeleteToken) (position eventstore.Position, err error) {
	if !event.ValidID(cmd.TokenID) {
		return 0, token.ErrNotFound
	}
	stream := event.TokenStream(cmd.TokenID)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := eventstore.Load(ctx, h.store, stream, token.Evolve)
		if err != nil {
			return err
		}
		deleted, err := state.Delete(cmd.Caller.Account)
		if err != nil {
			return err
		}
		end, err := h.write(cmd.Caller, stream, expect, h.after(state.UpdatedAt), deleted)
		if err != nil {
			return err
		}
		release, err := h.releaseSlot(ctx, cmd.Caller, tokenSlots, state.Slot, cmd.TokenID)
		if err != nil {
			return err
		}
		position, err = h.store.Append(ctx, append(release, end)...)
		return err
	})
	return position, err
}
