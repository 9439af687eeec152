package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
)

// DisableWebhookEndpoint is the command that stops the deliveries to an endpoint because of how its receiver answered.
type DisableWebhookEndpoint struct {
	WebhookID string
	Reason    string    // webhook.Gone or webhook.Failing
	URL       string    // that was sent to
	SeenFrom  time.Time // when the failures began
}

// DisableWebhookEndpoint disables an endpoint, once, however many processes ask for it. It does nothing when the
// endpoint is disabled or deleted already, or when the failures were at another URL or began before the endpoint was
// last enabled. The errors are those of the store.
func (h *Handlers) DisableWebhookEndpoint(ctx context.Context, cmd DisableWebhookEndpoint) error {
	delivery := Caller{Actor: "system:delivery"}
	_, err := h.changeEndpoint(ctx, delivery, cmd.WebhookID, func(
		state webhook.State, _ time.Time,
	) ([]event.Data, error) {
		if disabled, ok := state.Disable(cmd.Reason, cmd.URL, cmd.SeenFrom); ok {
			return []event.Data{disabled}, nil
		}
		return nil, nil
	})
	return err
}
