package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"
)

const (
	keySetRefresh = 15 * time.Minute
	keySetTimeout = 5 * time.Second
	maxKeySet     = 1 << 20 // bytes

	// A key id that is not in the set may be a new one: the set is fetched again, but no request waits longer than
	// this for it, and callers with invented ids do not make it more often than this.
	unknownKeyWait  = 2 * time.Second
	unknownKeyEvery = 10 * time.Second
)

// asymmetric are the algorithms whose keys a JWKS may hold. None takes a public key for a secret.
func asymmetric() []string {
	return []string{
		"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
	}
}

// NewJWKS returns a verifier of JWTs that are signed with the keys published at a URL. It fetches the keys until ctx ends. It is
// not an error if the server is down: until it answers, the keys fetched before are used. While there are none, Verify returns
// errNoKeys. A JWT must name its key, and a key is used only as its own use and algorithm allow.
func NewJWKS(ctx context.Context, address string, o VerifierOptions, log *slog.Logger) (*Verifier, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
		return nil, errors.New("the JWKS address is not an http or https URL")
	}
	complain := func(ctx context.Context, err error) {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // which does not quote the address: its query may be a secret
		}
		log.WarnContext(ctx, "JWKS not fetched", slog.String("host", u.Host), slog.Any("error", err))
	}
	remote, err := jwkset.NewStorageFromHTTP(address, jwkset.HTTPClientStorageOptions{
		Ctx: ctx, Client: &http.Client{Transport: bounded{http.DefaultTransport}, Timeout: keySetTimeout},
		HTTPTimeout: keySetTimeout, RefreshInterval: keySetRefresh,
		NoErrorReturnFirstHTTPReq: true, RefreshErrorHandler: complain,
	})
	if err != nil {
		return nil, fmt.Errorf("JWKS: %w", err)
	}
	keys, err := jwkset.NewHTTPClient(jwkset.HTTPClientOptions{
		HTTPURLs:         map[string]jwkset.Storage{address: remote},
		RateLimitWaitMax: unknownKeyWait, RefreshUnknownKID: rate.NewLimiter(rate.Every(unknownKeyEvery), 1),
	})
	if err != nil {
		return nil, fmt.Errorf("JWKS: %w", err)
	}
	finder, err := keyfunc.New(keyfunc.Options{
		Ctx: ctx, Storage: keys, UseWhitelist: []jwkset.USE{jwkset.UseSig, ""},
	})
	if err != nil {
		return nil, fmt.Errorf("JWKS: %w", err)
	}
	return newVerifier(o, asymmetric(), func(ctx context.Context) jwt.Keyfunc {
		find := finder.KeyfuncCtx(ctx)
		return func(t *jwt.Token) (any, error) {
			// Without an id any key of the set would be tried, whatever the set says of its use and algorithm.
			if id, _ := t.Header[jwkset.HeaderKID].(string); id == "" {
				return nil, errNoKeyID
			}
			key, err := find(t)
			if known, _ := remote.KeyReadAll(ctx); len(known) == 0 {
				return nil, errNoKeys
			}
			return key, err
		}
	}), nil
}

// bounded is a transport whose answers end after maxKeySet.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxKeySet)
	}
	return response, err
}
