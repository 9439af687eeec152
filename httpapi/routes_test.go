package httpapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection/view"
)

func TestRoutes_EveryAnswerInEnvelope(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, c := range map[string]struct {
		method, path string
		status       int
		allow        string
	}{
		"no such route":                {"GET", "/nowhere", 404, ""},
		"a path below a batch":         {"POST", leads + "/batch/x/y", 404, ""},
		"no such version":              {"POST", "/api/v2/crm/leads", 404, ""},
		"a trailing slash":             {"POST", leads + "/", 404, ""},
		"a wrong method":               {"DELETE", leads, 405, "GET, HEAD, POST"},
		"a wrong method on id":         {"POST", tokens + "/x", 405, "GET, HEAD, DELETE"},
		"a wrong method on a batch":    {"GET", leads + "/batch", 405, "POST"},
		"an invalid lead id":           {"DELETE", leads + "/refused", 405, "GET, HEAD"},
		"an id with escapes":           {"GET", leads + "/%72efused", 401, ""},
		"an unknown method on a batch": {"BREW", leads + "/batch", 405, "POST"},
		"an unknown method":            {"BREW", leads, 405, "GET, HEAD, POST"},
		"an unknown method and route":  {"BREW", "/nowhere", 404, ""},
		"preflight, CORS off":          {"OPTIONS", leads, 405, "GET, HEAD, POST"},
		"health":                       {"GET", "/healthz", 200, ""},
		"readiness":                    {"GET", "/readyz", 200, ""},
	} {
		r := s.send(call{method: c.method, path: c.path})
		require.Equal(t, c.status, r.status, name)
		require.Equal(t, c.status == 200, r.at("success"), name)
		require.Equal(t, c.allow, r.header.Get("Allow"), name)
		require.NotEmpty(t, r.header.Get("X-Request-Id"), name)
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"), name)
	}
	head := s.send(call{method: http.MethodHead, path: "/healthz"}).is(http.StatusOK)
	require.Empty(t, head.raw)
	require.NotEmpty(t, head.header.Get("Content-Length"))
}

func TestRoutes_NamesStrayPath(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := ulid.Make().String()
	const tooMany = " has an extra slash"
	for path, want := range map[string]string{
		leads + "/": "Not found: " + leads + "/" + tooMany + "; try " + leads,
		"/" + leads: "Not found: /" + leads + tooMany + "; try " + leads,
		"/api/v1//crm/leads/" + id + "//": "Not found: /api/v1//crm/leads/" + id + "//" + tooMany + "; try " + leads +
			"/" + id,
		"/nowhere/":           "Not found: /nowhere/" + tooMany,
		"/nowhere":            "Not found",
		leads + "/<b>/":       "Not found",
		leads + "/%3Cb%3E/":   "Not found",
		leads + "/%E2%80%AE/": "Not found",
		leads + "/" + strings.Repeat("a", 1000) + "/": "Not found",
	} {
		for _, method := range []string{http.MethodGet, "BREW"} {
			r := s.send(call{method: method, path: path}).is(http.StatusNotFound)
			require.Equal(t, want, r.at("message"), "%s %s", method, path)
			require.Equal(t, false, r.at("success"))
		}
	}
	s.send(call{method: http.MethodGet, path: leads + "/9876543210/"})
	require.NotContains(t, s.log.String(), "9876543210", "a path may have personal data")
}

func TestParams_ListValidation(t *testing.T) {
	t.Parallel()
	s := start(t)
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=201": "limit", "limit=x": "limit", "cursor=x": "cursor",
		"createdSince=yesterday": "createdSince", "createdUntil=2026-13-01T00:00:00Z": "createdUntil",
		"minPosition=-1": "minPosition", "minPosition=18446744073709551616": "minPosition",
		"q=%00": "q", "phone=x": "phone", "email=x": "email",
		"limit=%zz": "limit", "status=won%": "status", "cursor=%": "cursor", "createdSince=%2": "createdSince",
		"minPosition=%x": "minPosition", "status=new&status=won": "status", "limit=2&limit=2": "limit",
		"limit=2;status=won": "limit", "consent=-": "consent", "consent=-&status=new": "consent",
	} {
		require.Equal(t, []string{field},
			s.as(http.MethodGet, leads+"?"+query, "").is(http.StatusBadRequest).fieldsNamed(), query)
	}
	both := s.as(http.MethodGet, leads+"?limit=0&createdSince=x", "")
	require.ElementsMatch(t, []string{"limit", "createdSince"}, both.fieldsNamed())
	s.as(http.MethodGet, leads+"?limit=200&unknown=1&unknown=%zz&%zz=1&&", "").is(http.StatusOK)
	captured := s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	asItWas := s.as(http.MethodGet, leads+"/"+s.leadID(captured)+"?asOf=2026-01-01T00:00:00Z&minPosition=x", "")
	require.Equal(t, []string{"minPosition"}, asItWas.fieldsNamed(),
		"an invalid position is rejected without a read of a view")
	require.Empty(t, s.as(http.MethodGet, leads+"?status=new;x", "").at("data"), "a semicolon is part of a value")
}

