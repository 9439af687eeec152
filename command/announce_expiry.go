package command

import (
	"context"

	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// AnnounceExpiry records that a token expires soon, unless this was announced before or the token no longer does. The
// fact is appended to the token's own stream at the revision it was decided on, so it is there once, however many
// processes find the token due, and never after a rotation. Each process that has the token cached reads it again
// afterwards.
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
