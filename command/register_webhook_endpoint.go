package command

import (
	"context"
	"encoding/base64"
	"io"
	"net/netip"
	"time"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Secrets keeps the signing secrets of endpoints, sealed, outside the log.
type Secrets interface {
	// Put keeps an endpoint's secret.
	Put(ctx context.Context, webhookID, secret string) error
	// Rotate keeps a secret in place of another, which goes on signing until a time. Kept is false when there is none to replace. When
	// rotations come in another order than they were decided in, the one with the latest time is current.
	Rotate(ctx context.Context, webhookID, secret string, previousUntil time.Time) (kept bool, err error)
	// Destroy forgets all of them for good; that there is none is no error.
	Destroy(ctx context.Context, webhookID string) error
}

// RegisterWebhookEndpoint asks that events of the caller's account be sent to a URL.
type RegisterWebhookEndpoint struct {
	Caller       Caller
	Registration webhook.Registration
}

// WebhookRegistered is the answer, the only one that holds the secret.
type WebhookRegistered struct {
	ID       string
	Endpoint webhook.State
	Secret   string
	Position eventstore.Position
}

// secretBytes is the strength of a signing secret, within the 24 to 64 bytes of the Standard Webhooks specification.
const secretBytes = 32

// RegisterWebhookEndpoint takes a free slot of the account and the endpoint with it. The secret is kept before the
// endpoint exists: one without an endpoint does no harm. The errors are field.Errors, webhook.ErrLimit and those of
// the store and of Secrets.
func (h *Handlers) RegisterWebhookEndpoint(ctx context.Context, cmd RegisterWebhookEndpoint) (WebhookRegistered, error) {
	registered, err := cmd.Registration.Register(h.privateTargets)
	if err != nil {
		return WebhookRegistered{}, err
	}
	if err := h.judgeHost(ctx, registered.URL); err != nil {
		return WebhookRegistered{}, err
	}
	var answer WebhookRegistered
	queue := []string{h.claims.Slot(cmd.Caller.Account, claim.WebhookSlot, 0)} // nobody's place: where creators queue
	err = h.transact.Do(ctx, queue, func(ctx context.Context) (err error) {
		answer, err = h.registerWebhookEndpoint(ctx, cmd.Caller, registered)
		return err
	})
	return answer, err
}

// registerWebhookEndpoint makes one attempt, each with an id and a secret of its own: somebody may have abandoned those
// of the one before.
func (h *Handlers) registerWebhookEndpoint(ctx context.Context, caller Caller, registered event.WebhookRegistered) (WebhookRegistered, error) {
	places := h.webhookSlots()
	free, err := h.free(ctx, places, caller.Account)
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
	take, err := h.take(caller, places, free, answer.ID)
	if err != nil {
		return WebhookRegistered{}, err
	}
	registered.Slot = free.number
	born, err := h.write(caller, event.WebhookStream(answer.ID), eventstore.NoStream, at, registered)
	if err != nil {
		return WebhookRegistered{}, err
	}
	if err := h.secrets.Put(ctx, answer.ID, answer.Secret); err != nil {
		return WebhookRegistered{}, err
	}
	answer.Endpoint = webhook.Evolve(webhook.State{}, event.Fact{At: at, Metadata: caller.metadata(), Data: registered})
	if answer.Position, err = h.store.Append(ctx, take, born); eventstore.Conflict(err) != nil {
		h.destroySecret(ctx, answer.ID)
	}
	return answer, err
}

func newSecret(random io.Reader) (string, error) {
	key := make([]byte, secretBytes)
	if _, err := io.ReadFull(random, key); err != nil {
		return "", err
	}
	return "whsec_" + base64.StdEncoding.EncodeToString(key), nil
}

func (h *Handlers) webhookSlots() slots {
	return slots{
		kind: claim.WebhookSlot, count: webhook.MaxPerAccount, full: webhook.ErrLimit,
		holder: func(ctx context.Context, id string) (holds, unborn bool, expect eventstore.Expected, err error) {
			state, expect, err := h.endpoints.Load(ctx, h.store, event.WebhookStream(id))
			return state.HoldsSlot(), state.Phase == webhook.Unborn, expect, err
		},
		stream:    event.WebhookStream,
		abandoned: event.WebhookAbandoned{},
	}
}

// Resolver looks names up; net.DefaultResolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// resolvePatience is how long a name may take to resolve. One that takes longer is let through.
const resolvePatience = 2 * time.Second

// judgeHost says, as field.Errors, that the name in a URL resolves to an address that is no public host's. It is for a
// clear answer: a name may resolve to something else later, and one that does not resolve now may then, so every
// connection is judged again.
func (h *Handlers) judgeHost(ctx context.Context, url string) error {
	name, ok := webhook.HostToResolve(url)
	if h.privateTargets || !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolvePatience)
	defer cancel()
	addresses, _ := h.resolver.LookupNetIP(ctx, "ip", name) // an error is as good as no address
	for _, address := range addresses {
		if !webhook.Public(address.Unmap()) {
			return field.Errors{{Field: "url", Message: webhook.ResolvesToPrivate}}
		}
	}
	return nil
}
