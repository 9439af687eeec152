package systemtest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReplay_BudgetOfAccount(t *testing.T) {
	t.Parallel()
	settings := production(t)
	jwt := provisioned(t, settings)
	_, base := serve(t, settings)
	in := receiveWebhooks(t)
	endpoint := mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+in.URL+`","events":["lead.created"]}`).is(t, http.StatusCreated)
	path := base + "/webhooks/endpoints/" + endpoint.data()["webhookId"].(string)
	const leads = 25
	for i := range leads {
		mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, fmt.Sprintf(`{"email":"p%d@example.com"}`, i)).is(t, http.StatusCreated)
	}
	in.got(t, leads, 1)
	since := fmt.Sprintf(`{"since":%q}`, time.Now().Add(-time.Hour).Format(time.RFC3339))
	require.Eventually(t, func() bool { // the queue holds them until their results are in it
		return mustCall(t, "GET", path, jwt, "").data()["queued"] == 0.0
	}, time.Minute, 10*time.Millisecond)
	launch(t, settings, "account", "set", "acme", "--rate-limit", "0.001", "--rate-burst", "2").ends(t, 0)
	mustCall(t, "POST", path+"/replay", jwt, since).is(t, http.StatusAccepted)
	in.got(t, 20, 2)
	replay := mustCall(t, "GET", path, jwt, "").data()["replay"].(map[string]any)
	require.Equal(t, 20.0, replay["queued"], "ten for each capture of the burst")
	require.Equal(t, "running", replay["state"])
	require.Equal(t, "REPLAY_RUNNING", mustCall(t, "POST", path+"/replay", jwt, since).is(t, http.StatusConflict).body["code"])
}
