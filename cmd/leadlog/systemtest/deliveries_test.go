package systemtest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

func TestAnEndpointRegisteredJustBeforeACaptureGetsItSigned(t *testing.T) {
	t.Parallel()
	receiver := receiveWebhooks(t)
	_, jwt, base := served(t)

	endpoint := mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+receiver.URL+`"}`).is(t, 201)
	capture := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210"}`).is(t, 201)

	receiver.got(t, 1, 1)
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
		require.Equal(t, value, body.Data[field], "%s is as the capture answered it", field)
	}

	path := base + "/webhooks/endpoints/" + endpoint.data()["webhookId"].(string)
	id := header.Get("webhook-id")
	var shown answer
	require.Eventually(t, func() bool {
		shown = mustCall(t, "GET", path+"/deliveries/"+id, jwt, "")
		return shown.status == 200 && shown.data()["state"] == "delivered"
	}, time.Minute, 20*time.Millisecond)
	attempt := shown.data()["attempts"].([]any)[0].(map[string]any)
	require.EqualValues(t, 200, attempt["status"])
	require.Len(t, mustCall(t, "GET", path+"/deliveries", jwt, "").body["data"], 1)
	require.NotNil(t, mustCall(t, "GET", path, jwt, "").data()["lastSuccessAt"])
	require.Equal(t, 404, mustCall(t, "GET", path+"/deliveries/nothing", jwt, "").status)

	for _, told := range []string{
		`leadlog_deliveries_total{state="delivered"} 1`, `leadlog_deliveries_total{state="failed"} 0`,
		`leadlog_delivery_attempt_seconds_count{outcome="success"} 1`, `leadlog_deliveries_in_flight 0`,
		`leadlog_deliveries_queued `, `leadlog_delivery_oldest_due_seconds `,
	} {
		require.Eventually(t, func() bool { return strings.Contains(scrape(t, base), "\n"+told) }, time.Minute, 20*time.Millisecond, told)
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
