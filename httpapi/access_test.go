package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi"
)

// stored is the body of an earlier arrival. It contains each of secrets.
const stored = `{"name":"Asha Rao","phone":"9876543210","email":"asha@example.com","status":"won",` +
	`"leadTemperature":"hot",` +
	`"opportunityValue":4711,"customFields":{"diagnosis":"asthma","city":"Pune"},"metadata":{"source":"landing",` +
	`"utm_term":"inhaler"}}`

var secrets = []string{"Asha", "asha@", "won", "hot", "4711", "diagnosis", "asthma", "Pune", "landing", "inhaler"}

// everyCapture sends one arrival as a capture, in a batch and as a dry run, and repeats each.
func (s *service) everyCapture(credential, key string, header map[string]string, body string) map[string]reply {
	s.t.Helper()
	send := func(path, key string) reply {
		with := map[string]string{"Idempotency-Key": key}
		for name, value := range header {
			with[name] = value
		}
		r := s.send(call{
			method: http.MethodPost, path: path, credential: credential, body: body, header: with,
		}).is(http.StatusOK)
		if strings.Contains(path, "batch") {
			require.NoError(s.t, json.Unmarshal([]byte(r.raw), &r.body))
			require.EqualValues(s.t, http.StatusOK, r.at("status"), r.raw)
		}
		return r
	}
	replies := map[string]reply{}
	replies["dry run"] = send(leads+"?dryRun=true", "dry-"+key)
	replies["single"] = send(leads, key)
	replies["replay"] = send(leads, key)
	replies["dry run of a replay"] = send(leads+"?dryRun=true", key)
	replies["batch"] = send(leads+"/batch", "batch-"+key)
	replies["replayed batch"] = send(leads+"/batch", "batch-"+key)
	require.Equal(s.t, "true", replies["replay"].header.Get("Idempotent-Replayed"))
	require.Equal(s.t, true, replies["replayed batch"].at("replayed"))
	return replies
}

// An API token could once read personal data: the answer to a dry run with a phone number had the name, email and
// custom fields.
func TestCapture_HidesStoredFields(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.CORSOrigins = []string{"https://shop.example"} })
	created := s.capture(stored).is(http.StatusCreated)
	_, value := s.token()
	fromPage := map[string]string{"Origin": "https://shop.example"}
	const body = `{"phone":"9876543210","city":"Goa","metadata":{"source":"website"}}`

	for name, caller := range map[string]struct {
		credential string
		header     map[string]string
	}{
		"token-in-page":     {value, fromPage},
		"jwt-in-page":       {s.jwt, fromPage},
		"origin-not-listed": {value, map[string]string{"Origin": "null"}},
		"jwt-without-read":  {s.mint(ownAccount, "leads:write"), nil},
	} {
		for way, r := range s.everyCapture(caller.credential, name, caller.header, body) {
			requireRequestFieldsOnly(t, created, r, name+", "+way)
		}
	}
	for name, credential := range map[string]string{"token": value, "jwt": s.jwt} {
		for way, r := range s.everyCapture(credential, name, nil, body) {
			require.Equal(t, "Asha Rao", r.at("data", "name"), "%s, %s", name, way)
			require.Equal(t, map[string]any{"diagnosis": "asthma", "city": "Goa"}, r.at("data", "customFields"))
		}
	}

	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, TokensSeeLeads: new(false)})
	for way, r := range s.everyCapture(value, "blind", nil, body) {
		requireRequestFieldsOnly(t, created, r, "blind token, "+way)
	}
	for way, r := range s.everyCapture(s.jwt, "reader", nil, body) {
		require.Equal(t, "Asha Rao", r.at("data", "name"), way)
	}
}

