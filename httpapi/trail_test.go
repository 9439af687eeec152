package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// trail waits for n matching records of the audit trail and returns them. Reads are recorded once a minute, so there
// may be more.
func (s *service) trail(query string, n int) (records []map[string]any) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		records = nil
		for _, item := range s.as(http.MethodGet, "/api/v1/crm/audit/events?limit=200"+query,
			"").is(http.StatusOK).body["data"].([]any) {
			records = append(records, item.(map[string]any))
		}
		return len(records) >= n
	}, soon, pause, "%s: %v", query, records)
	return records
}

func TestTrail_SettingsOldAndNew(t *testing.T) {
	t.Parallel()
	s := start(t)
	admin := s.mint(ownAccount, "admin")
	configure := func(body string) {
		s.send(call{
			method: http.MethodPut, path: accounts + s.account, credential: admin, body: body,
		}).is(http.StatusOK)
	}
	configure(`{"name":"Acme","features":["crm_api"],"region":"IN"}`)
	configure(`{"name":"Acme","features":["crm_api"],"region":"DE"}`)
	records := s.trail("&type=account.configured&actor=user:ann", 2)
	changed := records[1]
	require.Equal(t, map[string]any{
		// the default of the region
		"region": map[string]any{"old": "IN", "new": "DE"}, "currency": map[string]any{"old": "INR", "new": "EUR"},
	}, changed["data"])
	require.Equal(t, s.account, changed["subject"])
	require.NotEmpty(t, changed["ip"])

	// A setting that is given with its default has not changed. One that was left at its default is shown with it.
	configure(`{"name":"Acme Ltd","features":["crm_api"],"region":"DE","tokensSeeLeads":true,"visitorDays":395,` +
		`"quarantine":false,"quarantineDays":30,"wonStages":["won"]}`)
	configure(`{"name":"Acme Ltd","features":["crm_api"],"region":"DE","quarantine":true,"quarantineDays":7,` +
		`"maskInConsole":false}`)
	records = s.trail("&type=account.configured&actor=user:ann", 4)
	require.Equal(t, map[string]any{"name": map[string]any{"old": "Acme", "new": "Acme Ltd"}}, records[2]["data"])
	require.Equal(t, map[string]any{
		"quarantine":     map[string]any{"old": false, "new": true},
		"quarantineDays": map[string]any{"old": 30.0, "new": 7.0},
		"maskInConsole":  map[string]any{"old": true, "new": false},
	}, records[3]["data"])

	s.token()
	hook := s.as(http.MethodPost, "/webhooks/endpoints", `{"url":"https://example.com/a","events":["lead.created"]}`).
		is(http.StatusCreated)
	id := hook.at("data", "webhookId").(string)
	s.as(http.MethodPatch, "/webhooks/endpoints/"+id, `{"url":"https://example.org/b"}`).is(http.StatusOK)
	s.as(http.MethodPost, "/webhooks/endpoints/"+id+"/secret/rotate", ``).is(http.StatusOK)
	intake := s.as(http.MethodPost, "/api/v1/crm/intakes",
		`{"name":"Poll","kind":"typeform",`+
			`"secret":"the-first-secret"}`).is(http.StatusCreated).at("data", "intakeId").(string)
	s.as(http.MethodPatch, "/api/v1/crm/intakes/"+intake,
		`{"name":"Survey","expectEvery":"24h","secret":"the-second-secret"}`).is(http.StatusOK)
	records = s.trail("&type=webhook.*&subject="+id, 3)
	require.Equal(t, "https://example.com/a", records[0]["data"].(map[string]any)["url"])
	require.Equal(t, map[string]any{
		"url": map[string]any{"old": "https://example.com/a", "new": "https://example.org/b"},
	}, records[1]["data"])
	require.Equal(t, "webhook.rotated", records[2]["type"])
	data := s.trail("&type=intake.changed", 1)[0]["data"].(map[string]any)
	require.Equal(t, map[string]any{"old": "Poll", "new": "Survey"}, data["name"])
	require.Equal(t, map[string]any{"old": nil, "new": "24h"}, data["expectEvery"])
	require.Equal(t, map[string]any{"old": "***", "new": "***"}, data["secret"])

	exportedCSV := s.send(call{
		method: http.MethodGet, path: "/api/v1/crm/audit/events", credential: s.jwt,
		header: map[string]string{"Accept": "text/csv"},
	}).is(http.StatusOK).raw
	require.Contains(t, exportedCSV, "id,type,at,actor,subject,ip,userAgent,requestId,data\n")
	require.NotContains(t, exportedCSV, "-secret")
	require.NotContains(t, exportedCSV, "whsec_")
	require.Contains(t, exportedCSV, "token.created")
	for _, query := range []string{"type=lead.created", "type=x*", "since=x", "cursor=x"} {
		s.as(http.MethodGet, "/api/v1/crm/audit/events?"+query, "").is(http.StatusBadRequest)
	}
	s.send(call{
		method: http.MethodGet, path: "/api/v1/crm/audit/events", credential: s.mint(ownAccount, "leads:read"),
	}).is(http.StatusForbidden)
	require.Equal(t,
		s.as(http.MethodGet, "/api/v1/crm/audit/events?type=webhook.*", "").is(http.StatusOK).body["data"],
		s.as(http.MethodGet, "/api/v1/crm/audit/events?type=Webhook.*", "").is(http.StatusOK).body["data"],
		"in any letter case, as for token events")
	require.Empty(t,
		s.send(call{
			method: http.MethodGet, path: "/api/v1/crm/audit/events?type=webhook.*", credential: s.stranger(""),
		}).is(http.StatusOK).body["data"])
}

