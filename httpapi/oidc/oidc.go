// Package oidc signs people in by OpenID Connect: the authorization code flow with PKCE (RFC 7636), state and nonce,
// and sign-out at the provider (OpenID Connect RP-Initiated Logout 1.0).
package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/leadlog/leadlog/command/account"
)

// Options configure a Provider. Issuer, ClientID, AccountClaim and Roles are required.
type Options struct {
	Issuer       string
	ClientID     string
	ClientSecret string              // empty: a public client
	Scopes       []string            // beside openid
	AccountClaim string              // the claim that names the account
	Roles        map[string][]string // scopes by role; the role * is everyone's
	Now          func() time.Time
}

// Provider is the provider that people sign in at. Its configuration is fetched when it is first needed, and again
// after a failure or when it is old.
type Provider struct {
	options Options
	client  *http.Client

	mu        sync.Mutex
	found     *oidc.Provider
	foundAt   time.Time
	failure   error
	triedLast time.Time
	looking   chan struct{} // closed at the end of the look-up that is running; nil: none is
}

const (
	timeout      = 10 * time.Second // of a request to the provider
	refresh      = 15 * time.Minute // of the configuration: a provider may move its endpoints
	again        = 5 * time.Second  // after a failed look-up
	maxAnswer    = 1 << 20          // bytes of an answer, which the libraries read whole
	maxRedirects = 10               // of the configuration and the keys
	// pendingLife is the maximum duration of a sign-in.
	pendingLife = 10 * time.Minute
	// SessionLife is how long a session lasts.
	SessionLife = 8 * time.Hour
)

// New returns a provider. It makes no request.
func New(o Options) *Provider {
	return &Provider{options: o, client: &http.Client{
		Transport: bounded{http.DefaultTransport}, Timeout: timeout,
		CheckRedirect: func(_ *http.Request, via []*http.Request) error {
			// it would post the code and the secret elsewhere
			if via[0].Method == http.MethodPost || len(via) >= maxRedirects {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}}
}

// bounded is a transport whose responses end with an error after maxAnswer.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxAnswer)
	}
	return response, err
}

var (
	// ErrUnavailable means that the provider does not answer, or not as one.
	ErrUnavailable = errors.New("the sign-in provider cannot be reached")
	// ErrStale means that a sign-in was begun in another browser, has ended, or took too long.
	ErrStale = errors.New("this sign-in was begun in another browser, or has expired")
	// ErrRefused means that the provider, or the person there, refused the sign-in.
	ErrRefused = errors.New("the sign-in provider refused")
	// ErrNotConfirmed means that the provider's answer does not prove the person's identity.
	ErrNotConfirmed = errors.New("the sign-in provider did not confirm the sign-in")
)

// NotAllowedError says that a person is known to the provider, and has no access here. The text is for the person.
type NotAllowedError struct{ Reason string }

func (e *NotAllowedError) Error() string { return e.Reason }

// Pending is a sign-in that has begun. The browser keeps it, sealed.
type Pending struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"` // of PKCE
	Redirect string    `json:"redirect"` // address of the answer, which the provider compares exactly
	Next     string    `json:"next"`     // the path to redirect to after the sign-in
	Until    time.Time `json:"until"`
}

// Begin begins a sign-in. The person is to be sent to the returned address. The error is ErrUnavailable.
func (p *Provider) Begin(ctx context.Context, redirect, next string) (address string, pending Pending, err error) {
	config, _, err := p.config(ctx, redirect)
	if err != nil {
		return "", Pending{}, err
	}
	pending = Pending{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Redirect: redirect, Next: next,
		Until: p.options.Now().Add(pendingLife),
	}
	return config.AuthCodeURL(pending.State, oidc.Nonce(pending.Nonce),
		oauth2.S256ChallengeOption(pending.Verifier)), pending, nil
}

// Person is the person who has signed in.
type Person struct {
	Account string
	Subject string
	Scopes  []string
	Issued  time.Time
	Expires time.Time // of the session
	IDToken string    // which the provider can be shown when the person signs out
}

