package delivery

import (
	"context"
	"sync"
	"time"
)

// secretAge is how long a secret is believed without another look. So long after an endpoint was deleted an attempt at
// it may still begin.
const secretAge = 500 * time.Millisecond

// mostSecrets is how many are remembered before those are forgotten that are believed no more.
const mostSecrets = 1024

// keyring remembers secrets for a moment: a burst to one endpoint does not ask for its secret with every attempt.
type keyring struct {
	secrets *Secrets
	mu      sync.Mutex
	known   map[string]knownSecret // by endpoint
}

type knownSecret struct {
	secrets []string
	at      time.Time
}

func newKeyring(secrets *Secrets) *keyring {
	return &keyring{secrets: secrets, known: map[string]knownSecret{}}
}

// get has the errors of Secrets.Get.
func (k *keyring) get(ctx context.Context, webhookID string) ([]string, error) {
	asked := time.Now() // before the look: what is found may be that old
	k.mu.Lock()
	known, ok := k.known[webhookID]
	k.mu.Unlock()
	if ok && asked.Sub(known.at) < secretAge {
		return known.secrets, nil
	}
	secrets, err := k.secrets.Get(ctx, webhookID)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		delete(k.known, webhookID)
		return nil, err
	}
	if len(k.known) >= mostSecrets {
		for id, known := range k.known {
			if asked.Sub(known.at) >= secretAge {
				delete(k.known, id)
			}
		}
	}
	k.known[webhookID] = knownSecret{secrets, asked}
	return secrets, nil
}
