package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/httpapi"
)

const leads = "/api/v1/crm/leads"

func TestCapture_CreatesAndMerges(t *testing.T) {
	t.Parallel()
	s := start(t)

	created := s.capture(`{"name":"Asha","phone":"98765 43210","opportunityValue":"₹1,20,000.50","city":"Pune"}`).
		is(http.StatusCreated)
	require.True(t, strings.HasPrefix(created.raw, `{"success":true,"merged":false,"data":{"leadId":`), created.raw)
	require.Equal(t, "+919876543210", created.at("data", "phone"))
	require.Equal(t, "", created.at("data", "email"))
	require.InDelta(t, 120000.5, created.at("data", "opportunityValue"), 0)
	require.Equal(t, map[string]any{"city": "Pune"}, created.at("data", "customFields"))
	require.NotContains(t, created.at("data"), "metadata")
	require.NotEmpty(t, created.header.Get("X-Log-Position"))

	merged := s.capture(`{"phone":"+919876543210","email":"asha@example.com","metadata":{"source":"website"}}`).
		is(http.StatusOK)
	require.Equal(t, true, merged.at("merged"))
	require.Equal(t, created.at("data", "leadId"), merged.at("data", "leadId"))
	require.Equal(t, "asha@example.com", merged.at("data", "email"))

	one := s.as(http.MethodGet, after(leads+"/"+created.at("data", "leadId").(string), merged), "").is(http.StatusOK)
	require.Equal(t, "asha@example.com", one.at("data", "email"))
	require.Equal(t, s.address, one.at("data", "metadata", "ip"))
	require.Equal(t, "Go-http-client/1.1", one.at("data", "metadata", "userAgent"))

	sources := s.as(http.MethodGet, after(leads+"/"+created.at("data", "leadId").(string)+"/sources", merged),
		"").is(http.StatusOK)
	require.Len(t, sources.at("data"), 2)
	require.Nil(t, sources.at("nextCursor"))
	require.Contains(t, sources.body, "nextCursor")

	events := s.as(http.MethodGet, leads+"/"+created.at("data", "leadId").(string)+"/events?limit=1",
		"").is(http.StatusOK)
	require.Len(t, events.at("data"), 1)
	require.NotNil(t, events.at("nextCursor"))
	require.Equal(t, "lead.created", events.at("data").([]any)[0].(map[string]any)["type"])
	require.Equal(t, "user:ann", events.at("data").([]any)[0].(map[string]any)["actor"])
	require.Equal(t, created.header.Get("X-Event-Id"), events.at("data").([]any)[0].(map[string]any)["id"])
	require.NotEqual(t, created.header.Get("X-Event-Id"), merged.header.Get("X-Event-Id"))
}

func TestCapture_CuratedSourceConflict(t *testing.T) {
	t.Parallel()
	s := start(t)
	first := s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)

	again := s.capture(`{"phone":"9876543210"}`).is(http.StatusConflict)
	require.Equal(t, "DUPLICATE_LEAD_SOURCE", again.at("code"))
	require.Equal(t, false, again.at("success"))
	require.Contains(t, again.at("message"), first.at("data", "leadId"))
	require.NotEmpty(t, again.header.Get("X-Log-Position"), "a refusal is appended to the log")

	s.capture(`{"phone":"9876500000","email":"a@example.com"}`).is(http.StatusCreated)
	clash := s.capture(`{"phone":"9876543210","email":"a@example.com"}`).is(http.StatusConflict)
	require.Equal(t, "DUPLICATE_LEAD_EMAIL", clash.at("code"))
}

func TestCapture_FieldErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, c := range map[string]struct {
		body   string
		fields []string
	}{
		"no body":         {``, []string{"phone"}},
		"an empty object": {`{}`, []string{"phone"}},
		"a bad email":     {`{"phone":"9876543210","email":"a@@b"}`, []string{"email"}},
		"several": {
			`{"phone":"x","email":"y","leadTemperature":"mild"}`, []string{"phone", "email", "leadTemperature"},
		},
		"51 custom fields":   {`{"phone":"9876543210"` + manyFields(51) + `}`, []string{"customFields"}},
		"an oversized value": {`{"phone":"9876543210","note":"` + strings.Repeat("x", 2001) + `"}`, []string{"note"}},
		"no JSON":            {`phone=1`, []string{"body"}},
		"a list":             {`[]`, []string{"body"}},
		"two":                {`{} {}`, []string{"body"}},
		"an unknown status":  {`{"phone":"9876543210","status":"nope"}`, []string{"status"}},
		"NUL":                {`{"phone":"9876543210","note":"a\u0000b"}`, []string{"note"}},
	} {
		r := s.capture(c.body)
		require.Equal(t, http.StatusBadRequest, r.status, "%s: %s", name, r.raw)
		require.Equal(t, "Validation failed", r.at("message"), name)
		require.Equal(t, c.fields, r.fieldsNamed(), name)
		require.NotContains(t, r.body, "code", name)
	}
	require.Empty(t, s.as(http.MethodGet, leads, "").at("data"), "nothing was appended")
}

