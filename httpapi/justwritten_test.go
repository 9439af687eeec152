package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// The views are some milliseconds behind the log, so that without care most of these would be 404.
func TestReads_FindWhatWasJustWritten(t *testing.T) {
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
		r := s.as(http.MethodPost, endpoints, `{"url":"https://example.com/hook"}`).is(http.StatusCreated)
		return endpoints + "/" + r.at("data", "webhookId").(string)
	}
	admin := s.mint(ownAccount, "admin")
	for i := range 3 {
		lead := leads + "/" + s.leadID(s.capture(fmt.Sprintf(`{"phone":"98765432%02d"}`, 2*i)))
		there(lead)
		lead = leads + "/" + s.leadID(s.capture(fmt.Sprintf(`{"phone":"98765432%02d"}`, 2*i+1)))
		require.Len(t, there(lead+"/sources").at("data"), 1)

		id, _ := s.token()
		there(tokens + "/" + id)
		s.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)
		id, _ = s.token()
		require.NotEmpty(t, there(tokens+"/"+id+"/events").at("data"))
		s.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)

		there(register())
		there(register() + "/deliveries")
		endpoint := register()
		tested := s.as(http.MethodPost, endpoint+"/test", "").is(http.StatusAccepted)
		delivery := endpoint + "/deliveries/" + tested.at("data", "deliveryId").(string)
		s.as(http.MethodPost, delivery+"/retry", "").is(http.StatusAccepted)
		there(delivery)

		account := fmt.Sprintf("/api/v1/admin/accounts/a%d", i)
		require.Equal(t, http.StatusOK, s.send(call{method: http.MethodPut, path: account, credential: admin, body: "{}"}).status)
		require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: account, credential: admin}).status)
	}
}

// The same of what was there before and is not as it was.
func TestReads_ShowOwnLastWrite(t *testing.T) {
	t.Parallel()
	s := start(t)
	shown := func(path string, member ...string) any {
		t.Helper()
		return s.as(http.MethodGet, path, "").is(http.StatusOK).at(append([]string{"data"}, member...)...)
	}
	lead := leads + "/" + s.leadID(s.capture(`{"phone":"9876543210"}`))
	register := s.as(http.MethodPost, endpoints, `{"url":"https://example.com/hook"}`)
	endpoint := endpoints + "/" + register.at("data", "webhookId").(string)
	account, admin := "/api/v1/admin/accounts/other", s.mint(ownAccount, "admin")
	for i := range 3 {
		name := fmt.Sprintf("Asha %d", i)
		s.as(http.MethodPatch, lead, `{"name":"`+name+`"}`).is(http.StatusOK)
		require.Equal(t, name, shown(lead, "name"))
		s.as(http.MethodPatch, lead, `{"status":"won"}`).is(http.StatusOK)
		require.Len(t, shown(leads+"?status=won"), 1)
		s.as(http.MethodPatch, lead, `{"status":"new"}`).is(http.StatusOK)
		require.Empty(t, shown(leads+"?status=won"))
		s.capture(`{"phone":"9876543210"}`).is(http.StatusConflict)
		require.Len(t, shown(leads+"/refused"), i+1)

		id, _ := s.token()
		s.as(http.MethodPost, tokens+"/"+id+"/rotate", "").is(http.StatusOK)
		require.NotNil(t, shown(tokens+"/"+id, "rotatedAt"))
		s.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)
		require.Equal(t, "deleted", shown(tokens+"/"+id, "status"))

		s.as(http.MethodPatch, endpoint, `{"description":"`+name+`"}`).is(http.StatusOK)
		require.Equal(t, name, shown(endpoint, "description"))

		put := call{method: http.MethodPut, path: account, credential: admin, body: `{"name":"` + name + `"}`}
		require.Equal(t, http.StatusOK, s.send(put).status)
		get := call{method: http.MethodGet, path: account, credential: admin}
		require.Equal(t, name, s.send(get).at("data", "name"))
	}
}

// A view that stands still keeps nobody waiting for long: the answer is what it shows.
func TestReads_AnsweredByStoppedView(t *testing.T) {
	t.Parallel()
	s := start(t)
	lead := leads + "/" + s.leadID(s.capture(`{"phone":"9876543210","name":"Asha"}`))
	s.as(http.MethodGet, lead, "").is(http.StatusOK)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.Background())) })
	pgtest.Exec(t, tx, `LOCK TABLE views.lead IN EXCLUSIVE MODE`)
	s.as(http.MethodPatch, lead, `{"name":"Bela"}`).is(http.StatusOK)
	require.Equal(t, "Asha", s.as(http.MethodGet, lead, "").at("data", "name"))
}

func TestReads_DeliveriesAtPosition(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fanOut()
	endpoint := s.endpoint()
	for i := range 20 {
		tested := s.as(http.MethodPost, endpoint+"/test", "").is(http.StatusAccepted)
		list := s.as(http.MethodGet, after(endpoint+"/deliveries", tested), "").at("data").([]any)
		require.Len(t, list, i+1)
		require.Equal(t, tested.at("data", "deliveryId"), list[0].(map[string]any)["deliveryId"])
	}
}
