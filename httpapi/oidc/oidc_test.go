package oidc_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/oidc"
	"github.com/leadlog/leadlog/httpapi/oidc/oidctest"
)

func provider(i *oidctest.Issuer, now func() time.Time) *oidc.Provider {
	return oidc.New(oidc.Options{
		Issuer: i.URL, ClientID: "crm", Scopes: []string{"profile"}, AccountClaim: "account_id", Now: now,
		Roles: map[string][]string{"sales": {"leads:read", "leads:write"}, "audit": {"audit:read", "leads:read"}},
	})
}

// approve signs in at the provider and returns the parameters of the callback.
func approve(t *testing.T, i *oidctest.Issuer, address string) url.Values {
	t.Helper()
	answer, to := i.Approve(t, address)
	require.Equal(t, callback, to)
	return answer
}

const callback = "https://crm.example/console/sign-in/callback"

func TestProvider_SignIn(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	p := provider(i, time.Now)
	address, pending, err := p.Begin(t.Context(), callback, "/console/leads")
	require.NoError(t, err)
	require.Equal(t, "/console/leads", pending.Next)
	i.Claims = func(c jwt.MapClaims) { c["groups"] = "audit other" }
	person, err := p.Finish(t.Context(), pending, approve(t, i, address))
	require.NoError(t, err)
	require.Equal(t, "acme", person.Account)
	require.Equal(t, "ann", person.Subject)
	require.Equal(t, []string{"audit:read", "leads:read", "leads:write"}, person.Scopes)
	require.WithinDuration(t, time.Now().Add(oidc.SessionLife), person.Expires, time.Minute)
	for _, hint := range []string{person.IDToken, ""} {
		out, err := url.Parse(p.SignOut(t.Context(), "https://crm.example/console/sign-in", hint))
		require.NoError(t, err)
		require.Equal(t, "/end", out.Path)
		want := url.Values{
			"from": {"here"}, "client_id": {"crm"}, "post_logout_redirect_uri": {"https://crm.example/console/sign-in"},
		}
		if hint != "" {
			want.Set("id_token_hint", hint)
		}
		require.Equal(t, want, out.Query())
	}
	_, _, err = jwt.NewParser().ParseUnverified(person.IDToken, jwt.MapClaims{})
	require.NoError(t, err)
}

