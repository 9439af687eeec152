package command

import (
	"context"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// UpdateWebhookEndpoint asks that an endpoint get other events, get them at another URL, or get none for a while.
type UpdateWebhookEndpoint struct {
	Caller    Caller
	WebhookID string
	Change    webhook.Change
}

// WebhookUpdated is the answer: the endpoint as it is after the change.
type WebhookUpdated struct {
	Endpoint webhook.State
	Position eventstore.Position // 0 when all of it was so already
}

// UpdateWebhookEndpoint decides on a change of an endpoint of the caller's account and appends it. The errors are
// webhook.ErrNotFound, field.Errors and those of the store.
func (h *Handlers) UpdateWebhookEndpoint(ctx context.Context, cmd UpdateWebhookEndpoint) (updated WebhookUpdated, err error) {
	if !validID(cmd.WebhookID) {
		return WebhookUpdated{}, webhook.ErrNotFound
	}
	stream := event.WebhookStream(cmd.WebhookID)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := h.endpoints.Load(ctx, h.store, stream)
		if err != nil {
			return err
		}
		facts, err := state.Update(cmd.Caller.Account, cmd.Change, h.privateTargets)
		if err != nil {
			return err
		}
		if cmd.Change.URL != nil && *cmd.Change.URL != state.URL {
			if err := h.judgeHost(ctx, *cmd.Change.URL); err != nil {
				return err
			}
		}
		updated = WebhookUpdated{Endpoint: state}
		if len(facts) == 0 {
			return nil
		}
		appended, err := h.appendToEndpoint(ctx, cmd.Caller, stream, expect, state, facts...)
		updated = WebhookUpdated{Endpoint: appended.state, Position: appended.position}
		return err
	})
	return updated, err
}

// appendedToEndpoint is an endpoint after an append.
type appendedToEndpoint struct {
	state    webhook.State
	last     eventstore.Event
	position eventstore.Position
}

// appendToEndpoint appends what was decided about an endpoint to its stream.
func (h *Handlers) appendToEndpoint(ctx context.Context, caller Caller, stream string, expect eventstore.Expected,
	state webhook.State, facts ...event.Data) (appended appendedToEndpoint, err error) {
	write := eventstore.Write{Stream: stream, Expect: expect}
	at := h.after(state.UpdatedAt)
	for _, data := range facts {
		if appended.last, err = h.stamp(caller, at, data); err != nil {
			return appended, err
		}
		write.Events = append(write.Events, appended.last)
		state = webhook.Evolve(state, event.Fact{ID: appended.last.ID, Stream: stream, At: at, Metadata: appended.last.Metadata, Data: data})
	}
	appended.state = state
	appended.position, err = h.store.Append(ctx, write)
	return appended, err
}