func manyFields(n int) string {
	var fields strings.Builder
	for i := range n {
		fields.WriteString(`,"k` + strings.Repeat("x", i/26) + string(rune('a'+i%26)) + `":1`)
	}
	return fields.String()
}

func TestCapture_Authorization(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.provision("basic", account.Settings{})
	id, value := s.token()
	for name, c := range map[string]struct {
		credential string
		status     int
		message    string
	}{
		"no credential":              {"", 401, "Missing or invalid token"},
		"an unknown token":           {"leadlog_" + strings.Repeat("0", 64), 401, "Missing or invalid token"},
		"an invalid JWT":             {"a.b.c", 401, "Missing or invalid token"},
		"a plan without the feature": {s.mint("basic", ""), 403, "Feature crm_api is not enabled for this account"},
		"an unknown account":         {s.mint("missing", ""), 403, "Feature crm_api is not enabled for this account"},
		"a JWT of another scope":     {s.mint(ownAccount, "leads:read"), 403, "Scope leads:write required"},
	} {
		// The body is invalid. Its error would show that the body was read first.
		r := s.send(call{method: http.MethodPost, path: leads, credential: c.credential, body: "no json"})
		require.Equal(t, c.status, r.status, "%s: %s", name, r.raw)
		require.Equal(t, c.message, r.at("message"), name)
		require.Equal(t, c.status == http.StatusUnauthorized, r.header.Get("WWW-Authenticate") == "Bearer", name)
	}
	for header, status := range map[string]int{
		"bearer  " + value + " ": http.StatusBadRequest, // accepted
		"Basic " + value:         http.StatusUnauthorized,
		value:                    http.StatusUnauthorized,
		"Bearer":                 http.StatusUnauthorized,
	} {
		s.send(call{
			method: http.MethodPost, path: leads, body: `{}`, header: map[string]string{"Authorization": header},
		}).is(status)
	}
	byToken := s.send(call{
		method: http.MethodPost, path: leads, credential: value, body: `{"phone":"9876543210"}`,
	}).is(http.StatusCreated)
	events := s.as(http.MethodGet, leads+"/"+byToken.at("data", "leadId").(string)+"/events", "")
	require.Equal(t, "token:"+id, events.at("data").([]any)[0].(map[string]any)["actor"])
}

func TestAuth_NoVerifierRejectsJWT(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.JWT = nil })
	s.capture(`{"phone":"9876543210"}`).is(http.StatusUnauthorized)
	s.as(http.MethodGet, leads, "").is(http.StatusUnauthorized)
}

func TestAuth_RevokedTokenHidesPlan(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := s.another()
	id, value := s.token()
	c := call{method: http.MethodPost, path: leads, credential: value, body: `{}`}
	s.send(c).is(http.StatusBadRequest)
	s.provision(ownAccount, account.Settings{})
	s.send(c).is(http.StatusForbidden)
	other.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)
	s.send(c).is(http.StatusUnauthorized)
}

func TestQuota_CaptureRetryAfter(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit, o.RateBurst = 0.001, 2 })
	first := s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	require.Equal(t, `"capture";q=2;w=2000`, first.header.Get("RateLimit-Policy"))
	require.Regexp(t, `^"capture";r=1;t=\d+$`, first.header.Get("RateLimit"))
	s.capture(`{"phone":"9876543210"}`).is(http.StatusConflict)

	refused := s.send(call{
		method: http.MethodPost, path: leads, credential: s.jwt, body: `x`,
		header: map[string]string{"Content-Type": "text/plain"},
	})
	require.Equal(t, http.StatusTooManyRequests, refused.status, "429 takes precedence over 415: %s", refused.raw)
	require.Equal(t, "Rate limit exceeded", refused.at("message"))
	require.Regexp(t, `^[1-9]\d*$`, refused.header.Get("Retry-After"))
	require.Regexp(t, `^"capture";r=0;t=\d+$`, refused.header.Get("RateLimit"))

	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	other := s.send(call{
		method: http.MethodPost, path: leads, credential: s.mint("other", ""), body: `{"phone":"9876543210"}`,
	})
	require.Equal(t, http.StatusCreated, other.status, "another account has its own quota")
}

