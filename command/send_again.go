package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// TestWebhookEndpoint is the command that sends a webhook.test to an endpoint.
type TestWebhookEndpoint struct {
	Caller    Caller
	WebhookID string
}

// RetryDelivery is the command that repeats a delivery. The caller must have checked that the delivery is the
// endpoint's, and of this type.
type RetryDelivery struct {
	Caller     Caller
	WebhookID  string
	DeliveryID string
	Type       string // public name
}

// RetryFailedDeliveries is the command that repeats deliveries that have failed since a time. They must be of the
// endpoint.
type RetryFailedDeliveries struct {
	Caller      Caller
	WebhookID   string
	Since       time.Time
	DeliveryIDs []string
}

// ReplayWebhookEndpoint is the command that sends the events of a span of time to an endpoint again.
type ReplayWebhookEndpoint struct {
	Caller       Caller
	WebhookID    string
	Since, Until time.Time // a zero Until means now
}

// SendingAccepted is the answer: the request is on the log, and so will be carried out even if processes are killed.
type SendingAccepted struct {
	Fact       event.Data
	DeliveryID string // of a test
	Position   eventstore.Position
}

// TestWebhookEndpoint accepts a test. The errors are webhook.ErrNotFound, webhook.ErrDisabled and those of the store.
func (h *Handlers) TestWebhookEndpoint(ctx context.Context, cmd TestWebhookEndpoint) (SendingAccepted, error) {
	return h.accept(ctx, cmd.Caller, cmd.WebhookID, func(state webhook.State, _ time.Time) (event.Data, error) {
		return state.Test(cmd.Caller.Account)
	})
}

// RetryDelivery accepts a retry. The errors are those of a test and ErrLeadsHidden.
func (h *Handlers) RetryDelivery(ctx context.Context, cmd RetryDelivery) (SendingAccepted, error) {
	if webhook.OfLead(cmd.Type) && !cmd.Caller.ReadsLeads {
		return SendingAccepted{}, ErrLeadsHidden
	}
	return h.accept(ctx, cmd.Caller, cmd.WebhookID, func(state webhook.State, _ time.Time) (event.Data, error) {
		return state.Retry(cmd.Caller.Account, cmd.DeliveryID)
	})
}

// RetryFailedDeliveries accepts retries; without deliveries, nothing is appended. The errors are those of a test,
// ErrLeadsHidden and field.Errors.
func (h *Handlers) RetryFailedDeliveries(ctx context.Context, cmd RetryFailedDeliveries) (SendingAccepted, error) {
	return h.accept(ctx, cmd.Caller, cmd.WebhookID, func(state webhook.State, now time.Time) (event.Data, error) {
		if state.SentLeads && !cmd.Caller.ReadsLeads {
			return nil, ErrLeadsHidden
		}
		retried, err := state.RetryFailed(cmd.Caller.Account, cmd.Since, cmd.DeliveryIDs, now)
		if len(cmd.DeliveryIDs) == 0 {
			return nil, err
		}
		return retried, err
	})
}

// ReplayWebhookEndpoint accepts a replay. The errors are those of a test, field.Errors and webhook.ErrReplayRunning.
func (h *Handlers) ReplayWebhookEndpoint(ctx context.Context, cmd ReplayWebhookEndpoint) (SendingAccepted, error) {
	return h.accept(ctx, cmd.Caller, cmd.WebhookID, func(state webhook.State, now time.Time) (event.Data, error) {
		return state.Replay(cmd.Caller.Account, cmd.Since, cmd.Until, now)
	})
}

// EndReplay records that a replay of an endpoint has ended.
type EndReplay struct {
	WebhookID  string
	Generation int
	Failure    string // empty: everything that it queued was attempted once
}

// EndReplay records the end of a replay, once. It does nothing when the replay is not running. The errors are
// webhook.ErrNotFound for an endpoint that never existed, and those of the store.
func (h *Handlers) EndReplay(ctx context.Context, cmd EndReplay) error {
	_, err := h.changeEndpoint(ctx, Caller{Actor: "system:delivery"}, cmd.WebhookID, func(
		state webhook.State, _ time.Time,
	) ([]event.Data, error) {
		if ended, ok := state.EndReplay(cmd.Generation, cmd.Failure); ok {
			return []event.Data{ended}, nil
		}
		return nil, nil
	})
	return err
}

func (h *Handlers) accept(ctx context.Context, caller Caller, id string,
	decide func(webhook.State, time.Time) (event.Data, error)) (accepted SendingAccepted, err error) {
	changed, err := h.changeEndpoint(ctx, caller, id, func(
		state webhook.State, at time.Time,
	) (_ []event.Data, err error) {
		if accepted.Fact, err = decide(state, at); accepted.Fact == nil {
			return nil, err
		}
		return []event.Data{accepted.Fact}, err
	})
	if err != nil {
		return SendingAccepted{}, err
	}
	accepted.Position, accepted.DeliveryID = changed.position,
		webhook.DeliveryID(changed.last.ID, changed.last.ID, 0, id, 0)
	return accepted, nil
}
