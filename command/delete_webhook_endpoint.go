package command

import (
	"context"
	"log/slog"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// DeleteWebhookEndpoint is the command that deletes an endpoint.
type DeleteWebhookEndpoint struct {
	Caller    Caller
	WebhookID string
}

// DeleteWebhookEndpoint ends an endpoint of the caller's account, frees its slot and destroys its secret. Called again,
// for example because the first answer was lost, it destroys a secret that is still there. The errors are
// webhook.ErrNotFound and those of the store.
func (h *Handlers) DeleteWebhookEndpoint(
	ctx context.Context, cmd DeleteWebhookEndpoint,
) (position eventstore.Position, err error) {
	if !event.ValidID(cmd.WebhookID) {
		return 0, webhook.ErrNotFound
	}
	stream := event.WebhookStream(cmd.WebhookID)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := h.endpoints.Load(ctx, h.store, stream)
		if err != nil {
			return err
		}
		deleted, err := state.Delete(cmd.Caller.Account)
		if err != nil {
			if state.Deleted && state.Account == cmd.Caller.Account {
				h.destroySecret(ctx, cmd.WebhookID)
			}
			return err
		}
		end, err := h.write(cmd.Caller, stream, expect, h.after(state.UpdatedAt), deleted)
		if err != nil {
			return err
		}
		release, err := h.releaseSlot(ctx, cmd.Caller, webhookSlots, state.Slot, cmd.WebhookID)
		if err != nil {
			return err
		}
		position, err = h.store.Append(ctx, append(release, end)...)
		return err
	})
	if err != nil {
		return 0, err
	}
	h.destroySecret(ctx, cmd.WebhookID)
	return position, nil
}

// destroySecret destroys an endpoint's secret. A failure is only logged: the endpoint is gone, so nothing is signed
// with it.
func (h *Handlers) destroySecret(ctx context.Context, webhookID string) {
	if err := h.secrets.Destroy(context.WithoutCancel(ctx), webhookID); err != nil {
		h.log.Warn("secret of a deleted endpoint not destroyed", slog.String("webhookId", webhookID),
			slog.Any("error", err))
	}
}
