// Package oidctest has an OpenID Connect provider for tests.
package oidctest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// Issuer is a provider with configurable answers.
type Issuer struct {
	*httptest.Server
	Claims func(jwt.MapClaims)        // changes the claims of the next ID token
	Sign   func(jwt.MapClaims) string // signs the ID token
	Down   bool                       // the configuration is not served
	Held   chan struct{}              // the configuration is served once this is closed
	Lacks  string                     // a member that the configuration does not have
	Moved  string                     // what the authorization endpoint's path ends with
	Fails  int                        // the status of the token endpoint; 0: it works
	MoveTo string                     // the address that the token endpoint redirects to with Fails
	Spaces int                        // bytes of white space after the configuration and the keys
	// AuthMethods are the ways of client authentication that are offered. Nil: the default.
	AuthMethods []string
	// Requests are the requests to the token endpoint, with the secret of the client: "basic s3cret", "post s3cret" or
	// "none".
	Requests []string

	codes map[string]string // nonce and challenge by code; each code works once
}

// New starts a provider with the client crm and the user ann, who has the account acme and the role sales.
func New(t *testing.T) *Issuer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	i := &Issuer{codes: map[string]string{}, Claims: func(jwt.MapClaims) {}}
	i.Sign = func(claims jwt.MapClaims) string {
		token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
		token.Header["kid"] = "k"
		signed, err := token.SignedString(key)
		require.NoError(t, err)
		return signed
	}
	answer := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	padded := func(w http.ResponseWriter, body any) {
		answer(w, body)
		_, _ = w.Write(bytes.Repeat([]byte(" "), i.Spaces))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		if i.Held != nil {
			select {
			case <-i.Held:
			case <-r.Context().Done():
			}
		}
		if i.Down {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write(bytes.Repeat([]byte("x"), 10_000))
			return
		}
		configuration := map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize" + i.Moved,
			"token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys",
			"end_session_endpoint":                  i.URL + "/end?from=here",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}
		if i.AuthMethods != nil {
			configuration["token_endpoint_auth_methods_supported"] = i.AuthMethods
		}
		delete(configuration, i.Lacks)
		padded(w, configuration)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		padded(w, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "kid": "k", "alg": "RS256", "use": "sig",
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		i.Requests = append(i.Requests, clientAuth(r))
		if i.Fails != 0 {
			if i.MoveTo != "" {
				w.Header().Set("Location", i.MoveTo)
			}
			w.WriteHeader(i.Fails)
			return
		}
		of, known := i.codes[r.PostFormValue("code")]
		delete(i.codes, r.PostFormValue("code"))
		verifier := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		nonce, challenge, _ := strings.Cut(of, " ")
		if !known || challenge != base64.RawURLEncoding.EncodeToString(verifier[:]) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			return
		}
		claims := jwt.MapClaims{
			"iss": i.URL, "aud": "crm", "sub": "ann", "nonce": nonce, "iat": time.Now().Unix(),
			"exp": time.Now().Add(time.Minute).Unix(), "account_id": "acme", "roles": []string{"sales"},
		}
		i.Claims(claims)
		answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": i.Sign(claims)})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func clientAuth(r *http.Request) string {
	if _, secret, ok := r.BasicAuth(); ok {
		return "basic " + secret
	}
	if secret := r.PostFormValue("client_secret"); secret != "" {
		return "post " + secret
	}
	return "none"
}

// Approve signs in at an address of the provider. It returns the parameters of the callback and the redirect URI.
func (i *Issuer) Approve(t *testing.T, address string) (answer url.Values, redirectURI string) {
	t.Helper()
	request, err := url.Parse(address)
	require.NoError(t, err)
	require.Equal(t, i.URL+"/authorize", request.Scheme+"://"+request.Host+request.Path)
	q := request.Query()
	require.Equal(t, "code", q.Get("response_type"))
	require.Equal(t, "S256", q.Get("code_challenge_method"))
	require.Equal(t, "openid profile", q.Get("scope"))
	code := rand.Text()
	i.codes[code] = q.Get("nonce") + " " + q.Get("code_challenge")
	return url.Values{"code": {code}, "state": {q.Get("state")}}, q.Get("redirect_uri")
}