// requireRequestFieldsOnly requires that an answer about a known person has only the field that the request set, a
// city.
func requireRequestFieldsOnly(t *testing.T, created, r reply, name string) {
	t.Helper()
	require.Equal(t, true, r.at("merged"), name)
	of, ok := r.at("data").(map[string]any)
	require.True(t, ok, r.raw)
	require.NotEmpty(t, of["updatedAt"])
	delete(of, "updatedAt")
	require.Equal(t, map[string]any{
		"leadId": created.at("data", "leadId"), "contactUID": created.at("data", "contactUID"),
		"createdAt": created.at("data", "createdAt"), "name": "", "phone": "+919876543210", "email": "", "status": "",
		"leadTemperature": "", "source": "website", "opportunityValue": nil, "opportunityId": nil,
		"customFields": map[string]any{"city": "Goa"},
	}, of, name)
	requireNoSecret(t, r)
}

func TestCapture_ShowsRequestFields(t *testing.T) {
	t.Parallel()
	s := start(t)
	writer := s.mint(ownAccount, "leads:write")
	send := func(body string) reply {
		return s.send(call{method: http.MethodPost, path: leads, credential: writer, body: body})
	}
	created := send(`{"phone":"9876543210","email":"asha@example.com"}`).is(http.StatusCreated)
	for member, want := range map[string]any{
		"name": "asha", "status": "new", "leadTemperature": "warm", "source": "api",
	} {
		require.Equal(t, want, created.at("data", member), "a new lead has only data of the request")
	}
	merged := send(`{"name":"Asha","phone":"9876543210","status":"WON","leadTemperature":"hot",` +
		`"opportunityValue":"₹1,200","a":{"b":[1]},` +
		`"metadata":{"source":"website"}}`).is(http.StatusOK)
	for member, want := range map[string]any{
		"name": "Asha", "phone": "+919876543210", "email": "", "status": "won", "leadTemperature": "hot",
		"opportunityValue": 1200.0, "source": "website",
		"customFields": map[string]any{"a": map[string]any{"b": []any{1.0}}},
	} {
		require.Equal(t, want, merged.at("data", member), member)
	}
	require.NotEmpty(t, merged.at("data", "opportunityId"))

	send(`{"phone":"9876543211","email":"zoe@example.com"}`).is(http.StatusCreated)
	otherEmail := send(`{"phone":"9876543210","email":"zoe@example.com","metadata":{"source":"chatbot"}}`).
		is(http.StatusOK)
	require.Empty(t, otherEmail.at("data", "email"), "the email is not moved to another lead")
}

func TestCapture_ConflictNamesIDsOnly(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.capture(strings.Replace(stored, "landing", "api", 1)).is(http.StatusCreated)
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, TokensSeeLeads: new(false)})
	_, value := s.token()
	for _, path := range []string{leads, leads + "?dryRun=true", leads + "/batch"} {
		for _, body := range []string{`{"phone":"9876543210"}`, `{"email":"ASHA@example.com","phone":"9000000001"}`} {
			r := s.send(call{method: http.MethodPost, path: path, credential: value, body: body})
			require.Contains(t, r.raw, created.at("data", "leadId"))
			require.Contains(t, r.raw, `"code":"DUPLICATE_LEAD_`)
			requireNoSecret(t, r)
		}
	}
}

func TestAccounts_SettingsThatDefaultToTrue(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"tokensSeeLeads", "maskInConsole"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			testDefaultTrue(t, setting)
		})
	}
}

func testDefaultTrue(t *testing.T, setting string) {
	s := start(t)
	admin := s.mint("admins", "admin")
	path := accounts + s.id("new_one")
	for body, want := range map[string]any{
		`{}`: true, `{"` + setting + `":null}`: true, `{"` + setting + `":true}`: true, `{"` + setting + `":false}`: false,
	} {
		put := s.send(call{method: http.MethodPut, path: path, credential: admin, body: body}).is(http.StatusOK)
		require.Equal(t, want, put.at("data", setting), body)
		shown := s.send(call{method: http.MethodGet, path: after(path, put), credential: admin}).is(http.StatusOK)
		require.Equal(t, put.at("data"), shown.at("data"))
	}
	wrong := s.send(call{
		method: http.MethodPut, path: path, credential: admin, body: `{"` + setting + `":"no"}`,
	}).is(http.StatusBadRequest)
	require.Equal(t, []string{setting}, wrong.fieldsNamed())
}

