package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// endpoint registers an endpoint, waits for the view, and returns the path.
func (s *service) endpoint() (path string) {
	s.t.Helper()
	created := s.as(http.MethodPost, endpoints, `{"url":"https://example.com/hook","description":"CRM"}`).
		is(http.StatusCreated)
	path = endpoints + "/" + created.at("data", "webhookId").(string)
	require.Equal(s.t, http.StatusOK, s.as(http.MethodGet, after(path, created), "").status)
	return path
}

func TestWebhooks_Update(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := s.endpoint()
	changed := s.as(http.MethodPatch, path,
		`{"url":"https://example.com/moved","events":["lead.merged","lead.created"],`+
			`"description":null}`).is(http.StatusOK)
	require.Equal(t, "https://example.com/moved", changed.at("data", "url"))
	require.Equal(t, []any{"lead.created", "lead.merged"}, changed.at("data", "events"))
	require.Equal(t, "CRM", changed.at("data", "description"), "null means absent")
	require.Equal(t, changed.at("data"), s.as(http.MethodGet, after(path, changed), "").at("data"))

	same := s.as(http.MethodPatch, path, `{"events":null,"description":"CRM"}`)
	require.Equal(t, changed.at("data", "events"), same.at("data", "events"), same.raw)
	all := s.as(http.MethodPatch, path, `{"events":[]}`)
	require.Equal(t, []any{"*"}, all.at("data", "events"),
		"an empty list selects all events, as at registration: %s", all.raw)

	off := s.as(http.MethodPatch, path, `{"enabled":false,"description":""}`)
	require.Equal(t, "disabled", off.at("data", "state"), off.raw)
	require.Equal(t, "owner", off.at("data", "disabledReason"))
	require.NotNil(t, off.at("data", "disabledAt"))
	require.Equal(t, "", off.at("data", "description"))
	require.Equal(t, off.at("data"), s.as(http.MethodGet, after(path, off), "").at("data"))

	on := s.as(http.MethodPatch, path, `{"enabled":true}`)
	require.Equal(t, "enabled", on.at("data", "state"))
	require.Nil(t, on.at("data", "disabledReason"))
	require.Nil(t, on.at("data", "disabledAt"))
	last := s.last()
	s.as(http.MethodPatch, path, `{"enabled":true}`).is(http.StatusOK)
	require.Equal(t, last, s.last(), "nothing was appended")
}

