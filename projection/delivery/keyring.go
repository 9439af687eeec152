package delivery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// believed is how long an endpoint's secrets, URL and state are used without reading them again, by an attempt whose row was
// claimed before they changed. It is also how long a replaced secret may still sign after it has expired.
const believed = 500 * time.Millisecond

// mostSecrets is how many are remembered before those that are too old to be believed are forgotten.
const mostSecrets = 1024

// keyring caches secrets for a short time, so that a burst to one endpoint does not read its secrets for every attempt.
type keyring struct {
	secrets *Secrets
	mu      sync.Mutex
	known   map[secretVersion]knownSecret
}

// secretVersion changes with each rotation. A claim reads it with its rows, so that what is claimed after a rotation
// was answered is signed with the new secret.
type secretVersion struct{ webhookID, version string }

type knownSecret struct {
	secrets []string
	at      time.Time
}

func newKeyring(secrets *Secrets) *keyring {
	return &keyring{secrets: secrets, known: map[secretVersion]knownSecret{}}
}

// get finds secrets at least as new as a version of them. It has the errors of Secrets.Get.
func (k *keyring) get(ctx context.Context, of secretVersion) ([]string, error) {
	asked := time.Now() // before the look: what is found may be that old
	k.mu.Lock()
	known, ok := k.known[of]
	k.mu.Unlock()
	if ok && asked.Sub(known.at) < believed {
		return known.secrets, nil
	}
	secrets, err := k.secrets.Get(ctx, of.webhookID)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		delete(k.known, of)
		return nil, err
	}
	if len(k.known) >= mostSecrets {
		for of, known := range k.known {
			if asked.Sub(known.at) >= believed {
				delete(k.known, of)
			}
		}
	}
	k.known[of] = knownSecret{secrets, asked}
	return secrets, nil
}

// errSecretLost is for the owner of an endpoint to read. What waits is sent when the secret was rotated.
var errSecretLost = errors.New("not sent: the signing secret of this endpoint is lost; rotate it to get another")

// unsigned says, as errSecretLost, that an endpoint without a secret is there all the same, as after the restore of a
// backup that is older than it.
func (c *Courier) unsigned(ctx context.Context, r row) error {
	state, _, err := eventstore.Load(ctx, c.store, event.WebhookStream(r.webhookID), webhook.Evolve)
	if err == nil && state.Phase == webhook.Live {
		err = errSecretLost
	}
	return err
}