func TestLeadChanges_HideStoredFields(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.capture(stored).is(http.StatusCreated)
	id := created.at("data", "leadId").(string)
	writer := s.mint(ownAccount, "leads:write")
	change := func(method, path, body string) reply {
		return s.send(call{
			method: method, path: leads + "/" + id + path, credential: writer, body: body,
		}).is(http.StatusOK)
	}
	// the second changes nothing
	for _, body := range []string{`{"customFields":{"city":"Goa"}}`, `{"customFields":{"city":"Goa"}}`} {
		patched := change(http.MethodPatch, "", body)
		require.Equal(t, id, patched.at("data", "leadId"))
		require.Equal(t, map[string]any{"city": "Goa"}, patched.at("data", "customFields"))
		require.Empty(t, patched.at("data", "source"))
		requireNoSecret(t, patched)
	}
	other := s.capture(`{"phone":"9876543211","email":"won@example.com"}`).is(http.StatusCreated)
	requireNoSecret(t, change(http.MethodPost, "/join", `{"from":"`+other.at("data", "leadId").(string)+`"}`))
	requireNoSecret(t, change(http.MethodPost, "/contacts/release", `{"email":"won@example.com"}`))

	read := s.as(http.MethodPatch, leads+"/"+id, `{"name":"Asha R"}`).is(http.StatusOK)
	require.Equal(t, "asha@example.com", read.at("data", "email"), "the scope leads:read shows the lead")
	requireNoSecret(t, change(http.MethodPatch, "", `{}`))
}

func requireNoSecret(t *testing.T, r reply) {
	t.Helper()
	for _, secret := range secrets {
		require.NotContains(t, r.raw, secret)
	}
}

// A JWT with only the scope webhooks:write could once read every lead by a new endpoint and a replay.
func TestWebhooks_LeadEventsNeedLeadsRead(t *testing.T) {
	t.Parallel()
	s := start(t)
	writer, reader := s.mint(ownAccount, "webhooks:write"), s.mint(ownAccount, "webhooks:write leads:read")
	send := func(credential, method, path, body string, status int) reply {
		r := s.send(call{method: method, path: path, credential: credential, body: body}).is(status)
		if status == http.StatusForbidden {
			require.Equal(t, "Scope leads:read required", r.at("message"))
		}
		return r
	}
	for _, events := range []string{`["*"]`, `[]`, `null`, `["lead.erased"]`, `["token.created","lead.created"]`} {
		body := `{"url":"https://example.com/hook","events":` + events + `}`
		send(writer, http.MethodPost, endpoints, body, http.StatusForbidden)
		send(reader, http.MethodPost, endpoints, body, http.StatusCreated)
	}
	ofTokens := send(writer, http.MethodPost, endpoints,
		`{"url":"https://example.com/hook","events":["token.created"]}`, http.StatusCreated)
	tokenPath := endpoints + "/" + ofTokens.at("data", "webhookId").(string)
	send(writer, http.MethodPatch, tokenPath, `{"url":"https://example.com/moved","events":["token.deleted"]}`,
		http.StatusOK)
	send(writer, http.MethodPatch, tokenPath, `{"events":["*"]}`, http.StatusForbidden)

	leadPath := s.endpoint()
	for _, body := range []string{`{"url":"https://example.com/mine"}`, `{"events":["lead.created"]}`} {
		send(writer, http.MethodPatch, leadPath, body, http.StatusForbidden)
	}
	send(writer, http.MethodPatch, leadPath, `{"description":"CRM 2","enabled":false}`, http.StatusOK)
	send(writer, http.MethodPatch, leadPath, `{"enabled":true}`, http.StatusOK)
	send(reader, http.MethodPatch, leadPath, `{"url":"https://example.com/mine"}`, http.StatusOK)
	const replay = `{"since":"2026-01-01T00:00:00Z"}`
	send(writer, http.MethodPost, leadPath+"/replay", replay, http.StatusForbidden)
	send(writer, http.MethodPost, tokenPath+"/replay", replay, http.StatusForbidden)
	send(reader, http.MethodPost, leadPath+"/replay", replay, http.StatusAccepted)
	// The endpoint may have deliveries of leads, which a retry would send to the new URL.
	send(writer, http.MethodPatch, leadPath, `{"events":["token.created"]}`, http.StatusOK)
	send(writer, http.MethodPatch, leadPath, `{"url":"https://example.com/hers"}`, http.StatusForbidden)
	const failed = `{"since":"2026-01-01T00:00:00Z"}`
	send(writer, http.MethodPost, leadPath+"/retry-failed", failed, http.StatusForbidden)
	send(reader, http.MethodPost, leadPath+"/retry-failed", failed, http.StatusAccepted)
	send(writer, http.MethodPost, tokenPath+"/retry-failed", failed, http.StatusAccepted)
	send(reader, http.MethodPatch, leadPath, `{"url":"https://example.com/hers"}`, http.StatusOK)
}

