package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// RotateWebhookSecret is the command that replaces the signing secret of an endpoint. For webhook.Overlap, the previous
// secret also signs.
type RotateWebhookSecret struct {
	Caller    Caller
	WebhookID string
}

// WebhookSecretRotated is the answer. Only this one and that of a registration contain the secret.
type WebhookSecretRotated struct {
	Endpoint webhook.State
	Rotated  event.WebhookRotated
	Secret   string
	Position eventstore.Position
}

// RotateWebhookSecret gives an endpoint of the caller's account a new secret. The fact is appended before the secret is
// stored: if storing fails, the caller asks again. The errors are webhook.ErrNotFound and those of the store and of
// Secrets.
func (h *Handlers) RotateWebhookSecret(ctx context.Context, cmd RotateWebhookSecret) (WebhookSecretRotated, error) {
	secret, err := newSecret(h.random)
	if err != nil {
		return WebhookSecretRotated{}, err
	}
	answer := WebhookSecretRotated{Secret: secret}
	changed, err := h.changeEndpoint(ctx, cmd.Caller, cmd.WebhookID, func(
		state webhook.State, at time.Time,
	) (_ []event.Data, err error) {
		answer.Rotated, err = state.Rotate(cmd.Caller.Account, at)
		return []event.Data{answer.Rotated}, err
	})
	if err != nil {
		return WebhookSecretRotated{}, err
	}
	answer.Endpoint, answer.Position = changed.state, changed.position
	kept, err := h.secrets.Rotate(ctx, cmd.WebhookID, secret, answer.Rotated.PreviousUntil, changed.revision)
	if err == nil && !kept {
		err = h.replaceLost(ctx, cmd.WebhookID, secret, changed.revision)
	}
	if err != nil {
		return WebhookSecretRotated{}, err
	}
	return answer, nil
}

// replaceLost stores a secret for an endpoint that has none: the endpoint was deleted meanwhile, or its secret is lost,
// for example after a restore of an older backup. A deletion destroys the secret after its fact is on the log. So the
// stream is read again after the secret is stored, and no secret of a deleted endpoint stays behind.
func (h *Handlers) replaceLost(ctx context.Context, webhookID, secret string, revision eventstore.Revision) error {
	if err := h.secrets.Restore(ctx, webhookID, secret, revision); err != nil {
		return err
	}
	state, _, err := h.endpoints.Load(ctx, h.store, event.WebhookStream(webhookID))
	if err == nil && !state.Live() {
		h.destroySecret(ctx, webhookID)
		err = webhook.ErrNotFound
	}
	return err
}