func TestProvider_Refusals(t *testing.T) {
	t.Parallel()
	notAllowed := func(text string) func(*testing.T, error) {
		return func(t *testing.T, err error) {
			var why *oidc.NotAllowedError
			require.ErrorAs(t, err, &why)
			require.Contains(t, why.Reason, text)
		}
	}
	is := func(want error) func(*testing.T, error) {
		return func(t *testing.T, err error) { require.ErrorIs(t, err, want) }
	}
	with := func(name string, value any) func(*oidctest.Issuer, *oidc.Pending, url.Values) {
		return func(i *oidctest.Issuer, _ *oidc.Pending, _ url.Values) {
			i.Claims = func(c jwt.MapClaims) { c[name] = value }
		}
	}
	for name, c := range map[string]struct {
		change func(*oidctest.Issuer, *oidc.Pending, url.Values)
		want   func(*testing.T, error)
	}{
		"another state": {
			func(_ *oidctest.Issuer, _ *oidc.Pending, a url.Values) { a.Set("state", "x") }, is(oidc.ErrStale),
		},
		"no state": {func(_ *oidctest.Issuer, p *oidc.Pending, a url.Values) {
			p.State = ""
			a.Del("state")
		}, is(oidc.ErrStale)},
		"too late": {
			func(_ *oidctest.Issuer, p *oidc.Pending, _ url.Values) { p.Until = time.Now() }, is(oidc.ErrStale),
		},
		"denied": {func(_ *oidctest.Issuer, _ *oidc.Pending, a url.Values) {
			a.Set("error", "access_denied")
			a.Del("code")
		}, is(oidc.ErrRefused)},
		"another issuer": {func(_ *oidctest.Issuer, _ *oidc.Pending, a url.Values) {
			a.Set("iss", "https://evil.example")
		}, is(oidc.ErrNotConfirmed)},
		"unknown code": {
			func(_ *oidctest.Issuer, _ *oidc.Pending, a url.Values) { a.Set("code", "x") }, is(oidc.ErrNotConfirmed),
		},
		"another verifier": {func(_ *oidctest.Issuer, p *oidc.Pending, _ url.Values) {
			p.Verifier = rand.Text() + rand.Text()
		}, is(oidc.ErrNotConfirmed)},
		"another nonce": {
			func(_ *oidctest.Issuer, p *oidc.Pending, _ url.Values) { p.Nonce = "x" }, is(oidc.ErrNotConfirmed),
		},
		"another audience": {with("aud", "shop"), is(oidc.ErrNotConfirmed)},
		"expired":          {with("exp", time.Now().Add(-time.Hour).Unix()), is(oidc.ErrNotConfirmed)},
		"foreign issuer":   {with("iss", "https://evil.example"), is(oidc.ErrNotConfirmed)},
		"no subject":       {with("sub", ""), is(oidc.ErrNotConfirmed)},
		"subject with NUL": {with("sub", "a\x00b"), is(oidc.ErrNotConfirmed)},
		"long subject":     {with("sub", strings.Repeat("é", 256)), is(oidc.ErrNotConfirmed)},
		"unsigned": {func(i *oidctest.Issuer, _ *oidc.Pending, _ url.Values) {
			i.Sign = func(c jwt.MapClaims) string {
				text, _ := jwt.NewWithClaims(jwt.SigningMethodNone, c).SignedString(jwt.UnsafeAllowNoneSignatureType)
				return text
			}
		}, is(oidc.ErrNotConfirmed)},
		"another key": {func(i *oidctest.Issuer, _ *oidc.Pending, _ url.Values) {
			other, _ := rsa.GenerateKey(rand.Reader, 2048)
			i.Sign = func(c jwt.MapClaims) string {
				text, _ := jwt.NewWithClaims(jwt.SigningMethodRS256, c).SignedString(other)
				return text
			}
		}, is(oidc.ErrNotConfirmed)},
		"no token": {func(i *oidctest.Issuer, _ *oidc.Pending, _ url.Values) {
			i.Sign = func(jwt.MapClaims) string { return "" }
		}, is(oidc.ErrNotConfirmed)},
		"no account":      {with("account_id", nil), notAllowed("account_id is missing")},
		"invalid account": {with("account_id", "a/b c"), notAllowed("is not the id of an account")},
		"no known role":   {with("roles", []string{"guest"}), notAllowed("none of the roles")},
		"roles of a type": {with("roles", 7), notAllowed("none of the roles")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := oidctest.New(t)
			p := provider(i, time.Now)
			address, pending, err := p.Begin(t.Context(), callback, "")
			require.NoError(t, err)
			answer := approve(t, i, address)
			c.change(i, &pending, answer)
			_, err = p.Finish(t.Context(), pending, answer)
			require.Error(t, err)
			c.want(t, err)
		})
	}
}

func TestProvider_CodeWorksOnce(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	p := provider(i, time.Now)
	address, pending, err := p.Begin(t.Context(), callback, "")
	require.NoError(t, err)
	answer := approve(t, i, address)
	_, err = p.Finish(t.Context(), pending, answer)
	require.NoError(t, err)
	_, err = p.Finish(t.Context(), pending, answer)
	require.ErrorIs(t, err, oidc.ErrNotConfirmed)
}