func TestConsole_LeadEventsNeedLeadsRead(t *testing.T) {
	t.Parallel()
	b := browse(t)
	path := b.endpoint()
	at := "/console" + strings.Replace(path, "/endpoints", "", 1)
	b.signIn(b.mint(ownAccount, "webhooks:read webhooks:write"))
	require.NotContains(t, b.get(at).body, "/replay")
	for path, form := range map[string][]string{
		"/console/webhooks":  {"url", "https://example.com/mine", "events", "lead.created"},
		at + "/replay":       {"since", "2026-01-01T00:00"},
		at + "/retry-failed": {"since", "2026-01-01T00:00"},
	} {
		refused := b.post(path, form...)
		require.Equal(t, http.StatusForbidden, refused.status, path)
		require.Contains(t, refused.body, "Scope leads:read required")
	}
	require.Equal(t, http.StatusOK,
		b.post("/console/webhooks", "url", "https://example.com/mine", "events", "token.created").status)
	b.signIn(b.mint(ownAccount, "webhooks:read webhooks:write leads:read"))
	require.Contains(t, b.get(at).body, "/replay")
	require.Equal(t, http.StatusSeeOther, b.post(at+"/replay", "since", "2026-01-01T00:00").status)
}

// A receiver may echo the request body in its response.
func TestDeliveries_HideResponses(t *testing.T) {
	t.Parallel()
	b := browse(t)
	b.fanOut()
	path := b.endpoint()
	b.capture(stored).is(http.StatusCreated)
	listed := b.eventually(path+"/deliveries", func(r reply) bool {
		list, _ := r.at("data").([]any)
		return len(list) == 1
	})
	id := listed.at("data").([]any)[0].(map[string]any)["deliveryId"].(string)
	_, err := b.pool.Exec(t.Context(),
		`INSERT INTO delivery.attempt (delivery_id, at, status, duration_ms, response, error)
		VALUES ($1, now(), 200, 1, '{"name":"Asha Rao"}', '')`, id)
	require.NoError(t, err)
	deliveryResponses := func(scope string) (shown []string) {
		credential := b.mint(ownAccount, scope)
		for _, at := range []string{path + "/deliveries", path + "/deliveries/" + id} {
			r := b.send(call{method: http.MethodGet, path: at, credential: credential}).is(http.StatusOK)
			require.Contains(t, r.raw, `"durationMs":1`)
			shown = append(shown, r.raw)
		}
		b.signIn(credential)
		at := "/console" + strings.Replace(path, "/endpoints", "", 1) + "/deliveries"
		for _, page := range []string{at + "/" + id, at + ".ndjson"} {
			r := b.get(page)
			require.Equal(t, http.StatusOK, r.status, r.body)
			shown = append(shown, r.body)
		}
		return shown
	}
	for _, shown := range deliveryResponses("webhooks:read leads:read") {
		require.Contains(t, shown, "Asha Rao")
	}
	for _, shown := range deliveryResponses("webhooks:read") {
		require.NotContains(t, shown, "Asha")
	}
}

