package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/console"
)

// browser is a user of the console.
type browser struct {
	*service
	client *http.Client
}

// browse returns a browser without a session.
func browse(t *testing.T, change ...func(*httpapi.Options)) *browser {
	t.Helper()
	if len(change) > 0 {
		change = append(change, withConsole)
	}
	return start(t, change...).browser()
}

// signedIn returns a browser with a session of the account.
func signedIn(t *testing.T, change ...func(*httpapi.Options)) *browser {
	t.Helper()
	b := browse(t, change...)
	return b.signIn(b.jwt)
}

func (s *service) browser() *browser {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(s.t, err)
	return &browser{s, &http.Client{
		Transport: s.server.Client().Transport, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// pageReply is a response; goTo is the target of its redirect.
type pageReply struct {
	status int
	header http.Header
	body   string
	goTo   string
}

func (b *browser) do(method, path string, form url.Values, header ...string) pageReply {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.server.URL+path,
		strings.NewReader(form.Encode()))
	require.NoError(b.t, err)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Origin", b.server.URL)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := b.client.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	return pageReply{response.StatusCode, response.Header, string(body), response.Header.Get("Location")}
}

func (b *browser) get(path string) pageReply {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil)
}

func (b *browser) post(path string, form ...string) pageReply {
	b.t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Add(form[i], form[i+1])
	}
	return b.do(http.MethodPost, path, values)
}

// signIn starts a session.
func (b *browser) signIn(jwt string) *browser {
	b.t.Helper()
	r := b.post("/console/sign-in", "jwt", jwt, "next", "/console/leads?status=new")
	require.Equal(b.t, http.StatusSeeOther, r.status, r.body)
	require.Equal(b.t, "/console/leads?status=new", r.goTo)
	return b
}

func TestConsole_DisabledWithoutKey(t *testing.T) {
	t.Parallel()
	s := start(t, unchanged)
	require.Equal(t, http.StatusNotFound, s.send(call{method: http.MethodGet, path: "/console"}).status)
}

func TestSession_ScopesOfJWT(t *testing.T) {
	t.Parallel()
	b := browse(t)
	r := b.get("/console/leads?status=new")
	require.Equal(t, http.StatusSeeOther, r.status)
	require.Equal(t, "/console/sign-in?next="+url.QueryEscape("/console/leads?status=new"), r.goTo)
	r = b.post("/console/sign-in", "jwt", "nonsense")
	require.Equal(t, http.StatusUnauthorized, r.status)
	require.Empty(t, r.header.Values("Set-Cookie"))
	r = b.post("/console/sign-in", "jwt", "leadlog_01M8275J72RHTK6H9JVXSQ8TG0")
	require.Equal(t, http.StatusUnauthorized, r.status)
	require.Contains(t, r.body, "This is an API token", "dev prints the token and the JWT")

	b.signIn(b.mint(ownAccount, "tokens:read"))
	r = b.get("/console/tokens")
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, r.body, "API tokens")
	require.NotContains(t, r.body, "Create a token")
	require.NotContains(t, r.body, `href="/console/leads"`)
	for path, scope := range map[string]string{
		"/console/leads": "leads:read", "/console/leads/x": "leads:read", "/console/usage": "leads:read",
		"/console/usage.csv": "leads:read",
	} {
		r = b.get(path)
		require.Equal(t, http.StatusForbidden, r.status, path)
		require.Contains(t, r.body, "Scope "+scope+" required")
	}
	r = b.post("/console/tokens", "name", "form", "expiresInDays", "30")
	require.Equal(t, http.StatusForbidden, r.status)
	require.Contains(t, r.body, "Scope tokens:write required")

	r = b.post("/console/sign-out")
	require.Equal(t, "/console/sign-in", r.goTo)
	require.Equal(t, http.StatusSeeOther, b.get("/console/tokens").status)
}