// The configuration of a provider that is down at the start is fetched later.
func TestProvider_RetriesConfiguration(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	now := time.Now()
	p := provider(i, func() time.Time { return now })
	i.Down = true
	_, _, err := p.Begin(t.Context(), callback, "")
	require.ErrorIs(t, err, oidc.ErrUnavailable)
	require.ErrorContains(t, err, "502 Bad Gateway: x")
	require.Less(t, len(err.Error()), 300)
	require.Empty(t, p.SignOut(t.Context(), callback, ""))
	i.Down = false
	_, _, err = p.Begin(t.Context(), callback, "")
	require.ErrorIs(t, err, oidc.ErrUnavailable, "no second fetch right after a failure")
	now = now.Add(time.Minute)
	_, _, err = p.Begin(t.Context(), callback, "")
	require.NoError(t, err)
}

// A provider that moved an endpoint was used at the old one until the service was restarted.
func TestProvider_FollowsConfiguration(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	begun, later := time.Now(), atomic.Int64{}
	p := provider(i, func() time.Time { return begun.Add(time.Duration(later.Load())) })
	begin := func() string {
		address, _, err := p.Begin(t.Context(), callback, "")
		require.NoError(t, err)
		return address
	}
	require.Contains(t, begin(), i.URL+"/authorize?")
	i.Moved, i.Held = "/v2", make(chan struct{})
	later.Add(int64(time.Hour))
	require.Contains(t, begin(), i.URL+"/authorize?", "nothing waits for a new configuration")
	require.NotEmpty(t, p.SignOut(t.Context(), callback, ""))
	close(i.Held)
	require.Eventually(t, func() bool {
		return strings.Contains(begin(), i.URL+"/authorize/v2?")
	}, time.Minute, time.Millisecond)
	i.Down = true
	later.Add(int64(time.Hour))
	require.Contains(t, begin(), i.URL+"/authorize/v2?", "the last configuration is used while the provider is down")
}

// A configuration without an endpoint was kept, and every sign-in failed.
func TestProvider_RefusesIncompleteConfiguration(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	now := time.Now()
	p := provider(i, func() time.Time { return now })
	for _, i.Lacks = range []string{"authorization_endpoint", "token_endpoint", "jwks_uri"} {
		_, _, err := p.Begin(t.Context(), callback, "")
		require.ErrorIs(t, err, oidc.ErrUnavailable)
		require.ErrorContains(t, err, "has no "+i.Lacks)
		now = now.Add(time.Minute)
	}
	i.Lacks = ""
	_, _, err := p.Begin(t.Context(), callback, "")
	require.NoError(t, err)
}

// A look-up that ended with its request made sign-ins fail for everyone until the next one.
func TestProvider_CallerLeavesLookup(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	p := provider(i, time.Now)
	left, leave := context.WithCancel(t.Context())
	leave()
	_, _, _ = p.Begin(left, callback, "")
	_, _, err := p.Begin(t.Context(), callback, "")
	require.NoError(t, err)
}

// The libraries read answers whole, so an endless one would take all memory.
func TestProvider_RefusesLargeAnswers(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	i.Spaces = 1 << 20
	_, _, err := provider(i, time.Now).Begin(t.Context(), callback, "/console")
	require.ErrorIs(t, err, oidc.ErrUnavailable, "the configuration")
	i.Spaces = 0
	p := provider(i, time.Now)
	address, pending, err := p.Begin(t.Context(), callback, "/console")
	require.NoError(t, err)
	i.Spaces = 1 << 20
	_, err = p.Finish(t.Context(), pending, approve(t, i, address))
	require.ErrorIs(t, err, oidc.ErrUnavailable, "the keys")
	require.ErrorContains(t, err, "too large", "the log says why")
	i.Spaces = 1 << 19
	address, pending, err = p.Begin(t.Context(), callback, "/console")
	require.NoError(t, err)
	_, err = p.Finish(t.Context(), pending, approve(t, i, address))
	require.NoError(t, err)
}