// An account that was not provisioned could once create tokens and endpoints.
func TestUnprovisionedAccount_IsForbidden(t *testing.T) {
	t.Parallel()
	b := browse(t)
	allScopes, admin := b.mint("ghost", ""), b.mint("ghost", "admin leads:read leads:write tokens:write webhooks:write")
	for _, credential := range []string{allScopes, admin} {
		for _, c := range []call{
			{method: http.MethodGet, path: leads}, {method: http.MethodGet, path: leads + "?minPosition=1"},
			{
				method: http.MethodGet, path: leads + "/01KAJ8Q6ZJ0000000000000001",
			}, {method: http.MethodPost, path: leads + "/batch", body: `{}`},
			{
				method: http.MethodPost, path: leads, body: `{"phone":"9876543210"}`,
			}, {method: http.MethodDelete, path: leads + "/01KAJ8Q6ZJ0000000000000001"},
			{method: http.MethodPost, path: tokens, body: `{"name":"form","expiresInDays":30}`},
			{method: http.MethodPost, path: endpoints, body: `{"url":"https://example.com/hook"}`},
			{method: http.MethodPost, path: "/api/v1/crm/visitors/v-1/activity", body: `{"type":"click"}`},
		} {
			c.credential = credential
			b.send(c).is(http.StatusForbidden)
		}
	}
	require.Contains(t, b.send(call{method: http.MethodGet, path: tokens, credential: allScopes}).at("message"),
		"This account is not provisioned: ")
	captured := b.send(call{
		method: http.MethodPost, path: leads, credential: allScopes, body: `{"phone":"9876543210"}`,
	})
	require.Equal(t, "Feature crm_api is not enabled for this account", captured.at("message"))
	refused := b.post("/console/sign-in", "jwt", allScopes)
	require.Equal(t, http.StatusForbidden, refused.status)
	require.Contains(t, refused.body, "This account is not provisioned")

	provisioned := b.send(call{
		method: http.MethodPut, path: accounts + b.id("ghost"), credential: admin, body: `{}`,
	}).is(http.StatusOK)
	b.send(call{method: http.MethodGet, path: after(tokens, provisioned), credential: allScopes}).is(http.StatusOK)
	b.send(call{
		method: http.MethodPost, path: tokens, credential: allScopes, body: `{"name":"form","expiresInDays":30}`,
	}).is(http.StatusCreated)
}

func TestAdminScope_Configured(t *testing.T) {
	t.Parallel()
	verifier, err := httpapi.NewHS256([]byte(jwtSecret), httpapi.VerifierOptions{AdminScope: "leadlog:admin"})
	require.NoError(t, err)
	s := start(t, func(o *httpapi.Options) { o.JWT = verifier })
	put := func(scope string) reply {
		return s.send(call{
			method: http.MethodPut, path: accounts + s.id("new_one"), credential: s.mint("admins", scope), body: `{}`,
		})
	}
	put("leadlog:admin").is(http.StatusOK)
	for _, scope := range []string{"admin", "leads:read", ""} {
		require.Equal(t, "Scope leadlog:admin required", put(scope).is(http.StatusForbidden).at("message"), scope)
	}
}

