package httpapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/oidc"
	"github.com/leadlog/leadlog/httpapi/oidc/oidctest"
)

func TestConsole_SignInAtProvider(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t)
	b := browse(t, func(o *httpapi.Options) {
		o.ConsoleProvider = oidc.New(oidc.Options{
			Issuer: at.URL, ClientID: "crm", Scopes: []string{"profile"}, AccountClaim: "account_id", Now: time.Now,
			Roles: map[string][]string{"sales": {"leads:read"}},
		})
	})
	at.Claims = func(c jwt.MapClaims) { c["account_id"] = b.account }
	require.Contains(t, b.get("/console/sign-in?next=/console/leads").body,
		"/console/sign-in/provider?next=%2fconsole%2fleads")
	begin := func(b *browser) (answer url.Values, callback string) {
		r := b.get("/console/sign-in/provider?next=/console/leads")
		require.Equal(t, http.StatusSeeOther, r.status)
		cookie := r.header.Get("Set-Cookie")
		require.Contains(t, cookie, "HttpOnly")
		require.Contains(t, cookie, "SameSite=Lax")
		answer, to := at.Approve(t, r.goTo)
		require.Equal(t, b.server.URL+"/console/sign-in/callback", to)
		return answer, "/console/sign-in/callback?"
	}
	answer, callback := begin(b)
	other := b.service.browser()
	require.Contains(t, other.get(callback+answer.Encode()).body, "was started in another browser")
	in := b.get(callback + answer.Encode())
	require.Equal(t, http.StatusOK, in.status, in.body)
	require.Contains(t, in.body, `content="0;url=/console/leads"`)
	leads := b.get("/console/leads")
	require.Equal(t, http.StatusOK, leads.status)
	require.Contains(t, leads.body, "<strong>"+b.account+"</strong>")
	require.Equal(t, http.StatusForbidden, b.get("/console/tokens").status, "the role lacks the scope")
	require.Equal(t, http.StatusUnauthorized, b.get(callback+answer.Encode()).status, "the sign-in state works once")

	out := b.post("/console/sign-out")
	require.Equal(t, http.StatusOK, out.status)

	// Of sign-ins in two tabs, the second one is pending. The answer to the first one is refused, and leaves it
	// pending.
	first, _ := begin(b)
	second, _ := begin(b)
	require.Equal(t, http.StatusUnauthorized, b.get(callback+first.Encode()).status)
	require.Equal(t, http.StatusOK, b.get(callback+second.Encode()).status)
	out = b.post("/console/sign-out")
	require.Contains(t, out.body, at.URL+"/end?client_id=crm")
	require.Contains(t, out.body, "id_token_hint=ey")
	require.Equal(t, http.StatusSeeOther, b.get("/console/leads").status)

	// Browsers drop large cookies. The sign-out then has no ID token.
	at.Claims = func(c jwt.MapClaims) {
		c["account_id"] = b.account
		c["groups"] = strings.Repeat("a-group-of-many ", 300)
	}
	answer, callback = begin(b)
	require.Equal(t, http.StatusOK, b.get(callback+answer.Encode()).status)
	out = b.post("/console/sign-out")
	require.Contains(t, out.body, at.URL+"/end?client_id=crm")
	require.NotContains(t, out.body, "id_token_hint")

	// They drop a pending sign-in that is too large too. A page with a very long address is then not opened.
	at.Claims = func(c jwt.MapClaims) { c["account_id"] = b.account }
	r := b.get("/console/sign-in/provider?next=" + url.QueryEscape("/console/leads?q="+strings.Repeat("x", 5000)))
	require.Less(t, len(r.header.Get("Set-Cookie")), 4096)
	answer, _ = at.Approve(t, r.goTo)
	require.Contains(t, b.get(callback+answer.Encode()).body, `content="0;url=/console"`)
	require.Equal(t, http.StatusOK, b.post("/console/sign-out").status)

	for name, c := range map[string]struct {
		claims func(jwt.MapClaims)
		status int
		text   string
	}{
		"role": {func(c jwt.MapClaims) {
			c["account_id"] = b.account
			c["roles"] = nil
		}, http.StatusForbidden, "none of the roles"},
		"account": {func(c jwt.MapClaims) {
			c["account_id"] = "nowhere"
		}, http.StatusForbidden, "the account nowhere, which does not exist here"},
		"nonce": {func(c jwt.MapClaims) { c["nonce"] = "x" }, http.StatusUnauthorized, "did not confirm"},
	} {
		at.Claims = c.claims
		answer, callback := begin(b)
		refused := b.get(callback + answer.Encode())
		require.Equal(t, c.status, refused.status, name)
		require.Contains(t, refused.body, c.text, name)
		require.Equal(t, http.StatusSeeOther, b.get("/console/leads").status, "%s: no session is created", name)
	}
	require.Contains(t, b.log.String(), `"error":"the sign-in provider did not confirm the sign-in"`)
	at.Fails = http.StatusServiceUnavailable
	answer, callback = begin(b)
	require.Equal(t, http.StatusServiceUnavailable, b.get(callback+answer.Encode()).status)
	require.Eventually(t, func() bool {
		return strings.Contains(b.log.String(),
			`"error":"the sign-in provider cannot be reached: its token endpoint answers 503"`)
	}, soon, pause)
	at.Fails = 0
	require.NotContains(t, b.log.String(), answer.Get("code"))
	require.NotContains(t, b.log.String(), answer.Get("state"))

	// The cookie of a pending sign-in is not a session. Sign-in by JWT is still possible.
	begin(b)
	pending := ""
	address, err := url.Parse(b.server.URL + "/console/sign-in/callback")
	require.NoError(t, err)
	for _, cookie := range b.client.Jar.Cookies(address) {
		if strings.Contains(cookie.Name, "signin") {
			pending = cookie.Value
		}
	}
	require.NotEmpty(t, pending)
	b.client.Jar.SetCookies(address, []*http.Cookie{{Name: "leadlog_console", Value: pending, Path: "/console"}})
	require.Equal(t, http.StatusSeeOther, b.get("/console/leads").status)
	b.signIn(b.jwt)
	require.Equal(t, http.StatusSeeOther, b.post("/console/sign-out").status,
		"after sign-in by JWT, sign-out does not redirect to the provider")
}

