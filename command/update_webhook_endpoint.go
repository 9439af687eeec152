package command

import (
	"context"
	"slices"
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// UpdateWebhookEndpoint is the command that changes the event types, URL or delivery settings of an endpoint, or pauses
// it.
type UpdateWebhookEndpoint struct {
	Caller    Caller
	WebhookID string
	Change    webhook.Change
}

// WebhookUpdated is the answer: the endpoint as it is after the change.
type WebhookUpdated struct {
	Endpoint webhook.State
	Position eventstore.Position
	Warnings []field.Warning // about headers that went with a change of the URL
}

// UpdateWebhookEndpoint decides on a change of an endpoint of the caller's account and appends it. Custom headers are
// stored after the fact: if that fails, nothing is sent until they are set again. The errors are webhook.ErrNotFound,
// field.Errors, ErrLeadsHidden and those of the store and of Secrets.
func (h *Handlers) UpdateWebhookEndpoint(ctx context.Context, cmd UpdateWebhookEndpoint) (WebhookUpdated, error) {
	var headers map[string]string
	var warnings []field.Warning
	changed, err := h.changeEndpoint(ctx, cmd.Caller, cmd.WebhookID, func(
		state webhook.State, _ time.Time,
	) (facts []event.Data, err error) {
		facts, headers, err = state.Update(cmd.Caller.Account, cmd.Change, h.privateTargets)
		if err == nil && !cmd.Caller.ReadsLeads && slices.ContainsFunc(facts, func(fact event.Data) bool {
			return directsLeads(state, fact)
		}) {
			err = ErrLeadsHidden
		}
		warnings = nil
		if headers != nil && cmd.Change.Headers == nil {
			warnings = append(warnings, field.Warning{Field: "headers", Code: field.SecretRemoved,
				Message: "were removed, because url has changed: send them again to use them there"})
		}
		return facts, err
	})
	if err == nil && headers != nil {
		var kept bool
		if kept, err = h.secrets.SetHeaders(ctx, cmd.WebhookID, changed.state.URL, headers,
			changed.revision); err == nil && !kept {
			err = h.noSecret(ctx, cmd.WebhookID)
		}
	}
	return WebhookUpdated{Endpoint: changed.state, Position: changed.position, Warnings: warnings}, err
}

// noSecret returns why an endpoint has no secret: it was deleted meanwhile, or its secret is lost, for example after a
// restore of an older backup.
func (h *Handlers) noSecret(ctx context.Context, webhookID string) error {
	state, _, err := h.endpoints.Load(ctx, h.store, event.WebhookStream(webhookID))
	switch {
	case err != nil:
		return err
	case !state.Live():
		return webhook.ErrNotFound
	}
	return field.Errors{{
		Field: "headers", Message: "cannot be stored: the signing secret of this endpoint is lost; rotate it first",
	}}
}

// directsLeads reports whether a fact changes which events of leads an endpoint is sent, or where these or earlier ones
// are sent.
func directsLeads(before webhook.State, fact event.Data) bool {
	updated, is := fact.(event.WebhookUpdated)
	if !is {
		return false
	}
	sends := webhook.SubscribesToLeads(updated.Events)
	return slices.ContainsFunc(updated.Changed, func(name string) bool {
		return sends && (name == "events" || name == "filter") || (sends || before.SentLeads) && name == "url"
	})
}

// changedEndpoint is an endpoint after a decision.
type changedEndpoint struct {
	state    webhook.State
	last     eventstore.Event    // the latest that was appended
	revision eventstore.Revision // of the latest event of its stream
	position eventstore.Position // of the latest that was appended, or the log's head when nothing was
}

// changeEndpoint calls decide with an endpoint and the time, and appends the facts that it returns, if any. After a
// conflict it does so again. The errors are webhook.ErrNotFound, those of decide and those of the store.
func (h *Handlers) changeEndpoint(ctx context.Context, caller Caller, id string,
	decide func(webhook.State, time.Time) ([]event.Data, error)) (changed changedEndpoint, err error) {
	if !event.ValidID(id) {
		return changed, webhook.ErrNotFound
	}
	stream := event.WebhookStream(id)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := h.endpoints.Load(ctx, h.store, stream)
		if err != nil {
			return err
		}
		at := h.after(state.UpdatedAt)
		facts, err := decide(state, at)
		if err != nil {
			return err
		}
		changed = changedEndpoint{state: state, revision: eventstore.Revision(expect) + eventstore.Revision(len(facts))}
		if len(facts) == 0 {
			changed.position, err = h.store.Head(ctx)
			return err
		}
		caller.Account = state.Account // the fact belongs to the endpoint's account, whatever the caller's is
		write := eventstore.Write{Stream: stream, Expect: expect}
		for _, data := range facts {
			if changed.last, err = h.stamp(caller, at, data); err != nil {
				return err
			}
			write.Events = append(write.Events, changed.last)
			changed.state = webhook.Evolve(changed.state, event.Fact{
				ID: changed.last.ID, Stream: stream, At: at, Metadata: changed.last.Metadata, Data: data,
			})
		}
		changed.position, err = h.store.Append(ctx, write)
		return err
	})
	return changed, err
}
