package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/openapi"
)

// stopped makes the service's clock stand still, and its quotas its own, so that nothing comes back to them.
func stopped(o *httpapi.Options) {
	now := time.Now()
	o.Now, o.Quotas = func() time.Time { return now }, nil
}

// credentialed yields every operation of the API that wants a credential, with ids in its path.
func credentialed(t *testing.T, each func(method, path string)) {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(openapi.Document(""))
	require.NoError(t, err)
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.Security == nil || len(*operation.Security) > 0 {
				each(method, regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, missingID))
			}
		}
	}
}

// limited is a reply that must be refused for a limit.
func (r reply) limited() {
	r.t.Helper()
	r.is(http.StatusTooManyRequests)
	wait, err := strconv.Atoi(r.header.Get("Retry-After"))
	require.NoError(r.t, err)
	require.Positive(r.t, wait)
}

// Whatever the route and the body, an account without anything left is refused before its body is looked at.
func TestQuota_EveryRoute(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	rate, burst := 0.001, 1
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, RateLimit: &rate, RateBurst: &burst})
	s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	s.act("v", `{"type":"page_view"}`).is(http.StatusAccepted)
	s.as(http.MethodPost, tokens, `{"name":"form","expiresInDays":30}`).is(http.StatusCreated)
	for range 5 {
		require.NotEqual(t, http.StatusTooManyRequests, s.request(call{method: http.MethodGet, path: leads, credential: s.jwt}).status)
	}
	before, err := s.store.Head(t.Context())
	require.NoError(t, err)
	walked := 0
	credentialed(t, func(method, path string) {
		walked++
		credential := s.jwt
		if strings.HasPrefix(path, "/api/v1/admin/") {
			credential = s.mint(ownAccount, "admin")
		}
		s.request(call{
			method: method, path: path, credential: credential, body: "no JSON", header: map[string]string{"Content-Type": "text/plain"},
		}).limited()
	})
	require.Greater(t, walked, 35)
	head, err := s.store.Head(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, head)
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	s.send(call{method: http.MethodPost, path: leads, credential: s.mint("other", ""), body: `{"phone":"9876543210"}`}).is(http.StatusCreated)
}

func TestQuota_Console(t *testing.T) {
	t.Parallel()
	b := signedIn(t, stopped)
	rate, burst := 0.001, 2
	b.provision(ownAccount, account.Settings{RateLimit: &rate, RateBurst: &burst})
	for range 10 {
		require.Equal(t, http.StatusOK, b.get("/console/tokens").status)
	}
	require.Equal(t, http.StatusTooManyRequests, b.get("/console/tokens").status)
	require.Equal(t, http.StatusTooManyRequests, b.get("/console/leads/"+missingID).status)
	b.as(http.MethodGet, tokens, "").limited()
	require.Equal(t, http.StatusOK, b.post("/console/tokens", "name", "a", "expiresInDays", "30").status)
	require.Equal(t, http.StatusNotFound, b.post("/console/leads/"+missingID+"/reveal").status)
	require.Equal(t, http.StatusTooManyRequests, b.post("/console/tokens", "name", "b", "expiresInDays", "30").status)
	require.Equal(t, http.StatusTooManyRequests, b.get("/console/leads.csv").status, "it is recorded, so it writes")
	b.as(http.MethodPost, tokens, `{"name":"c","expiresInDays":30}`).limited()
}

// Changes by hand once had no limit: 300 of these put 25 MB on the log in eleven seconds.
func TestQuota_Changes(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	path := leads + "/" + s.capture(`{"phone":"9876543210"}`).at("data", "leadId").(string)
	answered := map[int]int{}
	for i := range 300 {
		var fields []string
		for field := range 45 {
			fields = append(fields, fmt.Sprintf(`"f%d":"%03d%s"`, field, i, strings.Repeat("x", 1900)))
		}
		answered[s.as(http.MethodPatch, path, `{"customFields":{`+strings.Join(fields, ",")+`}}`).status]++
	}
	require.Equal(t, map[int]int{http.StatusOK: 100, http.StatusTooManyRequests: 200}, answered)
}

// What is appended counts by its bytes too, whatever appends it.
func TestQuota_Bytes(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	id, value := s.token()
	large := func(i int) string {
		return fmt.Sprintf(`{"phone":"98765%05d","metadata":{"source":"website"},"customFields":{%s}}`, i, largeFields(i))
	}
	taken := 0
	for ; taken < 100; taken++ {
		r := s.capture(large(taken))
		if r.status == http.StatusTooManyRequests {
			r.limited()
			break
		}
		r.is(http.StatusCreated)
	}
	require.Greater(t, taken, 32<<20/(800<<10))
	require.Less(t, taken, 32<<20/(500<<10))
	s.send(call{method: http.MethodPost, path: leads, credential: value, body: `{"phone":"9876543210"}`}).limited()
	s.as(http.MethodPost, leads+"/batch", `{"phone":"9876543210"}`).limited()
	s.act("v", `{"type":"page_view"}`).limited()
	s.as(http.MethodDelete, tokens+"/"+id, "").limited()
	s.as(http.MethodGet, tokens, "").is(http.StatusOK)
	require.Equal(t, "5", s.metric(`leadlog_rate_limited_total{limit="bytes"}`))
}

// A batch stops at the line after which too much was appended.
func TestQuota_BytesOfBatch(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, `{"phone":"98765%05d","customFields":{%s}}`+"\n", i, largeFields(i))
	}
	body := lines.String()
	half := strings.LastIndex(body[:len(body)/2], "\n") + 1
	var all []int
	for _, part := range []string{body[:half], body[half:]} {
		all = append(all, statuses(s.sendBatch(part).lines(t))...)
	}
	require.Len(t, all, 60)
	require.Equal(t, http.StatusCreated, all[0])
	require.Equal(t, http.StatusTooManyRequests, all[59])
}

// largeFields are custom fields of nearly 700 KiB, the most that a lead may have.
func largeFields(i int) string {
	var fields []string
	for field := range 43 {
		fields = append(fields, fmt.Sprintf(`"f%d":"%s"`, field, strings.Repeat("α\u0313\u0300\u0345", 1990)+strconv.Itoa(i)))
	}
	return strings.Join(fields, ",")
}