func TestWebhooks_UpdateFieldErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := s.endpoint()
	for body, fields := range map[string][]string{
		``:                {"body"},
		`{"enable":true}`: {"enable"},
		`{"url":"https://a.example/","filtre":""}`:    {"filtre"},
		`{"enabled":"yes"}`:                           {"enabled"},
		`{"enabled":1}`:                               {"enabled"},
		`{"url":7}`:                                   {"url"},
		`{"url":""}`:                                  {"url"},
		`{"events":"*"}`:                              {"events"},
		`{"events":["webhook.test"]}`:                 {"events"},
		`{"ordering":"leads"}`:                        {"ordering"},
		`{"ordering":true}`:                           {"ordering"},
		`{"rateLimit":-1}`:                            {"rateLimit"},
		`{"rateLimit":"2"}`:                           {"rateLimit"},
		`{"filter":1}`:                                {"filter"},
		`{"headers":["X-Key"]}`:                       {"headers"},
		`{"headers":{"X-Key":1}}`:                     {"headers.X-Key"},
		`{"headers":{"Host":"a","webhook-id":"b"}}`:   {"headers.Host", "headers.webhook-id"},
		`{"url":"https://10.0.0.1/"}`:                 {"url"},
		`{"url":"https://vault.internal/"}`:           {"url"},
		`{"url":"http://example.com","events":["x"]}`: {"url", "events"},
	} {
		require.Equal(t, fields, s.as(http.MethodPatch, path, body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	created := s.as(http.MethodPost, endpoints, `{"url":"https://vault.internal/"}`).is(http.StatusBadRequest)
	require.Equal(t, []string{"url"}, created.fieldsNamed())
	require.Contains(t, created.raw, "must not have the name of a local or private host")
	s.as(http.MethodPost, endpoints, `{"url":"https://does.not.resolve.example/"}`).is(http.StatusCreated)
}

func TestWebhooks_OrderLimitHeaders(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.as(http.MethodPost, endpoints,
		`{"url":"https://example.com/hook","ordering":"lead","rateLimit":2.5,"headers":{"authorization":"Bearer t0p",`+
			`"X-Shop":"7"}}`).is(http.StatusCreated)
	path := endpoints + "/" + created.at("data", "webhookId").(string)
	shown := s.as(http.MethodGet, after(path, created), "").is(http.StatusOK)
	for _, got := range []reply{created, shown} {
		require.Equal(t, "lead", got.at("data", "ordering"))
		require.Equal(t, 2.5, got.at("data", "rateLimit"))
		require.Equal(t, map[string]any{"Authorization": "***", "X-Shop": "***"}, got.at("data", "headers"))
		require.NotContains(t, got.raw, "t0p")
	}
	changed := s.as(http.MethodPatch, path, `{"ordering":"none","headers":{"X-Shop":"s3cret"}}`).is(http.StatusOK)
	require.Equal(t, "none", changed.at("data", "ordering"))
	require.Equal(t, 2.5, changed.at("data", "rateLimit"))
	require.Equal(t, map[string]any{"X-Shop": "***"}, changed.at("data", "headers"))
	again := s.as(http.MethodPatch, path, `{"headers":{"X-Shop":"0ther"}}`).is(http.StatusOK)
	trail := s.as(http.MethodGet, after("/api/v1/crm/audit/events?type=webhook.*", again), "").is(http.StatusOK)
	require.Contains(t, trail.raw, `"headers":{"old":"***","new":"***"}`)
	none := s.as(http.MethodPatch, path, `{"headers":{}}`).is(http.StatusOK)
	require.Empty(t, none.at("data", "headers"))
	for _, secret := range []string{"t0p", "s3cret", "0ther"} {
		require.NotContains(t, trail.raw+s.log.String(), secret)
		require.NotContains(t, s.as(http.MethodGet, after("/api/v1/crm/events", none), "").raw, secret)
	}
}

func TestConsole_EndpointSettings(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	s := b.service
	path := s.endpoint()
	page := "/console" + strings.Replace(path, "/endpoints", "", 1)
	s.as(http.MethodPost, leads, `{"phone":"+919876500100","metadata":{"source":"website"}}`).is(http.StatusCreated)
	require.Contains(t, b.get(page).body, "Delivery settings")
	preview := b.post(page+"/filter", "filter", "type == 'lead.created'", "ordering", "lead")
	require.Equal(t, http.StatusOK, preview.status)
	require.Regexp(t, `1 of the last \d+ events match`, preview.body)
	require.Contains(t, preview.body, `<option value="lead" selected>`, "the form keeps the input")
	require.Equal(t, "none", s.as(http.MethodGet, path, "").at("data", "ordering"), "nothing is changed")

	require.Equal(t, http.StatusSeeOther, b.post(page+"/settings",
		"filter", "type == 'lead.created'", "ordering", "lead", "rateLimit", "2.5", "headers",
		"Authorization: Bearer t0p\r\nX-Shop: 7").status)
	set := s.as(http.MethodGet, path, "")
	require.Equal(t, map[string]any{"Authorization": "***", "X-Shop": "***"}, set.at("data", "headers"))
	require.Equal(t, 2.5, set.at("data", "rateLimit"))
	shown := b.get(page).body
	require.Contains(t, shown, "Set: Authorization, X-Shop.")
	require.NotContains(t, shown, "t0p")
	require.Equal(t, http.StatusSeeOther, b.post(page+"/settings", "ordering", "none").status)
	kept := s.as(http.MethodGet, path, "")
	require.Len(t, kept.at("data", "headers"), 2, "an empty field keeps the headers")
	require.Equal(t, http.StatusSeeOther, b.post(page+"/settings", "noHeaders", "yes").status)
	require.Empty(t, s.as(http.MethodGet, path, "").at("data", "headers"))
	for name, c := range map[string]struct{ field, value, text string }{
		"filter": {"filter", "type ==", "is not valid at"}, "rate": {"rateLimit", "fast", "must be a number"},
		"order":  {"ordering", "x", "must be none, lead or endpoint"},
		"header": {"headers", "Host: a", "Host is set by leadlog"},
		"line":   {"headers", "nothing", "must be one header on each line"},
	} {
		again := b.post(page+"/settings", c.field, c.value)
		require.Equal(t, http.StatusBadRequest, again.status, name)
		require.Contains(t, again.body, c.text, name)
	}
	require.Equal(t, http.StatusBadRequest, b.post(page+"/filter", "filter", "type ==").status)
}

func TestWebhooks_FilterPreview(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := s.endpoint()
	for i, status := range []string{"new", "won", "won"} {
		s.as(http.MethodPost, leads,
			fmt.Sprintf(`{"phone":"+91987650010%d","status":%q,"metadata":{"source":"website","utm_source":"google"}}`,
				i, status)).is(http.StatusCreated)
	}
	s.as(http.MethodPost, leads, `{"phone":"+919876500100","name":"Asha","metadata":{"source":"whatsapp"}}`).
		is(http.StatusOK)
	preview := func(filter string) reply {
		return s.as(http.MethodPost, path+"/filter/preview", fmt.Sprintf(`{"filter":%q}`, filter)).is(http.StatusOK)
	}
	for filter, want := range map[string][3]int{ // events, matched, failed
		`type == 'lead.merged'`: {4, 1, 0},
		`data.status == 'won'`:  {4, 2, 0},
		`changes.exists(c, c.field == 'name' && c.new == 'Asha')`:              {4, 1, 0},
		`has(touch.utmSource) && touch.utmSource == 'google'`:                  {4, 3, 0},
		`data.customFields.plan == 'gold'`:                                     {4, 0, 4},
		`has(data.customFields.plan) && data.customFields.plan == 'x'`:         {4, 0, 0},
		`type.startsWith('lead.') || (has(data.prefix) && size(changes) == 0)`: {4, 4, 0},
	} {
		got := preview(filter)
		require.EqualValues(t, want[0], got.at("data", "events"), filter)
		require.EqualValues(t, want[1], got.at("data", "matched"), filter)
		require.EqualValues(t, want[2], got.at("data", "failed"), filter)
		require.Len(t, got.at("data", "sample"), want[1], filter)
	}
	sample := preview(`type == 'lead.merged'`).at("data", "sample").([]any)[0].(map[string]any)
	require.Equal(t, "Asha", sample["data"].(map[string]any)["name"])
	late := s.as(http.MethodPost, path+"/filter/preview", `{"filter":"true","since":"2999-01-01T00:00:00Z"}`).
		is(http.StatusOK)
	require.EqualValues(t, 0, late.at("data", "events"))
	for body, fields := range map[string][]string{
		`{}`: {"filter"}, `{"filter":"type =="}`: {"filter"}, `{"filter":"'text'"}`: {"filter"},
		`{"filter":"body.phone"}`: {"filter"}, `{"filter":"true","since":"today"}`: {"since"},
		`{"filter":"true","limit":3}`: {"limit"},
	} {
		require.Equal(t, fields,
			s.as(http.MethodPost, path+"/filter/preview", body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	require.Equal(t, []string{"filter"},
		s.as(http.MethodPatch, path, `{"filter":"type =="}`).is(http.StatusBadRequest).fieldsNamed())
	require.Equal(t, []string{"filter"},
		s.as(http.MethodPatch, path,
			`{"filter":"changes.all(a, changes.all(b, changes.all(c, changes.all(d, a == b && `+
				`c == d))))"}`).is(http.StatusBadRequest).fieldsNamed(), "the filter may exceed the cost limit")
	set := s.as(http.MethodPatch, path, `{"filter":" data.status == 'won' "}`).is(http.StatusOK)
	require.Equal(t, "data.status == 'won'", set.at("data", "filter"))
	require.EqualValues(t, 0, set.at("data", "filtered"))
}

func TestWebhooks_SecretShownOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := s.endpoint()
	rotated := s.as(http.MethodPost, path+"/secret/rotate", "").is(http.StatusOK)
	require.Equal(t, "no-store", rotated.header.Get("Cache-Control"))
	secret := rotated.at("data", "secret").(string)
	require.True(t, strings.HasPrefix(secret, "whsec_"))
	until, err := time.Parse(time.RFC3339, rotated.at("data", "previousUntil").(string))
	require.NoError(t, err)
	require.False(t, until.IsZero())
	require.NotContains(t, s.as(http.MethodGet, after(path, rotated), "").raw, "whsec_")
	require.NotContains(t, s.log.String(), secret)
}

func TestWebhooks_TestAndReplay(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := s.endpoint()
	tested := s.as(http.MethodPost, path+"/test", "").is(http.StatusAccepted)
	require.Len(t, tested.at("data", "deliveryId"), 26)
	require.NotEmpty(t, tested.header.Get("X-Log-Position"))

	replayed := s.as(http.MethodPost, path+"/replay",
		`{"since":"2026-01-01T00:00:00+05:30","until":"2026-02-01T00:00:00Z"}`).is(http.StatusAccepted)
	require.Equal(t, map[string]any{
		"webhookId": strings.TrimPrefix(path, endpoints+"/"), "generation": 1.0,
		"since": "2025-12-31T18:30:00.000Z", "until": "2026-02-01T00:00:00.000Z",
	}, replayed.at("data"))
	require.Equal(t, "REPLAY_RUNNING",
		s.as(http.MethodPost, path+"/replay", `{"since":"2026-01-01T00:00:00Z"}`).is(http.StatusConflict).at("code"))

	for body, fields := range map[string][]string{
		`{}`:                               {"since"},
		`{"since":"yesterday","until":7}`:  {"since", "until"},
		`{"since":"2999-01-01T00:00:00Z"}`: {"since"},
		`{"since":"2026-02-01T00:00:00Z","until":"2026-01-01T00:00:00Z"}`: {"until"},
	} {
		require.Equal(t, fields,
			s.as(http.MethodPost, path+"/replay", body).is(http.StatusBadRequest).fieldsNamed(), body)
	}

	s.as(http.MethodPatch, path, `{"enabled":false}`)
	for _, request := range []call{{path: path + "/test"}, {
		path: path + "/replay", body: `{"since":"2026-01-01T00:00:00Z"}`,
	}} {
		r := s.as(http.MethodPost, request.path, request.body).is(http.StatusConflict)
		require.Equal(t, "WEBHOOK_DISABLED", r.at("code"))
	}
}

func TestWebhooks_RetryFailed(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	s := b.service
	s.fanOut()
	path, other := s.endpoint(), s.endpoint()
	var deliveries [4]string
	for i := range deliveries {
		to := path
		if i == 3 {
			to = other
		}
		tested := s.as(http.MethodPost, to+"/test", "").is(http.StatusAccepted)
		deliveries[i] = tested.at("data", "deliveryId").(string)
		s.as(http.MethodGet, after(to+"/deliveries/"+deliveries[i], tested), "").is(http.StatusOK)
	}
	finish := func(id, state, at string) {
		pgtest.Exec(t, s.pool, `DELETE FROM delivery.queue WHERE delivery_id = $1`, id)
		pgtest.Exec(t, s.pool, `UPDATE delivery.delivery SET state = $2, finished_at = $3 WHERE delivery_id = $1`,
			id, state, at)
	}
	again := func() {
		finish(deliveries[0], "failed", "2026-03-01T10:00:00Z")
		finish(deliveries[1], "failed", "2026-03-01T11:00:00Z")
		finish(deliveries[2], "delivered", "2026-03-01T12:00:00Z")
		finish(deliveries[3], "failed", "2026-03-01T12:00:00Z")
	}
	states := func(r reply) (states [4]string) {
		s.as(http.MethodGet, after(path+"/deliveries", r), "").is(http.StatusOK)
		for i, id := range deliveries {
			states[i] = pgtest.Value[string](t, s.pool,
				`SELECT state FROM delivery.delivery WHERE delivery_id = '`+id+`'`)
		}
		return states
	}
	again()
	for query, found := range map[string][]string{
		"": {deliveries[2], deliveries[1], deliveries[0]}, "state=failed": {deliveries[1], deliveries[0]},
		"state=Delivered&type=webhook.test": {deliveries[2]},
		"type=lead.created":                 nil,
	} {
		listed := s.as(http.MethodGet, path+"/deliveries?"+query, "").is(http.StatusOK)
		console := b.get("/console" + strings.Replace(path, endpoints, "/webhooks", 1) + "?" + strings.ToLower(query)).
			body
		require.Len(t, listed.at("data"), len(found), query)
		for i, id := range found {
			require.Equal(t, id, listed.at("data").([]any)[i].(map[string]any)["deliveryId"], query)
		}
		require.Equal(t, len(found), strings.Count(console, "<tr data-key"), query)
		require.Equal(t, strings.Count(query, "="), strings.Count(console, `class="chip"`), query)
	}
	require.Equal(t, []string{"state", "type", "limit"},
		s.as(http.MethodGet, path+"/deliveries?state=lost&type=x&limit=0", "").is(http.StatusBadRequest).fieldsNamed())
	r := s.as(http.MethodPost, path+"/retry-failed", `{"since":"2026-03-01T16:30:00+05:30"}`).is(http.StatusAccepted)
	require.Equal(t, map[string]any{
		"webhookId": strings.TrimPrefix(path, endpoints+"/"), "since": "2026-03-01T11:00:00.000Z", "queued": 1.0,
		"more": false,
	}, r.at("data"))
	require.NotEmpty(t, r.header.Get("X-Log-Position"))
	require.Equal(t, [4]string{"failed", "queued", "delivered", "failed"}, states(r))

	again()
	page := "/console" + strings.Replace(path, endpoints, "/webhooks", 1)
	require.Contains(t, b.get(page).body, "Retry failed")
	require.Equal(t, http.StatusSeeOther, b.post(page+"/retry-failed", "since", "2026-03-01T10:00").status)
	require.Equal(t, [4]string{"queued", "queued", "delivered", "failed"},
		states(s.as(http.MethodPost, path+"/test", "")))
	require.Equal(t, http.StatusBadRequest, b.post(page+"/retry-failed", "since", "2999-03-01T10:00").status)

	for body, fields := range map[string][]string{
		`{}`: {"since"}, `{"since":"yesterday"}`: {"since"}, `{"since":"2999-01-01T00:00:00Z"}`: {"since"},
	} {
		require.Equal(t, fields,
			s.as(http.MethodPost, path+"/retry-failed", body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	before := s.last()
	r = s.as(http.MethodPost, path+"/retry-failed", `{"since":"2026-03-02T00:00:00Z"}`).is(http.StatusAccepted)
	require.Equal(t, 0.0, r.at("data", "queued"))
	require.NotEmpty(t, r.header.Get("X-Log-Position"))
	require.Equal(t, before, s.last(), "without a new failure nothing is appended")

	s.as(http.MethodPatch, path, `{"enabled":false}`)
	r = s.as(http.MethodPost, path+"/retry-failed", `{"since":"2026-03-01T00:00:00Z"}`).is(http.StatusConflict)
	require.Equal(t, "WEBHOOK_DISABLED", r.at("code"))
}

func TestWebhooks_OfAnotherAccount(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := s.endpoint()
	deleted := s.endpoint()
	deletion := s.as(http.MethodDelete, deleted, "").is(http.StatusOK)
	s.as(http.MethodGet, after(deleted, deletion), "").is(http.StatusNotFound)
	other, reader := s.stranger(""), s.mint(ownAccount, "webhooks:read")
	for _, c := range []call{
		{method: http.MethodPatch, path: "", body: `{"enabled":false}`},
		{method: http.MethodPost, path: "/secret/rotate"},
		{method: http.MethodPost, path: "/test"},
		{method: http.MethodPost, path: "/replay", body: `{"since":"2026-01-01T00:00:00Z"}`},
		{method: http.MethodPost, path: "/retry-failed", body: `{"since":"2026-01-01T00:00:00Z"}`},
		{method: http.MethodPost, path: "/deliveries/01KAJ8Q6ZJ0000000000000001/retry"},
	} {
		at := func(endpoint, credential string) call {
			return call{c.method, endpoint + c.path, credential, c.body, nil}
		}
		require.Equal(t, http.StatusForbidden, s.send(at(path, reader)).status, c.path)
		require.Equal(t, http.StatusUnauthorized, s.send(at(path, "")).status, c.path)
		for name, missing := range map[string]call{
			"another's": at(path, other), "deleted": at(deleted, s.jwt), "malformed": at(endpoints+"/x", s.jwt),
			"unknown": at(endpoints+"/01KAJ8Q6ZJ0000000000000001", s.jwt),
		} {
			r := s.send(missing)
			require.Equal(t, http.StatusNotFound, r.status, "%s %s", name, c.path)
			require.Equal(t, "Webhook endpoint not found", r.at("message"), "%s %s", name, c.path)
		}
	}
	s.fanOut()
	retried := s.as(http.MethodPost, path+"/deliveries/01KAJ8Q6ZJ0000000000000001/retry", "").is(http.StatusNotFound)
	require.Equal(t, "Delivery not found", retried.at("message"))
}

const endpoints = "/webhooks/endpoints"

func TestWebhooks_Lifecycle(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.as(http.MethodPost, endpoints,
		`{"url":"https://example.com/hook","events":["lead.created"],"description":"d"}`).is(http.StatusCreated)
	require.Equal(t, "no-store", created.header.Get("Cache-Control"))
	require.True(t, strings.HasPrefix(created.at("data", "secret").(string), "whsec_"))
	id := created.at("data", "webhookId").(string)

	shown := s.as(http.MethodGet, after(endpoints+"/"+id, created), "").is(http.StatusOK)
	want := created.at("data").(map[string]any)
	delete(want, "secret")
	require.Equal(t, want, shown.at("data"), "the record equals the answer, without the secret")
	require.Len(t, s.as(http.MethodGet, after(endpoints, created), "").at("data"), 1)

	deleted := s.as(http.MethodDelete, endpoints+"/"+id, "")
	require.Equal(t, `{"success":true,"message":"Webhook endpoint deleted"}`, deleted.raw)
	again := s.as(http.MethodDelete, endpoints+"/"+id, "").is(http.StatusNotFound)
	require.Equal(t, `{"success":false,"message":"Webhook endpoint not found"}`, again.raw)
	s.as(http.MethodGet, after(endpoints+"/"+id, deleted), "").is(http.StatusNotFound)
}

func TestWebhooks_FieldErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, fields := range map[string][]string{
		`{}`: {"url"},
		`{"url":"ftp://x","events":"all","description":7}`:           {"events", "description", "url"},
		`{"url":"https://example.com","events":[1]}`:                 {"events"},
		`{"url":"https://example.com","events":["lead.nope"]}`:       {"events"},
		`{"url":"https://example.com","description":["not a text"]}`: {"description"},
	} {
		require.Equal(t, fields, s.as(http.MethodPost, endpoints, body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	require.Empty(t, s.as(http.MethodGet, endpoints, "").at("data"))
}
