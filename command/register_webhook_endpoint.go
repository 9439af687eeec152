package command

import (
	"context"
	"encoding/base64"
	"io"
	"time"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Secrets stores the signing secrets of endpoints, sealed, outside of the log.
type Secrets interface {
	// Put stores the secret with which an endpoint is registered.
	Put(ctx context.Context, webhookID, secret string) error
	// Restore stores the secret of an endpoint that has none, or an earlier one. Revision is that of the fact.
	Restore(ctx context.Context, webhookID, secret string, revision eventstore.Revision) error
	// Rotate stores a new secret. The previous one also signs until previousUntil. Kept is false when there is none to
	// replace. If rotations arrive in another order than they were decided in, the one of the latest revision is
	// current.
	Rotate(
		ctx context.Context, webhookID, secret string, previousUntil time.Time, revision eventstore.Revision,
	) (kept bool, err error)
	// SetHeaders stores the values of an endpoint's own headers for its URL, unless those of a later revision are
	// stored. Kept is false when the endpoint has no secret.
	SetHeaders(
		ctx context.Context, webhookID, url string, headers map[string]string, revision eventstore.Revision,
	) (kept bool, err error)
	// Destroy deletes all secrets of an endpoint, and its own headers. It is not an error if there are none.
	Destroy(ctx context.Context, webhookID string) error
}

// RegisterWebhookEndpoint is the command that creates an endpoint: events of the caller's account are sent to its URL.
type RegisterWebhookEndpoint struct {
	Caller       Caller
	Registration webhook.Registration
}

// WebhookRegistered is the answer. Only this one and that of a rotation contain the secret.
type WebhookRegistered struct {
	ID       string
	Endpoint webhook.State
	Secret   string
	Position eventstore.Position
}

// secretBytes is the length of a signing secret. The Standard Webhooks specification allows 24 to 64 bytes.
const secretBytes = 32

// RegisterWebhookEndpoint creates an endpoint and takes a free slot of the account for it, in one append. The secret is
// stored before that, because a secret without an endpoint does no harm. The errors are field.Errors, ErrLeadsHidden,
// webhook.ErrLimit and those of the store and of Secrets.
func (h *Handlers) RegisterWebhookEndpoint(
	ctx context.Context, cmd RegisterWebhookEndpoint,
) (WebhookRegistered, error) {
	registered, headers, err := cmd.Registration.Register(h.privateTargets)
	if err != nil {
		return WebhookRegistered{}, err
	}
	if webhook.SubscribesToLeads(registered.Events) && !cmd.Caller.ReadsLeads {
		return WebhookRegistered{}, ErrLeadsHidden
	}
	var answer WebhookRegistered
	// no endpoint ever has slot 0: creators of one account queue by its name
	queue := []string{h.claims.Slot(cmd.Caller.Account, claim.WebhookSlot, 0)}
	err = h.transact.Do(ctx, queue, func(ctx context.Context) (err error) {
		answer, err = h.registerWebhookEndpoint(ctx, cmd.Caller, registered, headers)
		return err
	})
	return answer, err
}

// registerWebhookEndpoint makes one attempt, with an id and a secret of its own.
func (h *Handlers) registerWebhookEndpoint(
	ctx context.Context, caller Caller, registered event.WebhookRegistered, headers map[string]string,
) (WebhookRegistered, error) {
	free, err := h.free(ctx, webhookSlots, caller.Account)
	if err != nil {
		return WebhookRegistered{}, err
	}
	id, err := h.newID()
	if err != nil {
		return WebhookRegistered{}, err
	}
	answer := WebhookRegistered{ID: id.String()}
	if answer.Secret, err = newSecret(h.random); err != nil {
		return WebhookRegistered{}, err
	}
	at := h.timestamp()
	take, err := h.claimSlot(caller, webhookSlots, free, answer.ID)
	if err != nil {
		return WebhookRegistered{}, err
	}
	registered.Slot = free.number
	created, err := h.write(caller, event.WebhookStream(answer.ID), eventstore.NoStream, at, registered)
	if err != nil {
		return WebhookRegistered{}, err
	}
	if err := h.secrets.Put(ctx, answer.ID, answer.Secret); err != nil {
		return WebhookRegistered{}, err
	}
	if len(headers) > 0 {
		if _, err := h.secrets.SetHeaders(ctx, answer.ID, registered.URL, headers, 0); err != nil {
			return WebhookRegistered{}, err
		}
	}
	answer.Endpoint = webhook.Evolve(webhook.State{}, event.Fact{At: at, Metadata: caller.metadata(), Data: registered})
	if answer.Position, err = h.store.Append(ctx, take, created); eventstore.Conflict(err) != nil {
		h.destroySecret(ctx, answer.ID)
	}
	return answer, err
}

func newSecret(random io.Reader) (string, error) {
	key := make([]byte, secretBytes)
	if _, err := io.ReadFull(random, key); err != nil {
		return "", err
	}
	return webhook.SecretPrefix + base64.StdEncoding.EncodeToString(key), nil
}

var webhookSlots = slots{kind: claim.WebhookSlot, count: webhook.MaxPerAccount, full: webhook.ErrLimit}

// endpointFolds are the rules by which endpoints are folded. A stream is long if a program keeps testing the endpoint
// or asking for its deliveries again.
var endpointFolds = eventstore.FoldRules[webhook.State]{
	Evolve:    webhook.Evolve,
	Cacheable: func(webhook.State) bool { return true }, // it contains no personal data
	Long:      128, Memory: 1 << 20,
}
