package command

import (
	"context"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// AnnounceExpiry says of a token that it ends soon, unless that was said of this end, or is not so any more. It stands on
// the token's own stream, at the revision that it was decided on: whatever processes find the token due, and however often,
// it is said once, and never behind a rotation. What is believed of the token elsewhere is read anew then, once a process.
func (h *Handlers) AnnounceExpiry(ctx context.Context, tokenID string) error {
	stream := event.TokenStream(tokenID)
	return h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := eventstore.Load(ctx, h.store, stream, token.Evolve)
		if err != nil {
			return err
		}
		at := h.after(state.UpdatedAt)
		expiring, due := state.Expiring(at)
		if !due {
			return nil
		}
		write, err := h.write(Caller{Account: state.Account, Actor: "system:expiry"}, stream, expect, at, expiring)
		if err != nil {
			return err
		}
		_, err = h.store.Append(ctx, write)
		return err
	})
}
