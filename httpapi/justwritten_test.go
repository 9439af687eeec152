package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// The views are some milliseconds behind the log, so that without care most of these would be 404.
func TestWhatWasJustWrittenIsNotMissing(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fanOut()
	there := func(path string) reply {
		t.Helper()
		r := s.as(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, r.status, "%s: %s", path, r.raw)
		return r
	}
	register := func() string {
		r := s.as(http.MethodPost, endpoints, `{"url":"https://example.com/hook"}`)
		require.Equal(t, http.StatusCreated, r.status, r.raw)
		return endpoints + "/" + r.at("data", "webhookId").(string)
	}
	admin := s.mint(ownAccount, "admin")
	for i := range 8 {
		lead := leads + "/" + s.leadID(s.capture(fmt.Sprintf(`{"phone":"98765432%02d"}`, 2*i)))
		there(lead)
		lead = leads + "/" + s.leadID(s.capture(fmt.Sprintf(`{"phone":"98765432%02d"}`, 2*i+1)))
		require.Len(t, there(lead+"/sources").at("data"), 1)

		id, _ := s.token()
		there(tokens + "/" + id)
		require.Equal(t, http.StatusOK, s.as(http.MethodDelete, tokens+"/"+id, "").status)
		id, _ = s.token()
		require.NotEmpty(t, there(tokens+"/"+id+"/events").at("data"))
		require.Equal(t, http.StatusOK, s.as(http.MethodDelete, tokens+"/"+id, "").status)

		there(register())
		there(register() + "/deliveries")
		endpoint := register()
		tested := s.as(http.MethodPost, endpoint+"/test", "")
		require.Equal(t, http.StatusAccepted, tested.status, tested.raw)
		delivery := endpoint + "/deliveries/" + tested.at("data", "deliveryId").(string)
		require.Equal(t, http.StatusAccepted, s.as(http.MethodPost, delivery+"/retry", "").status)
		there(delivery)

		account := fmt.Sprintf("/api/v1/admin/accounts/a%d", i)
		require.Equal(t, http.StatusOK, s.send(call{method: http.MethodPut, path: account, credential: admin, body: "{}"}).status)
		require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: account, credential: admin}).status)
	}
}

func TestDeliveriesAreReadAsOfAPosition(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fanOut()
	endpoint := s.endpoint()
	for i := range 20 {
		tested := s.as(http.MethodPost, endpoint+"/test", "")
		require.Equal(t, http.StatusAccepted, tested.status, tested.raw)
		list := s.as(http.MethodGet, after(endpoint+"/deliveries", tested), "").at("data").([]any)
		require.Len(t, list, i+1)
		require.Equal(t, tested.at("data", "deliveryId"), list[0].(map[string]any)["deliveryId"])
	}
}