func TestLeads_StageFilterIgnoresCase(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, Stages: []string{"Νέος", "Sold", "Geſchloſſen"},
	})
	for phone, stage := range map[string]string{
		"9876543210": "ΝΈΟΣ", "9876543211": "SOLD", "9876543212": "GESCHLOSSEN",
	} {
		captured := s.capture(fmt.Sprintf(`{"phone":%q,"status":%q}`, phone, stage)).is(http.StatusCreated)
		for _, written := range []string{stage, strings.ToLower(stage), captured.at("data", "status").(string)} {
			found := s.as(http.MethodGet, after(leads+"?status="+url.QueryEscape(written), captured), "")
			require.Len(t, found.at("data"), 1, "%s: %s", written, found.raw)
		}
	}
}

func TestLeads_StageFilterWithoutLog(t *testing.T) {
	t.Parallel()
	s := startOn(t, migrated(t), migrated(t), view.All())
	captured := s.capture(`{"phone":"9876543210","status":"Contacted"}`).is(http.StatusCreated)
	s.as(http.MethodGet, after(leads, captured), "").is(http.StatusOK)
	pgtest.Disconnect(t, s.events)
	require.Len(t, s.as(http.MethodGet, leads+"?status=contacted", "").is(http.StatusOK).at("data"), 1)
}

// stopLeads stops the view of leads until the test ends.
func (s *service) stopLeads() {
	s.t.Helper()
	s.as(http.MethodGet, after(leads, s.capture(`{"email":"first@example.com"}`).is(http.StatusCreated)),
		"").is(http.StatusOK)
	tx, err := pgtest.Connect(s.t, s.url).Begin(s.t.Context())
	require.NoError(s.t, err)
	pgtest.Exec(s.t, tx, `SELECT FROM views.checkpoint WHERE projector = 'lead' FOR UPDATE`)
}

// A position beyond the log is the caller's error. The request does not wait.
func TestMinPosition_BeyondLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	write := s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	s.as(http.MethodGet, after(leads, write), "").is(http.StatusOK)
	for _, position := range []string{"999999999", "18446744073709551615"} {
		for _, path := range []string{leads, "/webhooks/endpoints", "/api/v1/crm/audit/tokens"} {
			r := s.as(http.MethodGet, path+"?minPosition="+position, "").is(http.StatusBadRequest)
			require.Equal(t, []string{"minPosition"}, r.fieldsNamed())
		}
	}
}

func TestMinPosition_ViewBehind(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	s.stopLeads()
	write := s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	r := s.request(call{
		method: http.MethodGet, path: after(leads, write), credential: s.jwt,
	}).is(http.StatusServiceUnavailable)
	require.Equal(t, "Service unavailable", r.at("message"))
	require.Equal(t, "1", r.header.Get("Retry-After"))
}

func TestRequestID_KeptWhenValid(t *testing.T) {
	t.Parallel()
	s := start(t)
	name := func(given string) string {
		return s.send(call{
			method: http.MethodGet, path: "/healthz", header: map[string]string{"X-Request-Id": given},
		}).header.Get("X-Request-Id")
	}
	require.Equal(t, "job-7/é"[:6], name("job-7/"))
	for _, invalid := range []string{"", "two words", "é", strings.Repeat("x", 129)} {
		require.Regexp(t, `^[0-9A-HJKMNP-TV-Z]{26}$`, name(invalid))
	}
}

