package systemtest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/openapi"
)

// Two processes send to an endpoint that answers 410. Later each of them is killed during a replay.
func TestWebhooks_GoneEndpointDisabledOnce(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	first, one := serve(t, settings)
	second, _ := serve(t, settings)
	in := newReceiver(t)
	in.status.Store(http.StatusGone)
	endpoint := mustCall(t, "POST", one+"/webhooks/endpoints", jwt, `{"url":"`+in.URL+`","events":["lead.created"]}`).
		is(t, 201)
	path := "/webhooks/endpoints/" + endpoint.data()["webhookId"].(string)
	since := endpoint.data()["createdAt"].(string)
	const leads = 300
	for i := range leads {
		require.Equal(t, 201,
			mustCall(t, "POST", one+"/api/v1/crm/leads", jwt, fmt.Sprintf(`{"email":"p%d@example.com"}`, i)).status)
	}
	require.Eventually(t, func() bool {
		return mustCall(t, "GET", one+path, jwt, "").data()["disabledReason"] == "gone"
	}, soon, 20*time.Millisecond)
	refused := mustCall(t, "POST", one+path+"/test", jwt, "").is(t, 409)
	require.Equal(t, "WEBHOOK_DISABLED", refused.body["code"])

	tail := launch(t, settings, "tail", "--type", "webhook.*", "--json", "--from", "0")
	tail.waitFor(t, tail.out, `(webhook\.disabled)`)
	require.NotContains(t, tail.out.String(), endpoint.data()["secret"])

	in.status.Store(http.StatusOK)
	require.Equal(t, "enabled", mustCall(t, "PATCH", one+path, jwt, `{"enabled":true}`).data()["state"])
	rotated := mustCall(t, "POST", one+path+"/secret/rotate", jwt, "").is(t, 200)
	mustCall(t, "POST", one+path+"/replay", jwt, `{"since":"`+since+`"}`).is(t, 202)
	first.signal(t, syscall.SIGKILL)
	second.signal(t, syscall.SIGKILL)
	_, again := serve(t, settings)
	in.waitFor(t, leads, 1)

	tested := mustCall(t, "POST", again+path+"/test", jwt, "").is(t, 202)
	in.waitFor(t, leads+1, 1)
	shown := mustCall(t, "GET", again+path+"/deliveries/"+tested.data()["deliveryId"].(string), jwt, "")
	require.Equal(t, "webhook.test", shown.data()["type"])
	header, raw := in.latest()
	for _, secret := range []any{endpoint.data()["secret"], rotated.data()["secret"]} {
		verifier, err := standardwebhooks.NewWebhook(secret.(string))
		require.NoError(t, err)
		require.NoError(t, verifier.Verify(raw, header), "signed with the old and the new secret")
	}

	delivered := mustCall(t, "GET", again+path+"/deliveries?limit=2", jwt, "").body["data"].([]any)[1].(map[string]any)
	mustCall(t, "POST", again+path+"/deliveries/"+delivered["deliveryId"].(string)+"/retry", jwt, "").is(t, 202)
	in.waitFor(t, 1, 2)
	tail.waitFor(t, tail.out, `(webhook\.retried)`)
	require.Equal(t, 1, strings.Count(tail.out.String(), "webhook.disabled"), "only one process disables the endpoint")
	require.Regexp(t, `"actor":"system:delivery"`, tail.out.String())
}

func TestWebhooks_SignedDelivery(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t)
	_, jwt, base := startService(t)

	endpoint := mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+receiver.URL+`"}`).is(t, 201)
	capture := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210"}`).is(t, 201)

	receiver.waitFor(t, 1, 1)
	header, raw := receiver.latest()
	verifier, err := standardwebhooks.NewWebhook(endpoint.data()["secret"].(string))
	require.NoError(t, err)
	require.NoError(t, verifier.Verify(raw, header))
	requireDescribed(t, raw)
	var body struct {
		Type string         `json:"type"`
		Data map[string]any `json:"data"`
	}
	require.NoError(t, json.Unmarshal(raw, &body))
	require.Equal(t, "lead.created", body.Type)
	for field, value := range capture.data() {
		require.Equal(t, value, body.Data[field], "%s equals the capture's answer", field)
	}

	path := base + "/webhooks/endpoints/" + endpoint.data()["webhookId"].(string)
	id := header.Get("webhook-id")
	var shown answer
	require.Eventually(t, func() bool {
		shown = mustCall(t, "GET", path+"/deliveries/"+id, jwt, "")
		return shown.status == 200 && shown.data()["state"] == "delivered"
	}, soon, 20*time.Millisecond)
	attempt := shown.data()["attempts"].([]any)[0].(map[string]any)
	require.EqualValues(t, 200, attempt["status"])
	require.Len(t, mustCall(t, "GET", path+"/deliveries", jwt, "").body["data"], 1)
	require.NotNil(t, mustCall(t, "GET", path, jwt, "").data()["lastSuccessAt"])
	require.Equal(t, 404, mustCall(t, "GET", path+"/deliveries/nothing", jwt, "").status)

	for _, reported := range []string{
		`leadlog_deliveries_total{state="delivered"} 1`, `leadlog_deliveries_total{state="failed"} 0`,
		`leadlog_delivery_attempt_seconds_count{outcome="success"} 1`, `leadlog_deliveries_in_flight 0`,
		`leadlog_deliveries_queued `, `leadlog_delivery_oldest_due_seconds `,
	} {
		require.Eventually(t, func() bool {
			return strings.Contains(scrape(t, base), "\n"+reported)
		}, soon, 20*time.Millisecond, reported)
	}
}

