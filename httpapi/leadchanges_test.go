package httpapi_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

func TestLeadChanges_UpdateIsRecorded(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.capture(`{"phone":"9876543210","city":"Pune","size":"XL"}`)
	path := leads + "/" + created.at("data", "leadId").(string)

	changed := s.as(http.MethodPatch, path,
		`{"name":" Asha ","leadTemperature":"HOT","opportunityValue":12.5,"customFields":{"city":null,"size":"","team":7,"none":null}}`)
	require.Equal(t, http.StatusOK, changed.status, changed.raw)
	require.Equal(t, "Asha", changed.at("data", "name"))
	require.Equal(t, "hot", changed.at("data", "leadTemperature"))
	require.Equal(t, map[string]any{"size": "XL", "team": 7.0}, changed.at("data", "customFields"))
	require.NotNil(t, changed.at("data", "opportunityId"))

	shown := s.as(http.MethodGet, after(path, changed), "")
	require.Equal(t, "Asha", shown.at("data", "name"), shown.raw)
	require.Equal(t, changed.at("data", "customFields"), shown.at("data", "customFields"))
	require.Equal(t, changed.at("data", "opportunityId"), shown.at("data", "opportunityId"))

	events := s.as(http.MethodGet, path+"/events", "").at("data").([]any)
	require.Len(t, events, 2)
	require.Equal(t, "lead.updated", events[1].(map[string]any)["type"])
	require.Equal(t, "user:ann", events[1].(map[string]any)["actor"])

	merged := s.capture(`{"phone":"9876543210","metadata":{"source":"whatsapp"}}`).is(http.StatusOK)
	require.Equal(t, "Asha", merged.at("data", "name"), "a capture goes on from there")
}

func TestLeadChanges_Rejections(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.capture(`{"phone":"9876543210"}`)
	path := leads + "/" + created.at("data", "leadId").(string)
	for body, fields := range map[string][]string{
		``:             {"body"},
		`{"nmae":"A"}`: {"body"},
		`{"status":"nope","leadTemperature":"mild","opportunityValue":true}`: {"status", "leadTemperature", "opportunityValue"},
		`{"name":7}`:                        {"name"},
		`{"name":"A","phone":"9876543211"}`: {"phone"},
		`{"customFields":[1]}`:              {"customFields"},
		`{"customFields":{"a":"` + fmt.Sprintf("%02001d", 0) + `"}}`: {"customFields.a"},
	} {
		require.ElementsMatch(t, fields, s.as(http.MethodPatch, path, body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	s.send(call{method: http.MethodPatch, path: path, credential: s.mint("other", ""), body: `{"name":"A"}`}).is(http.StatusNotFound)
	s.as(http.MethodPatch, leads+"/01JQKXZ8V4W9H6M3T2R5N7P0AB", `{"name":"A"}`).is(http.StatusNotFound)
	require.Equal(t, http.StatusForbidden, s.send(call{
		method: http.MethodPatch, path: path, credential: s.mint(ownAccount, "leads:read"), body: `{"name":"A"}`,
	}).status)
	require.Len(t, s.as(http.MethodGet, path+"/events", "").at("data"), 1)
}

func TestLeadChanges_ConcurrentWithCaptures(t *testing.T) {
	t.Parallel()
	s := start(t)
	processes := []*service{s, serveOn(t, s.url, s.events)}
	created := s.capture(`{"phone":"9876543210"}`)
	path := leads + "/" + created.at("data", "leadId").(string)
	const each = 8
	var group sync.WaitGroup
	for i := range each {
		group.Go(func() {
			r := processes[i%2].as(http.MethodPatch, path, fmt.Sprintf(`{"customFields":{"p%d":1}}`, i))
			assert.Equal(t, http.StatusOK, r.status, r.raw)
		})
		group.Go(func() {
			r := processes[i%2].capture(fmt.Sprintf(`{"phone":"9876543210","c%d":1,"metadata":{"source":"website"}}`, i))
			assert.Equal(t, http.StatusOK, r.status, r.raw)
		})
	}
	group.Wait()
	last := s.as(http.MethodPatch, path, `{"name":"done"}`)
	require.Len(t, last.at("data", "customFields"), 2*each)
}

// A write that changes nothing is answered as if it had, and leaves nothing on the log.
func TestWrite_ChangesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	lead := leads + "/" + s.capture(`{"phone":"9876543210","name":"Asha","city":"Pune"}`).at("data", "leadId").(string)
	endpoint := s.endpoint()
	was := s.as(http.MethodGet, endpoint, "").is(http.StatusOK)
	s.as(http.MethodPatch, endpoint, `{"enabled":false}`).is(http.StatusOK)
	settings := `{"features":["crm_api"],"stages":["new","won"]}`
	admin := s.mint(ownAccount, "admin")
	account := func() reply {
		return s.send(call{method: http.MethodPut, path: "/api/v1/admin/accounts/acme", credential: admin, body: settings}).is(http.StatusOK)
	}
	before := account().header.Get("X-Log-Position")
	for _, c := range []struct{ path, body string }{
		{lead, `{}`},
		{lead, `{"name":null,"status":" "}`},
		{lead, `{"name":"Asha","status":"NEW","leadTemperature":"warm","customFields":{"city":"Pune","none":null}}`},
		{endpoint, `{}`},
		{endpoint, `{"enabled":false}`},
		{endpoint, fmt.Sprintf(`{"url":%q,"description":%q}`, was.at("data", "url"), was.at("data", "description"))},
	} {
		r := s.as(http.MethodPatch, c.path, c.body).is(http.StatusOK)
		require.Equal(t, before, r.header.Get("X-Log-Position"), "%s %s", c.path, c.body)
	}
	require.Equal(t, before, account().header.Get("X-Log-Position"))
	require.Equal(t, "Asha", s.as(http.MethodPatch, lead, `{}`).at("data", "name"))
	head, err := s.store.Head(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, fmt.Sprint(head))
}