func TestAccessLog_OmitsPathAndQuery(t *testing.T) {
	t.Parallel()
	s := start(t, withConsole)
	s.as(http.MethodGet, leads+"?phone=9876543210", "")
	s.as(http.MethodGet, leads+"/9876543210", "")
	s.send(call{method: http.MethodGet, path: "/9876543210"})
	s.browser().signIn(s.jwt).get("/console/leads/9876543210?next=9876543210")
	log := s.log.String()
	require.NotContains(t, log, "9876543210")
	require.Contains(t, log, `"method":"GET","route":"/api/v1/crm/leads/{id}","status":404`)
	require.Contains(t, log, `"account":"`+s.account+`","credential":"jwt"`)
	require.Regexp(t, `"route":"/console/sign-in","status":303,.*"account":"`+s.account+`"`, log)
	require.Regexp(t,
		`"route":"/console/leads/{id}","status":404,.*"account":"`+s.account+`","credential":"session"`, log)
	require.Contains(t, s.send(call{method: http.MethodGet, path: "/metrics"}).raw,
		`leadlog_http_requests_total{method="GET",route="/api/v1/crm/leads/{id}",status="404"} 1`)
}

func TestCORS_ListedOrigins(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.CORSOrigins = []string{"https://form.example", "null", "*"} })
	ask := func(method, path, origin string) reply {
		return s.send(call{
			method: method, path: path,
			header: map[string]string{"Origin": origin, "Access-Control-Request-Method": "POST"},
		})
	}
	preflight := ask(http.MethodOptions, leads, "https://form.example")
	require.Equal(t, http.StatusNoContent, preflight.status)
	require.Equal(t, "https://form.example", preflight.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, http.MethodPost, preflight.header.Get("Access-Control-Allow-Methods"))
	require.Contains(t, preflight.header.Get("Access-Control-Allow-Headers"), "Authorization")
	require.NotEmpty(t, preflight.header.Get("Access-Control-Max-Age"), "the preflight is cached")
	refused := ask(http.MethodPost, leads, "https://form.example")
	require.Equal(t, http.StatusUnauthorized, refused.status)
	require.Equal(t, "https://form.example", refused.header.Get("Access-Control-Allow-Origin"),
		"CORS lets the page read the error")
	for _, name := range []string{"X-Request-Id", "X-Event-Id", "Retry-After", "RateLimit"} {
		require.Contains(t, refused.header.Get("Access-Control-Expose-Headers"), name)
	}
	for _, path := range []string{visitors + "v/activity", visitors + "a%2Fb/activity"} {
		require.Equal(t, http.StatusNoContent, ask(http.MethodOptions, path, "https://form.example").status)
		require.Equal(t, "https://form.example",
			ask(http.MethodPost, path, "https://form.example").header.Get("Access-Control-Allow-Origin"))
	}
	require.Contains(t, s.log.String(), `"method":"OPTIONS","route":"/api/v1/crm/visitors/{id}/activity","status":204`)
	for _, other := range []reply{
		ask(http.MethodOptions, visitors+"v", "https://form.example"),
		ask(http.MethodOptions, leads+"/x/activity", "https://form.example"),
		ask(http.MethodOptions, leads, "https://form.example.evil"), ask(http.MethodOptions, leads, "null"),
		ask(http.MethodOptions, leads, "*"), ask(http.MethodOptions, tokens, "https://form.example"),
		ask(http.MethodPost, leads, "HTTPS://FORM.EXAMPLE"),
		ask(http.MethodGet, leads, "https://form.example"), // a list is not open to pages
		s.send(call{
			method: http.MethodOptions, path: leads,
			header: map[string]string{"Origin": "https://form.example", "Access-Control-Request-Method": "GET"},
		}),
	} {
		require.Empty(t, other.header.Get("Access-Control-Allow-Origin"))
	}
	require.Contains(t, ask(http.MethodPost, leads, "https://other.example").header.Values("Vary"), "Origin",
		"caches store one answer for each origin")
}

func TestRoutes_BasePath(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.BasePath = "/crm/" })
	s.as(http.MethodGet, "/crm"+leads, "").is(http.StatusOK)
	require.Equal(t, "GET, HEAD, POST", s.as(http.MethodDelete, "/crm"+leads, "").header.Get("Allow"))
	s.as(http.MethodGet, leads, "").is(http.StatusNotFound)
}

