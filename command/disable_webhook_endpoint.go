package command

import (
	"context"
	"time"

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
	stream := event.WebhookStream(cmd.WebhookID)
	return h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := h.endpoints.Load(ctx, h.store, stream)
		if err != nil {
			return err
		}
		disabled, ok := state.Disable(cmd.Reason, cmd.URL, cmd.SeenFrom)
		if !ok {
			return nil
		}
		delivery := Caller{Account: state.Account, Actor: "system:delivery"}
		_, err = h.appendToEndpoint(ctx, delivery, stream, expect, state, disabled)
		return err
	})
}