// Finish ends a sign-in with the provider's answer. The errors are ErrStale, ErrRefused, ErrNotConfirmed,
// ErrUnavailable and *NotAllowedError.
func (p *Provider) Finish(ctx context.Context, pending Pending, answer url.Values) (Person, error) {
	now := p.options.Now()
	if pending.State == "" || !now.Before(pending.Until) ||
		subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(pending.State)) != 1 {
		return Person{}, ErrStale
	}
	if answer.Get("error") != "" {
		return Person{}, ErrRefused
	}
	if issuer := answer.Get("iss"); issuer != "" && issuer != p.options.Issuer { // RFC 9207
		return Person{}, ErrNotConfirmed
	}
	config, found, err := p.config(ctx, pending.Redirect)
	if err != nil {
		return Person{}, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := config.Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(pending.Verifier))
	if err != nil {
		return Person{}, exchangeError(err)
	}
	raw, _ := token.Extra("id_token").(string)
	idToken, err := found.Verifier(&oidc.Config{ClientID: p.options.ClientID, Now: p.options.Now}).Verify(ctx, raw)
	if err != nil {
		why := ErrNotConfirmed
		if strings.Contains(err.Error(), "fetching keys") { // the library has no type for it
			why = ErrUnavailable
		}
		return Person{}, fmt.Errorf("%w: %s", why, start(err.Error()))
	}
	if subtle.ConstantTimeCompare([]byte(idToken.Nonce), []byte(pending.Nonce)) != 1 {
		return Person{}, ErrNotConfirmed
	}
	var claims map[string]any
	if err := idToken.Claims(&claims); err != nil {
		return Person{}, ErrNotConfirmed
	}
	person, err := p.person(idToken, claims, now)
	if err != nil {
		return Person{}, err
	}
	person.IDToken = raw
	return person, nil
}

// exchangeError returns why a code was not exchanged for tokens. The text of err may have the code.
func exchangeError(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%w: its token endpoint: %w", ErrUnavailable, failed.Err)
	}
	var answered *oauth2.RetrieveError
	if !errors.As(err, &answered) {
		return fmt.Errorf("%w: its token endpoint answers without tokens", ErrUnavailable)
	}
	status := answered.Response.StatusCode
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
		return fmt.Errorf("%w: its token endpoint answers %d", ErrUnavailable, status)
	}
	return fmt.Errorf("%w: its token endpoint answers %d", ErrNotConfirmed, status)
}

func (p *Provider) person(idToken *oidc.IDToken, claims map[string]any, now time.Time) (Person, error) {
	of, _ := claims[p.options.AccountClaim].(string)
	roles := rolesOf(claims)
	scopes := p.scopes(roles)
	switch {
	case !account.ValidSubject(idToken.Subject):
		return Person{}, ErrNotConfirmed
	case of == "":
		return Person{}, &NotAllowedError{
			"Your user at the sign-in provider belongs to no account here: the claim " + p.options.AccountClaim +
				" is missing.",
		}
	case !account.ValidID(of):
		return Person{}, &NotAllowedError{
			"The claim " + p.options.AccountClaim + " of your user at the sign-in provider is not the id of " +
				"an account.",
		}
	case len(scopes) == 0:
		return Person{}, &NotAllowedError{
			"Your user at the sign-in provider has none of the roles that may use this console.",
		}
	}
	issued := idToken.IssuedAt
	if issued.After(now) {
		issued = now
	}
	return Person{
		Account: of, Subject: idToken.Subject, Scopes: scopes, Issued: issued, Expires: now.Add(SessionLife),
	}, nil
}

// rolesOf returns the roles of a person: those of the claims roles and groups, which are lists or texts with spaces,
// and those that Keycloak puts into realm_access.
func rolesOf(claims map[string]any) (roles []string) {
	realm, _ := claims["realm_access"].(map[string]any)
	for _, claim := range []any{claims["roles"], claims["groups"], realm["roles"]} {
		switch claim := claim.(type) {
		case string:
			roles = append(roles, strings.Fields(claim)...)
		case []any:
			for _, role := range claim {
				if name, ok := role.(string); ok {
					roles = append(roles, name)
				}
			}
		}
	}
	return roles
}

func (p *Provider) scopes(roles []string) (scopes []string) {
	for _, role := range append(roles, "*") {
		scopes = append(scopes, p.options.Roles[role]...)
	}
	return slices.Compact(slices.Sorted(slices.Values(scopes)))
}

