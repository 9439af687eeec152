package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

const visitors = "/api/v1/crm/visitors/"

// recordActivity records an activity with the JWT of the account.
func (s *service) recordActivity(visitor, body string) reply {
	s.t.Helper()
	return s.as(http.MethodPost, visitors+url.PathEscape(visitor)+"/activity", body)
}

func TestVisitors_ActivityLinkedToLead(t *testing.T) {
	t.Parallel()
	s := start(t)
	first := s.recordActivity("v/1 é",
		`{"type":"page_view","url":"https://example.com/","title":"Home","referrer":"https://google.com/",`+
			`"properties":{"n":1.50}}`).is(http.StatusAccepted)
	require.NotEmpty(t, first.header.Get("X-Log-Position"))
	require.Contains(t, first.raw, `"properties":{"n":1.50}`)
	_, err := time.Parse("2006-01-02T15:04:05.000Z", first.at("data", "at").(string))
	require.NoError(t, err)

	created := s.capture(`{"phone":"9876543210","visitorId":"v/1 é"}`).is(http.StatusCreated)
	path := leads + "/" + created.at("data", "leadId").(string) + "/activity"
	second := s.recordActivity("v/1 é", `{"type":"form_view","at":"2999-01-01T00:00:00Z"}`)
	require.Equal(t, []string{"at"}, second.fieldsNamed())
	second = s.recordActivity("v/1 é", `{"type":"form_view"}`)

	s.capture(`{"phone":"9876543210","visitor_id":"w","metadata":{"source":"whatsapp"}}`).is(http.StatusOK)
	third := s.recordActivity("w", `{"type":"custom","at":"2020-01-01T01:00:00+01:00"}`)
	require.Equal(t, "2020-01-01T00:00:00.000Z", third.at("data", "at"))

	shown := s.as(http.MethodGet, after(path, third), "").is(http.StatusOK)
	require.Equal(t, []any{third.at("data"), first.at("data"), second.at("data")}, shown.at("data"),
		"oldest first, as in the answers")
	require.Nil(t, shown.at("nextCursor"))
	part := s.as(http.MethodGet, path+"?limit=2", "")
	rest := s.as(http.MethodGet, path+"?limit=2&cursor="+part.at("nextCursor").(string), "")
	require.Equal(t, shown.at("data"), append(part.at("data").([]any), rest.at("data").([]any)...))
	require.Equal(t, []string{"cursor"}, s.as(http.MethodGet, path+"?cursor=x", "").fieldsNamed())

	other := s.capture(`{"phone":"9876543211","visitorId":"w"}`)
	require.Equal(t, http.StatusCreated, other.status, "a visitor's id never identifies a lead: %s", other.raw)
	otherPath := leads + "/" + other.at("data", "leadId").(string) + "/activity"
	require.Equal(t, []any{third.at("data")}, s.as(http.MethodGet, after(otherPath, other), "").at("data"))
}

func TestVisitors_ActivityOfAnotherAccount(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	others := s.mint("other", "")
	created := s.capture(`{"phone":"9876543210","visitorId":"v"}`)
	path := leads + "/" + created.at("data", "leadId").(string) + "/activity"
	foreign := s.send(call{
		method: http.MethodPost, path: visitors + "v/activity", credential: others, body: `{"type":"click"}`,
	}).is(http.StatusAccepted)

	require.Equal(t, []any{}, s.as(http.MethodGet, after(path, foreign), "").at("data"))
}

// PostgreSQL can store neither bytes that are not UTF-8 nor NUL. A view that fails at an event stops for all accounts.
func TestVisitors_URLNotText(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.capture(`{"phone":"9876543210","visitorId":"v"}`).at("data", "leadId").(string)
	last := reply{}
	for _, parameter := range []string{"utm_source", "utm_campaign", "utm_term", "gclid", "utm_%00", "x%ff"} {
		last = s.recordActivity("v",
			`{"type":"page_view","url":"https://example.com/?utm_medium=cpc&`+parameter+
				`=a%00%e9"}`).is(http.StatusAccepted)
	}
	touches := s.as(http.MethodGet, after("/api/v1/crm/touches?include=visits&leadId="+id, last), "").is(http.StatusOK)
	require.Len(t, touches.at("data"), 7)
	require.Contains(t, touches.raw, `"utmSource":"a��"`)
}