func TestSession_EndsWithJWT(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	b := signedIn(t, func(o *httpapi.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	})
	require.Equal(t, http.StatusOK, b.get("/console/leads").status)
	offset.Store(int64(time.Hour + time.Second))
	require.Equal(t, http.StatusSeeOther, b.get("/console/leads").status)
	require.Equal(t, http.StatusUnauthorized, b.post("/console/tokens", "name", "x", "expiresInDays", "1").status)

	offset.Store(0)
	b.signIn(b.issued(time.Hour))
	require.Equal(t, http.StatusOK, b.get("/console/leads").status)
	b.revoke(time.Now().Add(-time.Minute).Truncate(time.Second))
	r := b.post("/console/tokens", "name", "x", "expiresInDays", "1")
	require.Equal(t, http.StatusUnauthorized, r.status)
	require.Contains(t, r.header.Get("Set-Cookie"), "Max-Age=0")
	require.NotContains(t, r.body, "Sign out", "the page has no sign-out link")
}

// After the session has ended in the middle of a form, the sign-in leads back to the page with the form.
func TestSession_SignInLeadsBack(t *testing.T) {
	t.Parallel()
	b := browse(t)
	for path, back := range map[string]string{
		"/console/tokens": "/console/tokens", "/console/intakes/01X/edit": "/console/intakes/01X/edit",
		"/console/webhooks/01X/settings":             "/console/webhooks/01X",
		"/console/webhooks/01X/deliveries/01Y/retry": "/console/webhooks/01X/deliveries/01Y",
		"/console/arrivals/resubmit":                 "/console/arrivals",
		"/console/leads/01X/reveal?order=newest":     "/console/leads/01X", "/console/test-lead": "/console",
	} {
		r := b.post(path)
		require.Equal(t, http.StatusUnauthorized, r.status, path)
		require.Contains(t, r.body, `name="next" value="`+back+`"`, path)
	}
	for path, back := range map[string]string{
		"/console/leads?status=new":               "/console/leads?status=new",
		"/console/leads.csv?status=new":           "/console/leads?status=new",
		"/console/sources/history.parquet":        "/console/sources",
		"/console/webhooks/01X/deliveries.ndjson": "/console/webhooks/01X",
	} {
		require.Equal(t, "/console/sign-in?next="+url.QueryEscape(back), b.get(path).goTo)
	}
}

func TestSession_JWTInMilliseconds(t *testing.T) {
	t.Parallel()
	b := browse(t)
	now := time.Now()
	for name, claims := range map[string]jwt.MapClaims{
		"both":         {"iat": now.UnixMilli(), "exp": now.Add(time.Hour).UnixMilli()},
		"iat":          {"iat": now.UnixMilli(), "exp": now.Add(time.Hour).Unix()},
		"exp":          {"iat": now.Unix(), "exp": now.Add(time.Hour).UnixMilli()},
		"negative iat": {"iat": -1e15, "exp": now.Add(time.Hour).Unix()},
	} {
		claims["sub"], claims["account_id"] = "ann", b.account
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(jwtSecret))
		require.NoError(t, err)
		b.signIn(text)
		require.Equal(t, http.StatusOK, b.get("/console/leads").status, name)
	}
}

func TestSession_CookieAttributes(t *testing.T) {
	t.Parallel()
	b := browse(t, func(o *httpapi.Options) { o.BasePath = "/crm" })
	r := b.post("/crm/console/sign-in", "jwt", b.jwt, "next", "https://evil.example/")
	require.Equal(t, "/crm/console", r.goTo, "no redirect to another site")
	cookie := r.header.Get("Set-Cookie")
	for _, part := range []string{"; Path=/crm/console;", "; HttpOnly", "; SameSite=Strict", "; Expires="} {
		require.Contains(t, cookie, part)
	}
	require.NotContains(t, cookie, "Secure")
	require.NotContains(t, cookie, b.jwt[:20])
	// The cookie is not a credential of the API, and a modified cookie is rejected.
	value := regexp.MustCompile(`leadlog_console=([^;]+)`).FindStringSubmatch(cookie)[1]
	require.Equal(t, http.StatusUnauthorized,
		b.send(call{method: http.MethodGet, path: "/crm/api/v1/crm/leads", credential: value}).status)
	for _, changed := range []string{value[1:], "A" + value, value[:len(value)-2], ""} {
		r := b.service.browser().do(http.MethodGet, "/crm/console/leads", nil, "Cookie", "leadlog_console="+changed)
		require.Equal(t, http.StatusSeeOther, r.status, changed)
	}
}