// A failing provider has not refused the sign-in.
func TestProvider_TokenEndpointFails(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	p := provider(i, time.Now)
	for status, want := range map[int]error{
		http.StatusInternalServerError: oidc.ErrUnavailable, http.StatusServiceUnavailable: oidc.ErrUnavailable,
		http.StatusTooManyRequests: oidc.ErrUnavailable,
		http.StatusBadRequest:      oidc.ErrNotConfirmed, http.StatusUnauthorized: oidc.ErrNotConfirmed,
	} {
		i.Fails = status
		address, pending, err := p.Begin(t.Context(), callback, "")
		require.NoError(t, err)
		_, err = p.Finish(t.Context(), pending, approve(t, i, address))
		require.ErrorIs(t, err, want, "%d", status)
	}
	address, pending, err := p.Begin(t.Context(), callback, "")
	require.NoError(t, err)
	answer := approve(t, i, address)
	i.Close()
	_, err = p.Finish(t.Context(), pending, answer)
	require.ErrorIs(t, err, oidc.ErrUnavailable)
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), answer.Get("code"))
}

// A redirect would post the code and the secret elsewhere.
func TestProvider_TokenEndpointRedirects(t *testing.T) {
	t.Parallel()
	i, elsewhere := oidctest.New(t), oidctest.New(t)
	i.Fails, i.MoveTo = http.StatusTemporaryRedirect, elsewhere.URL+"/token"
	p := provider(i, time.Now)
	address, pending, err := p.Begin(t.Context(), callback, "/console")
	require.NoError(t, err)
	_, err = p.Finish(t.Context(), pending, approve(t, i, address))
	require.ErrorIs(t, err, oidc.ErrNotConfirmed)
	require.Empty(t, elsewhere.Requests)
}

// The client authenticates in one way, with one request: a provider may invalidate a code at the first failure.
func TestProvider_ClientAuthentication(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		secret  string
		methods []string
		want    string
	}{
		"default":       {"s3cret", nil, "basic s3cret"},
		"both":          {"s3cret", []string{"client_secret_post", "client_secret_basic"}, "basic s3cret"},
		"post only":     {"s3cret", []string{"private_key_jwt", "client_secret_post"}, "post s3cret"},
		"public client": {"", []string{"client_secret_basic", "none"}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := oidctest.New(t)
			i.AuthMethods = c.methods
			p := oidc.New(oidc.Options{
				Issuer: i.URL, ClientID: "crm", ClientSecret: c.secret, Scopes: []string{"profile"},
				AccountClaim: "account_id", Now: time.Now,
				Roles: map[string][]string{"sales": {"leads:read"}},
			})
			address, pending, err := p.Begin(t.Context(), callback, "")
			require.NoError(t, err)
			answer := approve(t, i, address)
			_, err = p.Finish(t.Context(), pending, url.Values{"state": {pending.State}, "code": {"unknown"}})
			require.ErrorIs(t, err, oidc.ErrNotConfirmed)
			_, err = p.Finish(t.Context(), pending, answer)
			require.NoError(t, err)
			require.Equal(t, []string{c.want, c.want}, i.Requests)
		})
	}
}

func TestProvider_WildcardRole(t *testing.T) {
	t.Parallel()
	i := oidctest.New(t)
	p := oidc.New(oidc.Options{
		Issuer: i.URL, ClientID: "crm", Scopes: []string{"profile"}, AccountClaim: "account_id", Now: time.Now,
		Roles: map[string][]string{"*": {"leads:read"}, "boss": {"tokens:read"}},
	})
	address, pending, err := p.Begin(t.Context(), callback, "")
	require.NoError(t, err)
	i.Claims = func(c jwt.MapClaims) {
		delete(c, "roles")
		c["realm_access"] = map[string]any{"roles": []string{"boss"}}
	}
	person, err := p.Finish(t.Context(), pending, approve(t, i, address))
	require.NoError(t, err)
	require.Equal(t, []string{"leads:read", "tokens:read"}, person.Scopes)
}