func TestVisitors_Rejections(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, fields := range map[string][]string{
		`{}`:                                 {"type"},
		`{"type":"view","url":"/x"}`:         {"type", "url"},
		`{"type":"click","title":"a\u0000"}`: {"title"},
		`{"type":"click","properties":{"a":1,"a":2}}`:         {"properties"},
		`{"type":"click","properties":{"a":["\u0000"]}}`:      {"properties"},
		`{"type":"click","properties":7,"at":1,"referrer":2}`: {"referrer", "at", "properties"},
		`[]`: {"body"},
	} {
		require.ElementsMatch(t, fields, s.recordActivity("v", body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	for _, id := range []string{"", "%20", "a%00b", "%ff", strings.Repeat("x", 201)} {
		require.Equal(t, []string{"visitorId"},
			s.as(http.MethodPost, visitors+id+"/activity", `{"type":"click"}`).is(http.StatusBadRequest).fieldsNamed(),
			id)
	}
	s.recordActivity(strings.Repeat("é", 200), `{"type":"click"}`).is(http.StatusAccepted)
	s.as(http.MethodPost, visitors+"activity", `{"type":"click"}`).is(http.StatusMethodNotAllowed)
	s.as(http.MethodGet, visitors+"v/activity", "").is(http.StatusMethodNotAllowed)
	require.Equal(t, http.StatusUnsupportedMediaType, s.send(call{
		method: http.MethodPost, path: visitors + "v/activity", credential: s.jwt, body: "a=1",
		header: map[string]string{"Content-Type": "text/plain"},
	}).status)
	require.NotContains(t, s.log.String(), "%20")
}

// Page views and posts of a form have separate quotas.
func TestVisitors_ActivityQuota(t *testing.T) {
	t.Parallel()
	s := start(t)
	rate, burst := 0.001, 2
	s.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, RateLimit: &rate, RateBurst: &burst,
	})
	var last reply
	for _, status := range []int{http.StatusAccepted, http.StatusAccepted, http.StatusTooManyRequests} {
		last = s.recordActivity("v", `{"type":"page_view"}`).is(status)
	}
	require.Equal(t, `"activity";q=2;w=2000`, last.header.Get("RateLimit-Policy"))
	require.True(t, strings.HasPrefix(last.header.Get("RateLimit"), `"activity";r=0;`))
	require.NotEmpty(t, last.header.Get("Retry-After"))
	captured := s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	require.Equal(t, `"capture";q=2;w=2000`, captured.header.Get("RateLimit-Policy"))
	require.True(t, strings.HasPrefix(captured.header.Get("RateLimit"), `"capture";r=1;`))
}

func TestRefused_HasNoPersonalData(t *testing.T) {
	t.Parallel()
	s := start(t)
	id, value := s.token()
	capture := func(body string) reply {
		return s.send(call{method: http.MethodPost, path: leads, credential: value, body: body})
	}
	one := capture(`{"phone":"9876543210"}`).at("data", "leadId")
	two := capture(`{"email":"asha@example.com","name":"Asha"}`).at("data", "leadId")
	first := capture(`{"phone":"9876543210","name":"Asha","metadata":{"ip":"198.51.100.7"}}`)
	last := s.capture(`{"phone":"9876543210","email":"asha@example.com","name":"Asha","metadata":{"source":"webhook"}}`)
	require.Equal(t, []int{http.StatusConflict, http.StatusConflict}, []int{first.status, last.status})

	const refused = leads + "/refused"
	all := s.as(http.MethodGet, after(refused, last), "").is(http.StatusOK)
	list := all.at("data").([]any)
	require.Len(t, list, 2)
	for i, want := range []map[string]any{
		{
			"source": "api", "code": "DUPLICATE_LEAD_SOURCE", "leadId": one, "otherLeadId": nil,
			"credential": map[string]any{"kind": "token", "id": id},
		},
		{
			"source": "webhook", "code": "DUPLICATE_LEAD_EMAIL", "leadId": two, "otherLeadId": one,
			"credential": map[string]any{"kind": "jwt", "id": "ann"},
		},
	} {
		got := list[i].(map[string]any)
		require.Equal(t, []reply{first, last}[i].header.Get("X-Request-Id"), got["requestId"])
		_, err := time.Parse("2006-01-02T15:04:05.000Z", got["at"].(string))
		require.NoError(t, err)
		delete(got, "requestId")
		delete(got, "at")
		require.Equal(t, want, got)
	}
	for _, personal := range []string{"Asha", "asha", "9876543210", "198.51.100.7", "127.0.0.1", "Go-http-client"} {
		require.NotContains(t, all.raw, personal)
	}

	only := func(query string) int { return len(s.as(http.MethodGet, refused+query, "").at("data").([]any)) }
	require.Equal(t, []int{1, 1, 0, 0, 2}, []int{
		only("?source=webhook"), only("?code=DUPLICATE_LEAD_SOURCE"), only("?source=landing"),
		only("?until=2000-01-01T00:00:00Z"), only("?since=2000-01-01T00:00:00Z"),
	})
	part := s.as(http.MethodGet, refused+"?limit=1", "")
	require.Len(t, s.as(http.MethodGet, refused+"?cursor="+part.at("nextCursor").(string), "").at("data"), 1)
	require.Equal(t, []string{"since", "limit"}, s.as(http.MethodGet, refused+"?since=x&limit=0", "").fieldsNamed())
	require.Equal(t, []string{"since"},
		s.as(http.MethodGet, refused+"?since=0001-01-01T00:30:00%2B14:00", "").fieldsNamed(),
		"a time before the year 1")
	require.Equal(t, []any{},
		s.send(call{method: http.MethodGet, path: refused, credential: s.stranger("")}).at("data"), "another account's")
	require.Equal(t, http.StatusUnauthorized,
		s.send(call{method: http.MethodGet, path: refused, credential: value}).status, "an API token cannot read")
}

func TestVisitors_DeleteForgetsActivity(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	other := s.another()
	activity := `{"type":"page_view","url":"https://example.com/diwali","title":"Asha"}`
	for _, visitor := range []string{"visitor-of-asha", "linked"} {
		s.recordActivity(visitor, activity).is(http.StatusAccepted)
		s.recordActivity(visitor, activity).is(http.StatusAccepted)
	}
	lead := s.capture(`{"email":"ravi@example.com","visitorId":"linked"}`).is(http.StatusCreated)
	shown := leads + "/" + lead.at("data", "leadId").(string) + "/activity"
	require.Len(t, s.as(http.MethodGet, after(shown, lead), "").at("data"), 2)
	pgtest.Exec(t, s.pool, `CREATE SCHEMA as_of`)
	pgtest.Exec(t, s.pool, `COMMENT ON SCHEMA as_of IS 'leadlog copy of a test'`)
	pgtest.Exec(t, s.pool, `CREATE TABLE as_of.visitor_activity AS TABLE views.visitor_activity`)

	require.Equal(t, "Visitor not found",
		s.as(http.MethodDelete, visitors+"unknown", "").is(http.StatusNotFound).at("message"))
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	s.send(call{
		method: http.MethodDelete, path: visitors + "visitor-of-asha", credential: s.mint("other", ""),
	}).is(http.StatusNotFound)
	s.send(call{
		method: http.MethodDelete, path: visitors + "visitor-of-asha", credential: s.mint(ownAccount, "leads:read"),
	}).is(http.StatusForbidden)
	_, token := s.token()
	s.send(call{
		method: http.MethodDelete, path: visitors + "visitor-of-asha", credential: token,
	}).is(http.StatusUnauthorized)
	for _, visitor := range []string{"visitor-of-asha", "linked"} {
		done := s.as(http.MethodDelete, visitors+visitor, "").is(http.StatusOK)
		require.Equal(t, "Visitor forgotten", done.at("message"))
		require.NotEmpty(t, done.header.Get("X-Log-Position"))
		other.as(http.MethodDelete, visitors+visitor, "").is(http.StatusNotFound)
	}
	require.Zero(t, pgtest.Value[int](t, s.pool, `SELECT count(*) FROM person.key WHERE stream LIKE 'visitor-%'`))
	require.Zero(t, pgtest.Value[int](t, s.pool, `SELECT count(*) FROM as_of.visitor_activity`),
		"copies of the views are cleared, too")
	s.requireNoTrace()
	require.Empty(t, s.as(http.MethodGet, shown, "").is(http.StatusOK).at("data"),
		"the lead remains without the activity")

	again := other.recordActivity("linked", activity).is(http.StatusAccepted)
	require.Len(t, s.as(http.MethodGet, after(shown, again), "").at("data"), 1, "the same id has only later activity")
	s.as(http.MethodDelete, visitors+"linked", "").is(http.StatusOK)
	require.Empty(t, s.as(http.MethodGet, shown, "").at("data"))
}