func TestTrail_ReadingOfPersonalData(t *testing.T) {
	t.Parallel()
	s := start(t)
	lead := s.leadID(s.capture(`{"name":"Asha Rao","phone":"9876543210","email":"asha@example.com"}`))
	other := s.capture(`{"name":"Bela","phone":"9876543211"}`).at("data", "leadId").(string)
	read := func(path string) {
		s.as(http.MethodGet, "/api/v1/crm/leads"+path, "").is(http.StatusOK)
	}
	for _, path := range []string{"", "/events", "/sources", "/activity", "?asOf=2030-01-01T00:00:00Z"} {
		read("/" + lead + path)
	}
	read("/" + other)
	s.as(http.MethodGet, "/api/v1/crm/leads/"+strings.Repeat("0", 26), "").is(http.StatusNotFound)
	s.trail("&type=data.revealed&subject="+other, 1)
	revealed := s.trail("&type=data.revealed&subject="+lead, 1)
	require.Less(t, len(revealed), 4, "one record a minute for each lead")
	require.Equal(t, map[string]any{"leadId": lead, "what": "lead"}, revealed[0]["data"])

	for range 2 {
		read("?phone=9876543210&q=asha")
		s.trail("&type=data.searched", 1) // an answer waits only briefly for its record
		read("?q=asha")
		read("")
	}
	searched := s.trail("&type=data.searched", 3)
	require.Equal(t, map[string]any{"what": "leads", "fields": []any{"phone", "q"}}, searched[0]["data"])
	require.Contains(t, searched[len(searched)-1]["data"], "what")

	s.send(call{
		method: http.MethodGet, path: "/api/v1/crm/sources/history?source=api", credential: s.jwt,
		header: map[string]string{"Accept": "application/x-ndjson"},
	}).is(http.StatusOK)
	exported := s.trail("&type=data.exported", 2)
	started, ended := exported[0]["data"].(map[string]any), exported[1]["data"].(map[string]any)
	require.Equal(t, exported[0]["subject"], exported[1]["subject"])
	require.Equal(t, map[string]any{"source": "api"}, started["filter"])
	require.NotContains(t, started, "rows")
	require.EqualValues(t, 2, ended["rows"])
	require.Equal(t, true, ended["complete"])

	s.as(http.MethodPost, "/api/v1/crm/leads/"+other+"/contacts/release", `{"phone":"9876543211"}`)
	s.as(http.MethodDelete, "/api/v1/crm/leads/"+lead, "").is(http.StatusOK)
	s.trail("&type=lead.erased&subject="+lead, 1)
	records, err := json.Marshal(s.trail("&type=data.*", 7))
	require.NoError(t, err)
	for _, personal := range []string{"Asha", "asha", "98765"} {
		require.NotContains(t, string(records), personal)
	}
}