// Another process changes the settings that the refusing process has cached.
func TestQuota_AccountRateInEveryProcess(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	s := start(t, func(o *httpapi.Options) {
		o.RateLimit, o.RateBurst = 0.001, 1
		o.Now = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	})
	s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	s.capture(`{"phone":"9876543211"}`).is(http.StatusTooManyRequests)

	s.another().send(call{
		method: http.MethodPut, path: accounts + s.account, credential: s.mint("admins", "admin"),
		body: `{"features":["crm_api"],"rateLimit":0}`,
	}).is(http.StatusOK)
	offset.Store(int64(2 * time.Second)) // a cached account is refreshed at most once a second
	unlimited := s.capture(`{"phone":"9876543211"}`).is(http.StatusCreated)
	require.Empty(t, unlimited.header.Get("RateLimit"))
}

func TestCapture_UnsupportedMediaType(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, c := range map[string]struct {
		header map[string]string
		body   string
		status int
	}{
		"a form":             {map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, "phone=1", 415},
		"another charset":    {map[string]string{"Content-Type": "application/json; charset=latin1"}, `{}`, 415},
		"compressed":         {map[string]string{"Content-Encoding": "gzip"}, `{}`, 415},
		"a JSON suffix":      {map[string]string{"Content-Type": "application/vnd.lead+json"}, `{}`, 400},
		"only a suffix":      {map[string]string{"Content-Type": "+json"}, `{}`, 415},
		"explicit UTF-8":     {map[string]string{"Content-Type": "application/json; charset=UTF-8"}, `{}`, 400},
		"no type":            {map[string]string{"Content-Type": ""}, `{}`, 400},
		"too large":          {nil, `{"note":"` + strings.Repeat("x", 2<<20) + `"}`, 413},
		"maximum size":       {nil, `{"a":"` + strings.Repeat("x", 2<<20-8) + `"}`, 400},
		"too large and text": {map[string]string{"Content-Type": "text/plain"}, strings.Repeat("x", 3<<20), 415},
	} {
		r := s.send(call{method: http.MethodPost, path: leads, credential: s.jwt, body: c.body, header: c.header})
		require.Equal(t, c.status, r.status, "%s: %s", name, r.raw)
		require.Equal(t, false, r.at("success"), name)
	}
}

func TestCapture_ConcurrentFirstArrivals(t *testing.T) {
	t.Parallel()
	s := start(t)
	count := map[int]int{}
	for _, r := range concurrently(32, func(int) reply { return s.capture(`{"phone":"9876543210"}`) }) {
		count[r.status]++
	}
	require.Equal(t, map[int]int{http.StatusCreated: 1, http.StatusConflict: 31}, count)
}

func TestQuota_SharedBetweenProcesses(t *testing.T) {
	t.Parallel()
	one := start(t)
	other := one.another()
	slow, burst := 1e-6, 6
	one.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, RateLimit: &slow, RateBurst: &burst,
	})
	statuses := map[int]int{}
	for i := range 10 {
		for _, process := range []*service{one, other} {
			statuses[process.capture(fmt.Sprintf(`{"phone":"+9198765432%02d","metadata":{"source":"website"}}`, i)).
				status]++
		}
	}
	require.Equal(t, 14, statuses[http.StatusTooManyRequests], "%v", statuses)
}

// dryRun sends a dry run of a capture by API token.
func (s *service) dryRun(value, key, body string) reply {
	s.t.Helper()
	c := call{method: http.MethodPost, path: leads + "?dryRun=true", credential: value, body: body}
	if key != "" {
		c.header = map[string]string{"Idempotency-Key": key}
	}
	return s.send(c)
}

