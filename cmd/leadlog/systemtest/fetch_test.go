package systemtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The access token of an intake has expired, so its leads are quarantined. The owner sets a new token and resubmits the
// leads.
func TestFetch_AfterNewAccessToken(t *testing.T) {
	t.Parallel()
	graph := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("access_token") != "renewed" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"code":190,"message":"Session has expired"}}`)
			return
		}
		id := path.Base(r.URL.Path)
		_, _ = fmt.Fprintf(w, `{"id":%q,"field_data":[{"name":"email","values":["lead-%s@example.com"]}]}`, id, id)
	}))
	t.Cleanup(graph.Close)
	_, jwt, base := startService(t)
	created := mustCall(t, "POST", base+"/api/v1/crm/intakes", jwt,
		`{"name":"Ads","kind":"meta_lead_ads","appSecret":"app","verifyToken":"mine","accessToken":"expired",`+
			`"graphUrl":"`+graph.URL+`"}`).is(t, 201)
	intake := created.data()["intakeId"].(string)
	post := `{"object":"page","entry":[{"changes":[{"field":"leadgen","value":{"leadgen_id":1}},{"field":"leadgen",` +
		`"value":{"leadgen_id":2}},` +
		`{"field":"leadgen","value":{"leadgen_id":3}}]}]}`
	mac := hmac.New(sha256.New, []byte("app"))
	mac.Write([]byte(post))
	received, err := callWith(t.Context(), "POST", base+"/in/"+intake, "", post, map[string]string{
		"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil)),
	})
	require.NoError(t, err)
	first := base + "/api/v1/crm/arrivals/" + received.is(t, 200).body["arrivalId"].(string)

	arrivals := base + "/api/v1/crm/arrivals?intakeId=" + intake
	in := func(state string, n int) (list []any) {
		require.Eventually(t, func() bool {
			list, _ = mustCall(t, "GET", arrivals+"&state="+state, jwt, "").is(t, 200).body["data"].([]any)
			return len(list) == n
		}, soon, 20*time.Millisecond, "%d %s", n, state)
		return list
	}
	const reason = "was not fetched: the API answered 400, code 190"
	reasons := []any{map[string]any{"field": "body", "message": reason}}
	for _, one := range in("quarantined", 3) {
		require.Equal(t, reasons, one.(map[string]any)["reasons"])
	}
	require.Eventually(t, func() bool {
		return mustCall(t, "GET", base+"/api/v1/crm/intakes/"+intake, jwt, "").data()["lastError"] == reason
	}, soon, 20*time.Millisecond)

	// An answer is 202 if fetching takes longer than the request waits.
	resubmit := func(state string) (sent answer, shown map[string]any) {
		sent = mustCall(t, "POST", first+"/resubmit", jwt, "")
		require.Eventually(t, func() bool {
			shown = mustCall(t, "GET", first, jwt, "").data()
			return shown["state"] == state
		}, soon, 20*time.Millisecond, state)
		return sent, shown
	}
	refused, shown := resubmit("quarantined")
	require.Equal(t, reasons, shown["reasons"], "the second fetch has the same token")
	if refused.status != 202 {
		require.Equal(t, reasons, refused.is(t, 400).body["errors"])
	}
	receivedAt := shown["receivedAt"]
	mustCall(t, "PATCH", base+"/api/v1/crm/intakes/"+intake, jwt, `{"accessToken":"renewed"}`).is(t, 200)
	captured, shown := resubmit("captured")
	if captured.status != 202 {
		require.Equal(t, "lead-1@example.com", captured.is(t, 200).data()["email"])
	}
	lead := base + "/api/v1/crm/leads/" + shown["leadId"].(string)
	require.Equal(t, "lead-1@example.com", mustCall(t, "GET", lead, jwt, "").data()["email"])
	sources := mustCall(t, "GET", lead+"/sources", jwt, "")
	require.Equal(t, receivedAt, sources.body["data"].([]any)[0].(map[string]any)["firstSeenAt"])

	mustCall(t, "POST", base+"/api/v1/crm/arrivals/resubmit", jwt, `{"intakeId":"`+intake+`"}`).is(t, 202)
	in("captured", 3)
	require.NotContains(t, mustCall(t, "GET", base+"/api/v1/crm/intakes/"+intake, jwt, "").data(), "lastError")
	for _, line := range []string{
		`leadlog_fetch_attempt_seconds_count\{outcome="success"\} 3`,
		`leadlog_fetch_attempt_seconds_count\{outcome="failure"\} 4`, `leadlog_fetches_pending 0`,
	} {
		require.Regexp(t, regexp.MustCompile(`(?m)^`+line+`$`), scrape(t, base))
	}
}