// The answer to a write also shows the lead. A write that appends no other event still appends a record of the read.
func TestTrail_ReadingByWrites(t *testing.T) {
	t.Parallel()
	s := start(t)
	capture := func(phone string) string {
		return s.capture(`{"name":"Asha Rao","phone":"`+phone+`"}`).is(http.StatusCreated).at("data", "leadId").(string)
	}
	patched, dry, joined, from := capture("9876543210"), capture("9876543211"),
		capture("9876543212"), capture("9876543213")
	changed := capture("9876543214")
	path := func(id string) string { return "/api/v1/crm/leads/" + id }
	s.as(http.MethodPatch, path(changed), `{"status":"won"}`).is(http.StatusOK)
	s.as(http.MethodPost, path(joined)+"/join", `{"from":"`+from+`"}`).is(http.StatusOK)
	s.as(http.MethodPatch, path(patched), `{"status":"new"}`).is(http.StatusOK)
	s.as(http.MethodPost, "/api/v1/crm/leads?dryRun=true", `{"phone":"9876543211","metadata":{"source":"website"}}`).
		is(http.StatusOK)
	s.as(http.MethodPost, path(joined)+"/join", `{"from":"`+from+`"}`).is(http.StatusOK)
	s.as(http.MethodPost, "/api/v1/crm/leads?dryRun=true", `{"phone":"9876543299"}`).is(http.StatusCreated)
	writer := s.mint(ownAccount, "leads:write")
	s.send(call{
		method: http.MethodPatch, path: path(changed), credential: writer, body: `{"status":"won"}`,
	}).is(http.StatusOK)
	var subjects []any
	for _, record := range s.trail("&type=data.*", 3) {
		subjects = append(subjects, record["subject"])
	}
	require.ElementsMatch(t, []any{patched, dry, joined}, subjects)
}

// net/url drops parameters with a semicolon, but the list reads them.
func TestTrail_SearchWithSemicolon(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.as(http.MethodGet, "/api/v1/crm/leads?q=asha;", "").is(http.StatusOK)
	s.trail("&type=data.searched", 1)
	long := strings.Repeat("n", 51)
	export := call{
		method: http.MethodGet, path: "/api/v1/crm/sources/history?source=api&campaign=a;b&" + long + "=1",
		credential: s.jwt, header: map[string]string{"Accept": "application/x-ndjson"},
	}
	s.send(export).is(http.StatusOK)
	records := s.trail("&type=data.*", 3)
	require.Equal(t, map[string]any{"what": "leads", "fields": []any{"q"}}, records[0]["data"])
	require.Equal(t, map[string]any{"source": "api", "campaign": "a;b"}, records[1]["data"].(map[string]any)["filter"])
}

// A caller may put personal data into any parameter. The record of an export is not erased with the person, so it has
// only the values of parameters that filter lists, and of these none with an email.
func TestTrail_ExportFilterWithoutPersonalData(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, query := range []string{
		"source=api&campaign=diwali&name=Asha+Rao&contact=9876543210&Asha=1",
		"source=api&campaign=asha@example.com&medium=asha%2540example.com",
		"source=api&q=Asha&phone=9876543210&email=asha@example.com",
	} {
		path := "/api/v1/crm/touches?" + query
		s.send(call{
			method: http.MethodGet, path: path, credential: s.jwt, header: map[string]string{"Accept": "text/csv"},
		}).is(http.StatusOK)
	}
	records := s.trail("&type=data.exported", 6)
	var filters []any
	for i := 0; i < len(records); i += 2 { // each export has two records
		filters = append(filters, records[i]["data"].(map[string]any)["filter"])
	}
	require.Equal(t, []any{
		map[string]any{"source": "api", "campaign": "diwali"},
		map[string]any{"source": "api", "campaign": "***", "medium": "***"},
		map[string]any{"source": "api", "q": "***", "phone": "***", "email": "***"},
	}, filters)
}
