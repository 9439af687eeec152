package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
)

// DisableWebhookEndpoint asks that an endpoint get nothing more, because of what those who send to it saw.
type DisableWebhookEndpoint struct {
	WebhookID string
	Reason    string    // webhook.Gone or webhook.Failing
	URL       string    // at which it was seen
	SeenFrom  time.Time // when that began
}

// DisableWebhookEndpoint switches an endpoint off, once however many see the same. It does nothing when the endpoint is
// off or gone already, and when what was seen is of another URL or of a time before it was enabled. The errors are those
// of the store.
func (h *Handlers) DisableWebhookEndpoint(ctx context.Context, cmd DisableWebhookEndpoint) error {
	delivery := Caller{Actor: "system:delivery"}
	_, err := h.changeEndpoint(ctx, delivery, cmd.WebhookID, func(state webhook.State, _ time.Time) ([]event.Data, error) {
		if disabled, ok := state.Disable(cmd.Reason, cmd.URL, cmd.SeenFrom); ok {
			return []event.Data{disabled}, nil
		}
		return nil, nil
	})
	return err
}