func TestMonitoring_ReadyzNamesComponent(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) {
		o.Ready = func(context.Context) []httpapi.Component {
			return []httpapi.Component{{Name: "database", Ready: true}, {Name: "log", Detail: "out of reach"}}
		}
	})
	r := s.send(call{method: http.MethodGet, path: "/readyz"}).is(http.StatusServiceUnavailable)
	require.Equal(t, false, r.at("success"))
	require.Contains(t, r.raw, `{"name":"log","ready":false,"detail":"out of reach"}`)
	require.NotEmpty(t, r.header.Get("Retry-After"))
}

func TestPanic_AnsweredWithoutValue(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) {
		o.Ready = func(context.Context) []httpapi.Component { panic("a secret") }
	})
	r := s.send(call{method: http.MethodGet, path: "/readyz"}).is(http.StatusInternalServerError)
	require.Equal(t, `{"success":false,"message":"Internal server error"}`, r.raw)
	require.NotContains(t, s.log.String(), "a secret")
	require.Contains(t, s.log.String(), `"stack":`)
	require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: "/healthz"}).status)
}

func TestCredentials_OnlyGuessesLimited(t *testing.T) {
	t.Parallel()
	now := time.Now() // the quota is not refilled
	s := start(t, func(o *httpapi.Options) { o.Now = func() time.Time { return now } })
	id, value := s.token()
	good := func(credential string) int {
		return s.send(call{method: http.MethodPost, path: leads, credential: credential, body: `{}`}).status
	}
	require.Equal(t, http.StatusBadRequest, good(value)) // from here on the token is cached
	limited := false
	for range 300 {
		r := s.send(call{method: http.MethodPost, path: leads, credential: s.jwt[:len(s.jwt)-8] + "AAAAAAAA"})
		if limited = r.status == http.StatusTooManyRequests; limited {
			require.Regexp(t, `^[1-9]\d*$`, r.header.Get("Retry-After"))
			break
		}
		require.Equal(t, http.StatusUnauthorized, r.status)
	}
	require.True(t, limited)
	require.Equal(t, http.StatusBadRequest, good(value))
	expired, err := httpapi.MintHS256([]byte(jwtSecret), httpapi.Minting{
		Account: s.account, Subject: "ann", TTL: time.Second,
	}, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, good(expired), "an expired JWT of the issuer is not a guess")
	require.Equal(t, http.StatusBadRequest, good(s.jwt))
	s.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)
}

func TestServer_MalformedRequests(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, line := range []string{
		"OPTIONS * HTTP/1.1", "GET //api/v1/crm/leads HTTP/1.1", "GET /api/v1/crm/leads/../tokens HTTP/1.1",
	} {
		r := s.exchangeText(s.server.Listener.Addr().String(),
			line+"\r\nHost: x\r\nConnection: close\r\n\r\n").is(http.StatusNotFound)
		require.Equal(t, false, r.at("success"))
	}
}

func TestBody_TooSlowOrTooLarge(t *testing.T) {
	t.Parallel()
	s := start(t)
	usual := s.server.Listener.Addr().String()
	address := s.serveChanged(func(server *http.Server) { server.ReadTimeout = time.Second })
	for name, c := range map[string]struct {
		address, headers, body string
		status                 int
	}{
		"an incomplete body": {address, "Content-Length: 9\r\n", `{"a"`, http.StatusRequestTimeout},
		"an invalid chunk":   {usual, "Transfer-Encoding: chunked\r\n", "zz\r\n", http.StatusBadRequest},
		"chunks without end": {
			usual, "Transfer-Encoding: chunked\r\n", "200001\r\n" + strings.Repeat("x", 2<<20+1) + "\r\n",
			http.StatusRequestEntityTooLarge,
		},
	} {
		r := s.exchangeText(c.address,
			"POST "+leads+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.jwt+"\r\n"+c.headers+"\r\n"+c.body)
		require.Equal(t, c.status, r.status, name)
		require.Equal(t, false, r.at("success"), name)
	}
}

