package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

const (
	keySetRefresh = 15 * time.Minute
	maxKeySet     = 1 << 20 // bytes
)

// keySetPace bounds the requests for a key set. An unknown key id may be that of a new key: the set is fetched again.
type keySetPace struct {
	timeout time.Duration // of a fetch
	wait    time.Duration // how long a JWT with an unknown key id waits for it
	every   time.Duration // least time between two fetches for unknown ids
}

// usualPace is global because it is constant.
var usualPace = keySetPace{timeout: 5 * time.Second, wait: 2 * time.Second, every: 10 * time.Second}

// keySet has the public keys that an issuer publishes at a URL (RFC 7517). Its methods may be called from many
// goroutines.
type keySet struct {
	address string
	host    string
	client  *http.Client
	pace    keySetPace
	log     *slog.Logger

	mu       sync.Mutex
	keys     map[string][]jwkset.JWK // by id
	failed   bool                    // the last fetch failed
	unknown  time.Time               // start of the last fetch for an unknown key
	fetching chan struct{}           // closed at the end of the fetch that is running; nil: none is
	unusable string                  // why a key of the set is ignored, as logged last
}

// newKeySet fetches a key set now, and then regularly until ctx ends.
func newKeySet(ctx context.Context, address string, log *slog.Logger, pace keySetPace) (*keySet, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("the JWKS address is not an http or https URL")
	}
	k := &keySet{address: address, host: u.Host, client: &http.Client{Timeout: pace.timeout}, pace: pace, log: log}
	<-k.fetch(ctx, false)
	go func() {
		ticker := time.NewTicker(keySetRefresh)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				k.fetch(ctx, false)
			case <-ctx.Done():
				return
			}
		}
	}()
	return k, nil
}

// find returns the keys with an id that may verify signatures of an algorithm. The error is errNoKeys if there may be
// such a key, but the set cannot be fetched.
func (k *keySet) find(ctx context.Context, id, alg string) (found jwt.VerificationKeySet, err error) {
	keys, failed := k.withID(id)
	if len(keys) == 0 {
		failed = !k.refresh(ctx)
		if !failed {
			keys, failed = k.withID(id)
		}
	}
	for _, key := range keys {
		m := key.Marshal()
		if (m.USE == "" || m.USE == jwkset.UseSig) && (m.ALG == "" || m.ALG.String() == alg) {
			found.Keys = append(found.Keys, key.Key())
		}
	}
	switch {
	case len(keys) == 0 && failed:
		return found, errNoKeys
	case len(found.Keys) == 0:
		return found, errUnknownKey
	}
	return found, nil
}

// withID returns the keys with an id, and whether the set may be outdated: the last fetch failed, or it has no keys at
// all.
func (k *keySet) withID(id string) (keys []jwkset.JWK, outdated bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys[id], k.failed || len(k.keys) == 0
}

// refresh fetches the set again, unless that was done just before. It returns false if the fetch has not ended yet. All
// callers wait for one fetch, which continues when they leave.
func (k *keySet) refresh(ctx context.Context) bool {
	wait := time.NewTimer(k.pace.wait)
	defer wait.Stop()
	select {
	case <-k.fetch(context.WithoutCancel(ctx), true):
		return true
	case <-wait.C:
	case <-ctx.Done():
	}
	return false
}

// fetch begins to fetch the set, unless a fetch is running, and returns a channel that is closed when it has ended. For
// an unknown key it begins none within the limit.
func (k *keySet) fetch(ctx context.Context, unknown bool) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fetching != nil {
		return k.fetching
	}
	ended := make(chan struct{})
	if unknown {
		if time.Since(k.unknown) < k.pace.every {
			close(ended)
			return ended
		}
		k.unknown = time.Now()
	}
	k.fetching = ended
	go func() {
		defer close(ended)
		keys, unusable, err := k.get(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.fetching, k.failed = nil, err != nil
		if err != nil {
			k.log.WarnContext(ctx, "JWKS not fetched", slog.String("host", k.host), slog.Any("error", err))
			return
		}
		k.keys = keys
		if unusable != "" && unusable != k.unusable { // logged once
			k.log.WarnContext(ctx, "JWKS has a key that is ignored", slog.String("host", k.host),
				slog.String("reason", unusable))
		}
		k.unusable = unusable
	}()
	return ended
}

// get requests the set. As RFC 7517 says, a key that is invalid or of an unknown kind is ignored, so that JWTs of other
// keys are still accepted. For the first invalid one, the reason is returned.
func (k *keySet) get(ctx context.Context) (keys map[string][]jwkset.JWK, unusable string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.address, nil)
	if err != nil {
		return nil, "", errors.New("the address is invalid")
	}
	response, err := k.client.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL, whose query may be a secret
	}
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("status %d", response.StatusCode)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxKeySet))
	if err != nil {
		return nil, "", err
	}
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if json.Unmarshal(body, &set, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil ||
		set.Keys == nil {
		return nil, "", errors.New("the answer is not a JSON Web Key Set")
	}
	keys = map[string][]jwkset.JWK{}
	for i, raw := range set.Keys {
		key, err := jwkset.NewJWKFromRawJSON([]byte(raw), jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
		switch {
		case err == nil:
			id := key.Marshal().KID
			keys[id] = append(keys[id], key)
		case unusable == "" && !errors.Is(err, jwkset.ErrUnsupportedKey) && !errors.Is(err, jwkset.ErrOptions):
			unusable = fmt.Sprintf("key %d: %v", i+1, err)
		}
	}
	return keys, unusable, nil
}