func TestAnswers_AreNotStored(t *testing.T) {
	t.Parallel()
	b := browse(t)
	_, value := b.token()
	lead := b.capture(stored).is(http.StatusCreated)
	at := leads + "/" + lead.at("data", "leadId").(string)
	for _, c := range []call{
		{method: http.MethodPost, path: leads, credential: value, body: `{"phone":"9876543210"}`},
		{method: http.MethodPost, path: leads + "/batch", credential: value, body: `{"phone":"9876543211"}`},
		{
			method: http.MethodGet, path: after(at, lead), credential: b.jwt,
		}, {method: http.MethodGet, path: after(at, lead)},
		{
			method: http.MethodGet, path: "/api/v1/crm/sources/history", credential: b.jwt,
			header: map[string]string{"Accept": "text/csv"},
		},
		{method: http.MethodPatch, path: at, credential: b.jwt, body: `{"name":"Asha R"}`},
		{method: http.MethodPost, path: leads + "?dryRun=true", credential: value, body: `{"phone":"9876543210"}`},
	} {
		r := b.request(c)
		require.Equal(t, []string{"no-store"}, r.header.Values("Cache-Control"), "%s %s: %s", c.method, c.path, r.raw)
	}
	b.signIn(b.jwt)
	for _, path := range []string{"/console", "/console/leads", "/console/leads.csv", "/console/sign-in"} {
		require.Equal(t, []string{"no-store"}, b.get(path).header.Values("Cache-Control"), path)
	}
	require.Equal(t, []string{"no-cache"},
		b.request(call{method: http.MethodGet, path: "/openapi.json"}).header.Values("Cache-Control"))
}

// The caller's X-Request-Id once remained on the log after the erasure of the person.
func TestRequestID_ForgottenWithPerson(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	const id = "asha@example.com/9876543210"
	own := map[string]string{"X-Request-Id": id, "Idempotency-Key": "k"}
	captured := s.captureFull(http.StatusCreated, own)
	require.Equal(t, id, captured.header.Get("X-Request-Id"))
	at := leads + "/" + s.leadID(captured)
	for _, path := range []string{"/events", "/sources"} {
		shown := s.as(http.MethodGet, after(at+path, captured), "").is(http.StatusOK).at("data").([]any)
		require.Equal(t, id, shown[0].(map[string]any)["requestId"], path)
	}
	s.send(call{
		method: http.MethodPost, path: "/api/v1/crm/visitors/visitor-of-asha/activity", credential: s.jwt, header: own,
		body: `{"type":"click"}`,
	})
	own["Idempotency-Key"] = "k2"
	const again = `{"phone":"9876543210","metadata":{"source":"api"}}`
	s.send(call{method: http.MethodPost, path: leads, credential: s.jwt, header: own, body: again}).is(http.StatusOK)
	own["Idempotency-Key"] = "k3"
	refused := s.send(call{
		method: http.MethodPost, path: leads, credential: s.jwt, header: own, body: again,
	}).is(http.StatusConflict)
	s.send(call{
		method: http.MethodPatch, path: at, credential: s.jwt, header: own, body: `{"name":"Asha R"}`,
	}).is(http.StatusOK)
	s.send(call{
		method: http.MethodPost, path: at + "/contacts/release", credential: s.jwt, header: own,
		body: `{"email":"asha@example.com"}`,
	}).is(http.StatusOK)
	second := s.capture(`{"email":"twin@example.com"}`).is(http.StatusCreated)
	s.send(call{
		method: http.MethodPost, path: at + "/join", credential: s.jwt, header: own,
		body: `{"from":"` + s.leadID(second) + `"}`,
	}).is(http.StatusOK)
	erased := s.send(call{method: http.MethodDelete, path: at, credential: s.jwt, header: own}).is(http.StatusOK)
	require.Equal(t, id, erased.header.Get("X-Request-Id"))
	list := s.as(http.MethodGet, after(leads+"/refused", refused), "").is(http.StatusOK).at("data").([]any)
	require.Len(t, list[0].(map[string]any)["requestId"], 26, "the service generates the id")
	s.caughtUp()
	s.requireNoTrace()
}