// Readiness and metrics need no credential and query the database, so concurrent requests share one check.
func TestMonitoring_SharesConcurrentChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int32
		resume := make(chan struct{})
		defer close(resume)
		runCheck := func() {
			checks.Add(1)
			<-resume
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "looked_at"}, func() float64 {
			runCheck()
			return 7
		}))
		api := httpapi.New(httpapi.Options{
			Log: slog.New(slog.DiscardHandler), Metrics: registry,
			Ready: func(context.Context) []httpapi.Component {
				runCheck()
				return []httpapi.Component{{Name: "database", Ready: true}}
			},
		})
		for path, want := range map[string]string{"/readyz": `"database"`, "/metrics": "\nlooked_at 7\n"} {
			checks.Store(0)
			var answers [8]*httptest.ResponseRecorder
			for i := range answers {
				answers[i] = httptest.NewRecorder()
				go api.ServeHTTP(answers[i], httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			}
			synctest.Wait()
			require.EqualValues(t, 1, checks.Load(), path)
			resume <- struct{}{}
			synctest.Wait()
			for _, answer := range answers {
				require.Equal(t, http.StatusOK, answer.Code)
				require.Contains(t, answer.Body.String(), want)
			}
			go api.ServeHTTP(httptest.NewRecorder(),
				httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			resume <- struct{}{}
			synctest.Wait()
			require.EqualValues(t, 2, checks.Load(), "a later request runs a new check")
		}
	})
}

// A misspelt limit of a token, a filter or a span of time would be none.
func TestRoutes_UnknownField(t *testing.T) {
	t.Parallel()
	s := start(t)
	lead := leads + "/" + s.leadID(s.as(http.MethodPost, leads, `{"phone":"9876512399"}`).is(http.StatusCreated))
	endpoint := s.endpoint()
	intake, _ := s.intake(`{"name":"Form","kind":"form","source":"website"}`)
	id, _ := s.token()
	token := tokens + "/" + id
	events := func() int {
		return s.count(`SELECT count(*) FROM log.event_readable WHERE metadata->>'account' = $1`, s.account)
	}
	before := events()
	for _, to := range []struct{ method, path, body string }{
		{http.MethodPost, tokens, `{"name":"a","expiresInDays":1,"scpoe":"leads:read"}`},
		{http.MethodPost, endpoints, `{"url":"https://example.com/","scpoe":"lead"}`},
		{http.MethodPatch, endpoint, `{"description":"a","scpoe":"lead"}`},
		{http.MethodPost, endpoint + "/replay", `{"scpoe":1}`},
		{http.MethodPost, endpoint + "/retry-failed", `{"scpoe":1}`},
		{http.MethodPost, endpoint + "/filter/preview", `{"filter":"true","scpoe":1}`},
		{http.MethodPost, intakes, `{"name":"a","kind":"form","scpoe":1}`},
		{http.MethodPatch, intake, `{"name":"a","scpoe":1}`},
		{http.MethodPost, intake + "/secret/rotate", `{"scpoe":1}`},
		{http.MethodPost, intake + "/preview", `{"body":"{}","scpoe":1}`},
		{http.MethodPost, arrivalsPath + "/" + missingID + "/resubmit", `{"scpoe":1}`},
		{http.MethodPost, arrivalsPath + "/resubmit", `{"intakeId":"` + missingID + `","scpoe":1}`},
		{http.MethodPost, lead + "/split", `{"phone":"9876512399","scpoe":1}`},
		{http.MethodPost, lead + "/join", `{"from":"` + missingID + `","scpoe":1}`},
		{http.MethodPost, lead + "/contacts/release", `{"phone":"9876512399","scpoe":1}`},
		{http.MethodPost, token + "/rotate", `{"scpoe":1}`},
		{http.MethodPost, endpoint + "/secret/rotate", `{"scpoe":1}`},
		{http.MethodPost, endpoint + "/test", `{"scpoe":1}`},
		{http.MethodPost, endpoint + "/deliveries/" + missingID + "/retry", `{"scpoe":1}`},
	} {
		wrong := s.as(to.method, to.path, to.body).is(http.StatusBadRequest)
		require.Equal(t, []string{"scpoe"}, wrong.fieldsNamed(), to.path)
		require.Contains(t, wrong.raw, "is not a known field")
	}
	for _, path := range []string{token + "/rotate", endpoint + "/secret/rotate", endpoint + "/test"} {
		for _, body := range []string{`[]`, `overlap=0s`, `{"a":`} {
			require.Equal(t, []string{"body"},
				s.as(http.MethodPost, path, body).is(http.StatusBadRequest).fieldsNamed(), path)
		}
	}
	require.Equal(t, before, events(), "nothing is written")
	for _, body := range []string{``, ` `, `{}`} {
		s.send(call{
			method: http.MethodPost, path: token + "/rotate", credential: s.jwt, body: body,
			header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
		}).is(http.StatusOK)
	}
}