func TestSession_CookieSecureOverHTTPS(t *testing.T) {
	t.Parallel()
	b := browse(t, func(o *httpapi.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	r := b.do(http.MethodPost, "/console/sign-in", url.Values{"jwt": {b.jwt}}, "X-Forwarded-Proto", "https")
	cookie := r.header.Get("Set-Cookie")
	require.Contains(t, cookie, "; Secure")
	require.True(t, strings.HasPrefix(cookie, "__Secure-leadlog_console="), cookie)
	value, _, _ := strings.Cut(cookie, ";")
	for sent, status := range map[string]int{
		value: http.StatusOK, strings.TrimPrefix(value, "__Secure-"): http.StatusSeeOther,
	} {
		r := b.service.browser().do(http.MethodGet, "/console/leads", nil, "X-Forwarded-Proto", "https", "Cookie", sent)
		require.Equal(t, status, r.status, "over https only a cookie with the prefix is accepted")
	}
	r = b.do(http.MethodPost, "/console/sign-in", url.Values{"jwt": {b.jwt}}, "X-Forwarded-Proto", "http")
	require.NotContains(t, r.header.Get("Set-Cookie"), "; Secure",
		"the browser would not send a Secure cookie over http")
	b = browse(t)
	r = b.do(http.MethodPost, "/console/sign-in", url.Values{"jwt": {b.jwt}}, "X-Forwarded-Proto", "https")
	require.NotContains(t, r.header.Get("Set-Cookie"), "; Secure", "the header is not from a trusted proxy")
}

func TestConsole_RejectsCrossSiteForms(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	for _, header := range [][]string{
		{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
	} {
		for _, path := range []string{"/console/tokens", "/console/sign-in", "/console/sign-out"} {
			r := b.do(http.MethodPost, path, url.Values{
				"name": {"theirs"}, "expiresInDays": {"1"}, "jwt": {b.jwt},
			}, header...)
			require.Equal(t, http.StatusForbidden, r.status, path)
			require.Empty(t, r.header.Values("Set-Cookie"))
		}
	}
	require.NotContains(t, b.get("/console/tokens").body, "theirs")
}

// A browser sends text, other programs may send any bytes. PostgreSQL could not store these.
func TestConsole_RejectsFormsNotText(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	for path, fields := range map[string][]string{
		"/console/tokens": {"name"}, "/console/webhooks": {"url", "description"},
		"/console/intakes": {"name", "honeypot", "signature.prefix"},
	} {
		for _, field := range fields {
			for _, text := range []string{"a\x00", "caf\xe9"} {
				form := url.Values{
					"name": {"a"}, "expiresInDays": {"1"}, "url": {"https://example.com"}, "events": {"token.created"},
					"kind": {"form"},
				}
				form.Set(field, text)
				r := b.do(http.MethodPost, path, form)
				require.Equal(t, http.StatusBadRequest, r.status, "%s %s", path, field)
				require.Contains(t, r.body, "The field "+field+" must be UTF-8 text without NUL")
			}
		}
	}
	for _, e := range b.written() {
		require.Equal(t, event.AccountConfigured{}.EventType(), e.Type)
	}
}

func TestConsole_RejectsLargeForms(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	r := b.post("/console/intakes", "kind", "form", "name", strings.Repeat("a", 64<<10))
	require.Equal(t, http.StatusRequestEntityTooLarge, r.status)
	require.Contains(t, r.body, "The form is larger than 64 KiB")
}

func TestSignIn_LinkWorksOnce(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	codes := console.NewCodes(func() time.Time { return time.Now().Add(time.Duration(offset.Load())) })
	b := browse(t, func(o *httpapi.Options) { o.ConsoleCodes = codes })
	code := codes.Issue(b.jwt)
	require.Contains(t, b.get("/console/sign-in?code="+code).body, code, "showing the form does not consume the code")
	require.Equal(t, "/console", b.post("/console/sign-in", "code", code).goTo)
	require.Equal(t, http.StatusOK, b.get("/console").status)
	require.Equal(t, http.StatusUnauthorized, b.post("/console/sign-in", "code", code).status)
	code = codes.Issue(b.jwt)
	offset.Store(int64(10 * time.Minute))
	require.Equal(t, http.StatusUnauthorized, b.post("/console/sign-in", "code", code).status)
	require.Equal(t, http.StatusUnauthorized, b.post("/console/sign-in", "code", "guessed").status)
}

func TestSignIn_LimitsGuesses(t *testing.T) {
	t.Parallel()
	now := time.Now() // the quota is not refilled
	b := browse(t, func(o *httpapi.Options) { o.Now = func() time.Time { return now } })
	limited := func(form ...string) bool {
		for range 200 {
			if r := b.post("/console/sign-in", form...); r.status == http.StatusTooManyRequests {
				return r.header.Get("Retry-After") != ""
			}
		}
		return false
	}
	require.True(t, limited("code", "guess"))
	require.True(t, limited("jwt", "a.b.c"))
}

func TestConsole_SecurityHeaders(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	r := b.get("/console/leads")
	require.Equal(t, "no-store", r.header.Get("Cache-Control"))
	policy := r.header.Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	asset := regexp.MustCompile(`href="(/console/assets/console-[0-9a-f]+\.css)"`).FindStringSubmatch(r.body)[1]
	r = b.service.browser().get(asset)
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, r.header.Get("Cache-Control"), "immutable")
	require.Equal(t, http.StatusNotFound, b.get("/console/assets/console.css").status)
	r = b.get("/console/nothing")
	require.Equal(t, http.StatusNotFound, r.status)
	require.Contains(t, r.body, "Page not found")
}

// follow opens a page's event stream. It returns a function that waits for a text, and a reader of the rest.
func (b *browser) follow(path string) (waitFor func(text string), rest io.Reader) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	b.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server.URL+path, nil)
	require.NoError(b.t, err)
	request.Header.Set("Accept", "text/event-stream")
	response, err := b.client.Do(request)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { response.Body.Close() })
	require.Equal(b.t, "text/event-stream", response.Header.Get("Content-Type"))
	read := make([]byte, 64<<10)
	var said strings.Builder
	return func(text string) {
		b.t.Helper()
		for !strings.Contains(said.String(), text) {
			n, err := response.Body.Read(read)
			said.Write(read[:n])
			require.NoError(b.t, err)
		}
	}, response.Body
}