// SignOut returns the address at which the person signs out at the provider too, and from which the provider leads to
// another; empty if the provider has none, or is not reached. Some providers require the ID token that the person
// signed in with, or ask the person without it.
func (p *Provider) SignOut(ctx context.Context, after, idToken string) string {
	found, err := p.provider(ctx)
	if err != nil {
		return ""
	}
	var offers struct {
		EndSession string `json:"end_session_endpoint"`
	}
	if found.Claims(&offers) != nil {
		return ""
	}
	address, err := url.Parse(offers.EndSession)
	if err != nil || address.Scheme != "https" && address.Scheme != "http" {
		return ""
	}
	query := address.Query()
	query.Set("client_id", p.options.ClientID)
	query.Set("post_logout_redirect_uri", after)
	if idToken != "" {
		query.Set("id_token_hint", idToken)
	}
	address.RawQuery = query.Encode()
	return address.String()
}

// start returns the first 200 bytes of an error's text, which may have the whole answer of a server.
func start(text string) string { return strings.ToValidUTF8(text[:min(len(text), 200)], "") }

func (p *Provider) config(ctx context.Context, redirect string) (*oauth2.Config, *oidc.Provider, error) {
	found, err := p.provider(ctx)
	if err != nil {
		return nil, nil, err
	}
	endpoint := found.Endpoint()
	endpoint.AuthStyle = p.authStyle(found)
	return &oauth2.Config{
		ClientID: p.options.ClientID, ClientSecret: p.options.ClientSecret, Endpoint: endpoint, RedirectURL: redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, p.options.Scopes...),
	}, found, nil
}

// authStyle returns how the client authenticates. Without it, oauth2 tries both ways, and some providers invalidate a
// code at the first failure. The default is that of OpenID Connect Discovery 1.0.
func (p *Provider) authStyle(found *oidc.Provider) oauth2.AuthStyle {
	var offers struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if p.options.ClientSecret == "" ||
		found.Claims(&offers) == nil && slices.Contains(offers.Methods, "client_secret_post") &&
			!slices.Contains(offers.Methods, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// provider returns the provider that was found last. Without one, it waits for a look-up. An old configuration is
// renewed in the background.
func (p *Provider) provider(ctx context.Context) (*oidc.Provider, error) {
	found, ended := p.look(ctx)
	if found != nil {
		return found, nil
	}
	select {
	case <-ended:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: its configuration was not fetched in time", ErrUnavailable)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil {
		return nil, p.failure
	}
	return p.found, nil
}

// look returns the provider that was found last, or nil. It begins a look-up, unless that is new, or one is running or
// has just failed. The channel is closed when none is running. A look-up continues when its caller leaves, because
// others wait for it.
func (p *Provider) look(ctx context.Context) (found *oidc.Provider, ended <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.looking != nil {
		return p.found, p.looking
	}
	looking, now := make(chan struct{}), p.options.Now()
	fresh := p.found != nil && now.Sub(p.foundAt) < refresh
	if fresh || p.failure != nil && now.Sub(p.triedLast) < again {
		close(looking)
		return p.found, looking
	}
	p.looking = looking
	go func() {
		defer close(looking)
		found, err := p.lookUp(context.WithoutCancel(ctx))
		p.mu.Lock()
		defer p.mu.Unlock()
		p.looking, p.triedLast, p.failure = nil, p.options.Now(), nil
		if err != nil {
			p.failure = fmt.Errorf("%w: %s", ErrUnavailable, start(err.Error()))
		} else {
			p.found, p.foundAt = found, p.triedLast
		}
	}()
	return p.found, looking
}

// lookUp fetches the configuration. The library accepts one without the endpoints that a sign-in needs.
func (p *Provider) lookUp(ctx context.Context) (*oidc.Provider, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.options.Issuer)
	if err != nil {
		return nil, err
	}
	var offers map[string]any
	if err := found.Claims(&offers); err != nil {
		return nil, err
	}
	for _, name := range []string{"authorization_endpoint", "token_endpoint", "jwks_uri"} {
		address, _ := offers[name].(string)
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return nil, fmt.Errorf("its configuration has no %s", name)
		}
	}
	return found, nil
}