func scrape(t *testing.T, base string) string {
	t.Helper()
	response, err := http.Get(base + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

// receiver counts the webhooks that it receives. It accepts none while its status is not 200.
type receiver struct {
	*httptest.Server
	status     atomic.Int64
	mu         sync.Mutex
	header     http.Header // of the latest
	body       []byte
	deliveries map[string]int // by webhook-id
	events     map[string]int // by their position on the log
	leads      map[string]bool
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	a := &receiver{deliveries: map[string]int{}, events: map[string]int{}, leads: map[string]bool{}}
	a.status.Store(http.StatusOK)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Sequence uint64 `json:"sequence"`
			Data     struct {
				LeadID string `json:"leadId"`
			} `json:"data"`
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &body) != nil {
			return // the sender was killed
		}
		if status := int(a.status.Load()); status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.header, a.body = r.Header.Clone(), raw
		a.deliveries[r.Header.Get("webhook-id")]++
		a.events[strconv.FormatUint(body.Sequence, 10)]++
		a.leads[body.Data.LeadID] = true
	}))
	t.Cleanup(a.Close)
	return a
}

// waitFor waits for n events, each received a number of times.
func (a *receiver) waitFor(t *testing.T, n, times int) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		received := 0
		for _, count := range a.events {
			if count >= times {
				received++
			}
		}
		return received >= n
	}, soon, 10*time.Millisecond)
}

// waitForLead waits for an event of a lead.
func (a *receiver) waitForLead(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.leads[id]
	}, soon, 10*time.Millisecond)
}

// latest returns the last request.
func (a *receiver) latest() (http.Header, []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.header, a.body
}

// missing returns the events that were not received.
func (a *receiver) missing(events []string) (positions []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, position := range events {
		if a.events[position] == 0 {
			positions = append(positions, position)
		}
	}
	return positions
}

// count returns the number of distinct deliveries.
func (a *receiver) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.deliveries)
}

// repeated returns the number of deliveries with an earlier webhook-id.
func (a *receiver) repeated() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, times := range a.deliveries {
		n += times - 1
	}
	return n
}

func TestReplay_BudgetOfAccount(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	in := newReceiver(t)
	endpoint := mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+in.URL+`","events":["lead.created"]}`).
		is(t, http.StatusCreated)
	path := base + "/webhooks/endpoints/" + endpoint.data()["webhookId"].(string)
	const leads = 25
	for i := range leads {
		mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, fmt.Sprintf(`{"email":"p%d@example.com"}`, i)).is(t,
			http.StatusCreated)
	}
	in.waitFor(t, leads, 1)
	since := fmt.Sprintf(`{"since":%q}`, time.Now().Add(-time.Hour).Format(time.RFC3339))
	require.Eventually(t, func() bool { // waits until the results are stored
		return mustCall(t, "GET", path, jwt, "").data()["queued"] == 0.0
	}, soon, 10*time.Millisecond)
	launch(t, settings, "account", "set", "acme", "--rate-limit", "0.001", "--rate-burst", "2").exits(t, 0)
	mustCall(t, "POST", path+"/replay", jwt, since).is(t, http.StatusAccepted)
	in.waitFor(t, 20, 2)
	replay := mustCall(t, "GET", path, jwt, "").data()["replay"].(map[string]any)
	require.Equal(t, 20.0, replay["queued"], "the budget is ten deliveries for each capture of the burst")
	require.Equal(t, "running", replay["state"])
	require.Equal(t, "REPLAY_RUNNING",
		mustCall(t, "POST", path+"/replay", jwt, since).is(t, http.StatusConflict).body["code"])
}

// requireDescribed requires a delivered body to match the schema of its type in the API's document.
func requireDescribed(t *testing.T, body []byte) {
	t.Helper()
	var document, message any
	require.NoError(t, json.Unmarshal(openapi.Document(""), &document))
	require.NoError(t, json.Unmarshal(body, &message))
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("openapi.json", document))
	kind := message.(map[string]any)["type"].(string)
	schema, err := compiler.Compile(
		"openapi.json#/webhooks/" + kind + "/post/requestBody/content/application~1json/schema",
	)
	require.NoError(t, err)
	require.NoError(t, schema.Validate(message), string(body))
}