func TestLivePage_EndsWhenServiceStops(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	b := signedIn(t, func(o *httpapi.Options) { o.Stopping = stopping })
	waitFor, rest := b.follow("/console/leads")
	waitFor("No leads yet")
	b.capture(`{"name":"Asha Rao","phone":"9876543210"}`)
	waitFor("A••• R•••")
	close(stopping)
	_, err := io.Copy(io.Discard, rest)
	require.NoError(t, err)
}

func TestLivePage_EndsWithSession(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*browser, *atomic.Int64){
		"expired": func(_ *browser, offset *atomic.Int64) { offset.Store(int64(2 * time.Hour)) },
		"revoked": func(b *browser, _ *atomic.Int64) { b.revoke(time.Now().Add(-time.Minute).Truncate(time.Second)) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var offset atomic.Int64
			b := browse(t, func(o *httpapi.Options) {
				o.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
			})
			b.signIn(b.issued(time.Hour))
			waitFor, rest := b.follow("/console/leads")
			waitFor("No leads yet")
			end(b, &offset)
			remaining, err := io.ReadAll(rest)
			require.NoError(t, err)
			require.Equal(t, "event: end\ndata:\n\n", string(remaining), "the script reloads the page")
			again := b.do(http.MethodGet, "/console/leads", nil, "Accept", "text/event-stream")
			require.Equal(t, http.StatusUnauthorized, again.status, "the stream is not redirected")
		})
	}
}

func TestConsole_ShowsAlarms(t *testing.T) {
	t.Parallel()
	b := signedIn(t, func(o *httpapi.Options) {
		o.Ready = func(context.Context) []httpapi.Component {
			return []httpapi.Component{{Name: "database", Ready: true, Detail: "fine"}, {
				Name: "witness w.example.com", Ready: true, Alarm: true, Detail: "refuses: 403",
			}}
		}
	})
	b.send(call{method: http.MethodGet, path: "/readyz"}).is(http.StatusOK)
	page := b.do(http.MethodGet, "/console/projections", nil).body
	require.Contains(t, page, "<b>witness w.example.com</b> refuses: 403")
	require.NotContains(t, page, "fine")
}