func TestDryRun_WritesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, body := range []string{
		`{"name":"Asha","phone":"9876543210","opportunityValue":"1,200","city":"Pune"}`,
		`{"phone":"9876543210","email":"asha@example.com","opportunityValue":7,"metadata":{"source":"website"}}`,
		`{"phone":"9876543210"}`,
		`{"email":"zoe@example.com"}`,
		`{"phone":"9876543210","email":"zoe@example.com"}`,
		`{"phone":"12","status":"nope"}`,
		`{"phone":"9876543210","status":"nope","metadata":{"source":"chatbot"}}`,
		`{"a":1,"a":2}`,
	} {
		before := storetest.Head(t, s.store)
		predicted := s.dryRun(s.jwt, "", body)
		require.Empty(t, s.writtenSince(before), "%s appended to the log", body)
		require.Empty(t, predicted.header.Get("X-Log-Position"))
		require.Empty(t, predicted.header.Get("X-Event-Id"))
		require.Equal(t, true, predicted.at("dryRun"), predicted.raw)

		captured := s.capture(body)
		require.Equal(t, captured.status, predicted.status, "%s: %s", body, predicted.raw)
		require.NotContains(t, captured.body, "dryRun")
		requireSameAsCapture(t, captured, predicted)
	}
}

// requireSameAsCapture compares the body of a dry run with that of a capture, without times and ids of new leads.
func requireSameAsCapture(t *testing.T, captured, predicted reply) {
	t.Helper()
	delete(predicted.body, "dryRun")
	of, _ := captured.body["data"].(map[string]any)
	data, _ := predicted.body["data"].(map[string]any)
	if captured.status == http.StatusCreated {
		require.Equal(t, []any{"", ""}, []any{data["leadId"], data["contactUID"]})
	}
	for _, id := range []string{"leadId", "contactUID", "opportunityId"} {
		if data[id] == "" {
			require.NotEmpty(t, of[id], "%s of %s", id, predicted.raw)
			data[id] = of[id]
		}
	}
	for _, at := range []string{"createdAt", "updatedAt"} {
		if of != nil {
			require.NotEmpty(t, data[at])
			data[at] = of[at]
		}
	}
	require.Equal(t, captured.body, predicted.body)
}

func TestDryRun_IdempotencyKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	const body, other = `{"phone":"9876543210","metadata":{"source":"website"}}`, `{"phone":"9876543211"}`
	s.dryRun(s.jwt, "k", other).is(http.StatusCreated)
	created := s.keyed("k", body).is(http.StatusCreated)
	require.Empty(t, created.header.Get("Idempotent-Replayed"))

	again := s.dryRun(s.jwt, "k", body).is(http.StatusCreated)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, created.at("data"), again.at("data"))
	reused := s.dryRun(s.jwt, "k", other).is(http.StatusConflict)
	require.Equal(t, "IDEMPOTENCY_KEY_REUSED", reused.at("code"))
	require.Equal(t, true, reused.at("dryRun"))
}

func TestDryRun_RejectsUnclearFlag(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, query := range []string{
		"dryRun=", "dryRun=1", "dryRun=TRUE", "dryRun=true&dryRun=false", "dryRun=true&dryRun=true", "dryRun=tru%zz",
		"dryRun=true;x=1",
	} {
		require.Equal(t, []string{"dryRun"},
			s.as(http.MethodPost, leads+"?"+query, `{"phone":"9876543210"}`).is(http.StatusBadRequest).fieldsNamed())
	}
	batch := s.as(http.MethodPost, leads+"/batch?dryRun=true", `{"phone":"9876543210"}`).is(http.StatusBadRequest)
	require.Equal(t, []string{"dryRun"}, batch.fieldsNamed())
	s.as(http.MethodPost, leads+"?dryRun=false", `{"phone":"9876543210"}`).is(http.StatusCreated)
}

func TestDryRun_AuthorizationAndQuota(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit, o.RateBurst = 0.001, 2 })
	other := s.another()
	id, value := s.token()
	s.dryRun(value, "", `{"phone":"9876543210"}`).is(http.StatusCreated)
	other.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)
	require.Equal(t, http.StatusUnauthorized, s.dryRun(value, "", `{"phone":"9876543210"}`).status,
		"without an append, the cached token is validated")
	s.dryRun(s.jwt, "", `{"phone":"9876543210"}`).is(http.StatusTooManyRequests)

	s.provision("lapsed", account.Settings{Features: []string{account.FeatureAPI}})
	credential := s.mint("lapsed", "")
	s.dryRun(credential, "", `{"phone":"9876543210"}`).is(http.StatusCreated)
	other.provision("lapsed", account.Settings{})
	s.dryRun(credential, "", `{"phone":"9876543210"}`).is(http.StatusForbidden)
}