// The ID token is deleted when its session ends in any way.
func TestConsole_ForgetsIDToken(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t)
	b := browse(t, func(o *httpapi.Options) {
		o.ConsoleProvider = oidc.New(oidc.Options{
			Issuer: at.URL, ClientID: "crm", Scopes: []string{"profile"}, AccountClaim: "account_id", Now: time.Now,
			Roles: map[string][]string{"sales": {"tokens:read"}},
		})
	})
	at.Claims = func(c jwt.MapClaims) {
		c["account_id"], c["iat"] = b.account, time.Now().Add(-time.Hour).Unix()
	}
	out, err := url.Parse(b.server.URL + "/console/sign-out")
	require.NoError(t, err)
	kept := func() bool {
		return slices.ContainsFunc(b.client.Jar.Cookies(out), func(c *http.Cookie) bool {
			return c.Name == "leadlog_idtoken"
		})
	}
	for name, end := range map[string]func(){
		"sign-out":       func() { b.post("/console/sign-out") },
		"sign-in by JWT": func() { b.signIn(b.jwt) },
		"revocation": func() {
			b.revoke(time.Now().Add(-time.Minute).Truncate(time.Second))
			require.Equal(t, http.StatusUnauthorized, b.post("/console/tokens").status)
			b.revoke(time.Unix(1, 0))
		},
		"sign-out without a session": func() {
			b.client.Jar.SetCookies(out, []*http.Cookie{{Name: "leadlog_console", Path: "/console", MaxAge: -1}})
			b.post("/console/sign-out")
		},
	} {
		answer, _ := at.Approve(t, b.get("/console/sign-in/provider").goTo)
		require.Equal(t, http.StatusOK, b.get("/console/sign-in/callback?"+answer.Encode()).status, name)
		require.True(t, kept(), name)
		end()
		require.False(t, kept(), name)
	}
}

// An address that has used up its guesses causes no requests to the provider.
func TestConsole_LimitsCodeGuesses(t *testing.T) {
	t.Parallel()
	at := oidctest.New(t)
	start := time.Now()
	var elapsed atomic.Int64 // the quota is refilled only by it
	b := browse(t, func(o *httpapi.Options) {
		o.Now = func() time.Time { return start.Add(time.Duration(elapsed.Load())) }
		o.ConsoleProvider = oidc.New(oidc.Options{
			Issuer: at.URL, ClientID: "crm", Scopes: []string{"profile"}, AccountClaim: "account_id", Now: time.Now,
			Roles: map[string][]string{"sales": {"tokens:read"}},
		})
	})
	at.Claims = func(c jwt.MapClaims) { c["account_id"] = b.account }
	answered := map[int]int{}
	var answer url.Values
	for range 130 {
		answer, _ = at.Approve(t, b.get("/console/sign-in/provider").goTo)
		answered[b.get("/console/sign-in/callback?code=guess&state="+answer.Get("state")).status]++
	}
	require.Equal(t, map[int]int{http.StatusUnauthorized: 100, http.StatusTooManyRequests: 30}, answered)
	require.Len(t, at.Requests, 100)
	elapsed.Store(int64(time.Second))
	require.Equal(t, http.StatusOK, b.get("/console/sign-in/callback?"+answer.Encode()).status,
		"the sign-in is still pending")
}

func TestConsole_WithoutProvider(t *testing.T) {
	t.Parallel()
	b := browse(t)
	require.NotContains(t, b.get("/console/sign-in").body, "sign-in/provider")
	require.Equal(t, http.StatusNotFound, b.get("/console/sign-in/provider").status)
	require.Equal(t, http.StatusNotFound, b.get("/console/sign-in/callback?state=x").status)
}
