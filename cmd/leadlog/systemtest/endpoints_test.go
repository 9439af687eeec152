package systemtest

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

// TestAnEndpointThatIsGoneIsDisabledOnceAndAReplayBringsWhatItMissed has two processes send to it, and kills one and
// then the other with -9 while they replay.
func TestAnEndpointThatIsGoneIsDisabledOnceAndAReplayBringsWhatItMissed(t *testing.T) {
	t.Parallel()
	settings := production(t)
	jwt := provisioned(t, settings)
	first, one := serve(t, settings)
	second, _ := serve(t, settings)
	in := receiveWebhooks(t)
	in.status.Store(http.StatusGone)
	endpoint := mustCall(t, "POST", one+"/webhooks/endpoints", jwt, `{"url":"`+in.URL+`","events":["lead.created"]}`).is(t, 201)
	path := "/webhooks/endpoints/" + endpoint.data()["webhookId"].(string)
	since := endpoint.data()["createdAt"].(string)
	const leads = 300
	for i := range leads {
		require.Equal(t, 201, mustCall(t, "POST", one+"/api/v1/crm/leads", jwt, fmt.Sprintf(`{"email":"p%d@example.com"}`, i)).status)
	}
	require.Eventually(t, func() bool {
		return mustCall(t, "GET", one+path, jwt, "").data()["disabledReason"] == "gone"
	}, time.Minute, 20*time.Millisecond)
	refused := mustCall(t, "POST", one+path+"/test", jwt, "").is(t, 409)
	require.Equal(t, "WEBHOOK_DISABLED", refused.body["code"])

	tail := launch(t, settings, "tail", "--type", "webhook.*", "--json", "--from", "0")
	tail.sees(t, tail.out, `(webhook\.disabled)`)
	require.NotContains(t, tail.out.String(), endpoint.data()["secret"])

	in.status.Store(http.StatusOK)
	require.Equal(t, "enabled", mustCall(t, "PATCH", one+path, jwt, `{"enabled":true}`).data()["state"])
	rotated := mustCall(t, "POST", one+path+"/secret/rotate", jwt, "").is(t, 200)
	mustCall(t, "POST", one+path+"/replay", jwt, `{"since":"`+since+`"}`).is(t, 202)
	first.signal(t, syscall.SIGKILL)
	second.signal(t, syscall.SIGKILL)
	_, again := serve(t, settings)
	in.got(t, leads, 1)

	tested := mustCall(t, "POST", again+path+"/test", jwt, "").is(t, 202)
	in.got(t, leads+1, 1)
	shown := mustCall(t, "GET", again+path+"/deliveries/"+tested.data()["deliveryId"].(string), jwt, "")
	require.Equal(t, "webhook.test", shown.data()["type"])
	header, raw := in.latest()
	for _, secret := range []any{endpoint.data()["secret"], rotated.data()["secret"]} {
		verifier, err := standardwebhooks.NewWebhook(secret.(string))
		require.NoError(t, err)
		require.NoError(t, verifier.Verify(raw, header), "the old and the new secret")
	}

	delivered := mustCall(t, "GET", again+path+"/deliveries?limit=2", jwt, "").body["data"].([]any)[1].(map[string]any)
	mustCall(t, "POST", again+path+"/deliveries/"+delivered["deliveryId"].(string)+"/retry", jwt, "").is(t, 202)
	in.got(t, 1, 2)
	tail.sees(t, tail.out, `(webhook\.retried)`)
	require.Equal(t, 1, strings.Count(tail.out.String(), "webhook.disabled"), "by whichever saw it first")
	require.Regexp(t, `"actor":"system:delivery"`, tail.out.String())
}
