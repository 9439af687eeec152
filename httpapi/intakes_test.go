package httpapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

const intakes = "/api/v1/crm/intakes"

// intake creates an intake, waits for the view, and returns its path and the answer.
func (s *service) intake(body string) (path string, created reply) {
	s.t.Helper()
	created = s.as(http.MethodPost, intakes, body).is(http.StatusCreated)
	path = intakes + "/" + created.at("data", "intakeId").(string)
	s.as(http.MethodGet, after(path, created), "").is(http.StatusOK)
	return path, created
}

func TestIntakes_Record(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, created := s.intake(`{
		"name":" Contact ","kind":"form","source":"landing","origins":["https://WWW.example.com"],"redirect":"https://example.com/thanks#ok",
		"honeypot":"url","challenge":{"provider":"turnstile","secret":"hunter2"},"rateLimit":0.5,"expectEvery":"24h","mapping":{"name":"body.who","email":null}}`)
	id := strings.TrimPrefix(path, intakes+"/")
	data := created.at("data").(map[string]any)
	require.Equal(t, map[string]any{
		"intakeId": id, "name": "Contact", "kind": "form", "source": "landing", "url": "/in/" + id, "enabled": true,
		"origins": []any{"https://www.example.com"}, "redirect": "https://example.com/thanks#ok", "honeypot": "url",
		"challenge": map[string]any{"provider": "turnstile"}, "rateLimit": 0.5, "expectEvery": "24h",
		"mapping": map[string]any{"name": "body.who"}, "signature": nil, "graphUrl": nil, "each": nil,
		"acceptGet": false, "handshake": "none", "onInvalid": "auto",
		"oldSecretUntil": nil, "createdAt": data["createdAt"], "lastArrivalAt": nil, "failingSince": nil,
		"state": "active",
	}, data, "a form has no secret, and the challenge's secret is not shown")
	shown := s.as(http.MethodGet, path, "").is(http.StatusOK)
	require.Equal(t, data, shown.at("data"))
	list := s.as(http.MethodGet, intakes, "").is(http.StatusOK)
	require.Equal(t, []any{data}, list.at("data"))
	require.NotContains(t, list.raw+shown.raw+created.raw, "hunter2")

	echo, err := json.Marshal(data)
	require.NoError(t, err)
	last := s.last()
	echoed := s.as(http.MethodPatch, path, string(echo)).is(http.StatusOK)
	require.Equal(t, data, echoed.at("data"), "an answered record is accepted as input")
	require.Equal(t, last, s.last(), "nothing was appended")
}

func TestIntakes_Change(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.intake(`{"name":"Shop","kind":"webhook","secret":"theirs","signature":{"header":"X-Signature",` +
		`"prefix":"sha256="},"rateLimit":2,"expectEvery":"1h"}`)
	shown := s.as(http.MethodGet, path, "")
	require.Equal(t, map[string]any{
		"scheme": "hmac", "header": "X-Signature", "algorithm": "sha256", "encoding": "hex", "prefix": "sha256=",
		"format": nil, "timestampHeader": nil, "idHeader": nil, "signed": nil, "tolerance": nil, "name": nil,
	}, shown.at("data", "signature"))
	off := s.as(http.MethodPatch, path,
		`{"name":"Store","enabled":false,"rateLimit":null,"expectEvery":null,`+
			`"signature":{"scheme":"bearer"}}`).is(http.StatusOK)
	require.Equal(t, "Store", off.at("data", "name"))
	require.Equal(t, "paused", off.at("data", "state"))
	require.Nil(t, off.at("data", "rateLimit"))
	require.Nil(t, off.at("data", "expectEvery"))
	require.Equal(t, off.at("data"), s.as(http.MethodGet, after(path, off), "").at("data"))
	on := s.as(http.MethodPatch, path, `{"enabled":true,"rateLimit":0}`).is(http.StatusOK)
	require.Equal(t, "active", on.at("data", "state"))
	require.EqualValues(t, 0, on.at("data", "rateLimit"))
	require.Equal(t, on.at("data"), s.as(http.MethodGet, after(path, on), "").at("data"))
}

func TestIntakes_NullSetsDefault(t *testing.T) {
	t.Parallel()
	s := start(t)
	shop, _ := s.intake(`{"name":"Shop","kind":"webhook","secret":"s","signature":{"scheme":"bearer"},"enabled":false}`)
	require.Equal(t, true, s.as(http.MethodPatch, shop, `{"enabled":null}`).is(http.StatusOK).at("data", "enabled"))
	for _, name := range []string{"secret", "signature"} {
		required := s.as(http.MethodPatch, shop, `{"`+name+`":null}`).is(http.StatusBadRequest)
		require.Equal(t, []string{name}, required.fieldsNamed())
		require.Contains(t, required.raw, "is required")
	}
	require.Equal(t, []string{"signature.header"},
		s.as(http.MethodPatch, shop, `{"signature":{}}`).is(http.StatusBadRequest).fieldsNamed(), "is of scheme hmac")

	meta, _ := s.intake(`{"name":"Meta","kind":"meta_lead_ads","secret":"s","appSecret":"app","verifyToken":"mine",` +
		`"accessToken":"access"}`)
	removed := s.as(http.MethodPatch, meta, `{"appSecret":null,"verifyToken":null,"accessToken":null,"signature":null}`)
	require.NotContains(t, removed.is(http.StatusOK).body, "warnings")
	record := s.trail("&type=intake.changed&subject="+strings.TrimPrefix(meta, intakes+"/"), 1)[0]
	require.ElementsMatch(t, []string{"appSecret", "verifyToken", "accessToken"},
		slices.Collect(maps.Keys(record["data"].(map[string]any))))
	require.Equal(t, []string{"secret"},
		s.as(http.MethodPatch, meta, `{"secret":null}`).is(http.StatusBadRequest).fieldsNamed(), "no other one signs")
	s.as(http.MethodPatch, meta, `{"secret":null,"appSecret":"app"}`).is(http.StatusOK)
	require.Equal(t, []string{"secret"},
		s.as(http.MethodPatch, meta, `{"appSecret":null}`).is(http.StatusBadRequest).fieldsNamed())
}

func TestIntakes_FieldErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, fields := range map[string][]string{
		``:                              {"kind", "name"},
		`{"name":7,"kind":"form"}`:      {"name"},
		`{"name":"A","kind":"fax"}`:     {"kind"},
		`{"name":"A","kind":"webhook"}`: {"signature"},
		`{"name":"A","kind":"form","expectevery":"1h"}`:              {"expectevery"},
		`{"name":"A","kind":"form","origins":"https://example.com"}`: {"origins"},
		`{"name":"A","kind":"form","challenge":{"provider":"turnstile","key":"s"}}`: {
			"challenge.key", "challenge.secret",
		},
		`{"name":"A","kind":"form","challenge":{"secret":"s"}}`: {"challenge.provider"},
		`{"name":"A","kind":"form","mapping":{"name":1}}`:       {"mapping.name"},
		`{"name":"A","kind":"form","mapping":{"name":"body.","email":"1"}}`: {
			"mapping.name", "mapping.email",
		},
		`{"name":"A","kind":"form","mapping":"body"}`:                                  {"mapping"},
		`{"name":"A","kind":"form","rateLimit":"10","redirect":"http://example.com/"}`: {"rateLimit"},
		`{"name":"A","kind":"form","redirect":"http://example.com/"}`:                  {"redirect"},
		`{"name":"A","kind":"webhook","signature":{"header":"X","algorithm":5}}`:       {"signature.algorithm"},
		`{"name":"A","kind":"webhook","signature":{"header":"X","timestampHeader":"T","tolerance":"1m"}}`: {
			"signature.tolerance", "signature.timestampHeader",
		},
		`{"name":"A","kind":"webhook","signature":{"scheme":"bearer","algorithm":"sha256","signed":null}}`: {
			"signature.algorithm",
		},
		`{"name":"A","kind":"meta_lead_ads"}`:                                            {"secret"},
		`{"name":"A","kind":"meta_lead_ads","secret":"s","graphUrl":"http://127.0.0.1"}`: {"graphUrl"},
	} {
		require.Equal(t, fields, s.as(http.MethodPost, intakes, body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	path, _ := s.intake(`{"name":"Site","kind":"form"}`)
	for body, fields := range map[string][]string{
		``:                    {"body"},
		`{"kind":"typeform"}`: {"kind"},
		`{"name":null}`:       {"name"},
		`{"enabled":"no"}`:    {"enabled"},
		`{"secret":"s"}`:      {"secret"},
	} {
		require.Equal(t, fields, s.as(http.MethodPatch, path, body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
}

func TestIntakes_SecretShownOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, created := s.intake(`{"name":"Survey","kind":"typeform"}`)
	secret := created.at("data", "secret").(string)
	require.GreaterOrEqual(t, len(secret), 40)
	require.Equal(t, "no-store", created.header.Get("Cache-Control"))
	rotated := s.as(http.MethodPost, path+"/secret/rotate", "").is(http.StatusOK)
	require.NotEqual(t, secret, rotated.at("data", "secret"))
	require.Equal(t, "no-store", rotated.header.Get("Cache-Control"))
	ownSecret := s.as(http.MethodPost, path+"/secret/rotate", `{"secret":"theirs"}`).is(http.StatusOK)
	require.Equal(t, "theirs", ownSecret.at("data", "secret"))
	for _, answer := range []reply{
		s.as(http.MethodGet, path, ""), s.as(http.MethodGet, intakes, ""),
		s.as(http.MethodPatch, path, `{"name":"Poll"}`),
	} {
		require.NotContains(t, answer.raw, secret)
		require.NotContains(t, answer.raw, "theirs")
		require.NotContains(t, answer.raw, `"secret"`)
	}
	require.NotContains(t, s.log.String(), secret)
	given, answer := s.intake(`{"name":"Survey","kind":"typeform","secret":"given"}`)
	require.Nil(t, answer.at("data", "secret"), given)
	form, _ := s.intake(`{"name":"Site","kind":"form"}`)
	require.Equal(t, []string{"secret"},
		s.as(http.MethodPost, form+"/secret/rotate", "").is(http.StatusBadRequest).fieldsNamed())
}

func TestIntakes_NotFound(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.intake(`{"name":"Survey","kind":"typeform"}`)
	deletedPath, _ := s.intake(`{"name":"Survey","kind":"typeform"}`)
	deleted := s.as(http.MethodDelete, deletedPath, "").is(http.StatusOK)
	require.Equal(t, "Intake deleted", deleted.at("message"))
	s.provision("globex", account.Settings{Features: []string{account.FeatureAPI}})
	otherJWT := s.mint("globex", "")
	for _, c := range []struct{ path, jwt string }{
		{path, otherJWT}, {after(deletedPath, deleted), s.jwt}, {intakes + "/01M7YH5C3ZB8F0Y2K7D9WQ4R6S", s.jwt},
		{intakes + "/nonsense", s.jwt},
	} {
		id, _, _ := strings.Cut(c.path, "?")
		for method, at := range map[string]string{
			http.MethodGet: c.path, http.MethodPatch: id, http.MethodDelete: id, http.MethodPost: id + "/secret/rotate",
		} {
			answer := s.send(call{
				method: method, path: at, credential: c.jwt,
				body: map[string]string{http.MethodPatch: `{"name":"X"}`}[method],
			})
			require.Equal(t, "Intake not found", answer.is(http.StatusNotFound).at("message"), "%s %s", method, at)
		}
	}
	require.Empty(t,
		s.send(call{method: http.MethodGet, path: intakes, credential: otherJWT}).is(http.StatusOK).at("data"))
}

func TestIntakes_Scopes(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.intake(`{"name":"Survey","kind":"typeform"}`)
	reads, writes := s.mint(ownAccount, "intakes:read"), s.mint(ownAccount, "intakes:write")
	s.send(call{method: http.MethodGet, path: path, credential: reads}).is(http.StatusOK)
	s.send(call{method: http.MethodGet, path: path, credential: writes}).is(http.StatusForbidden)
	s.send(call{method: http.MethodPatch, path: path, credential: reads, body: `{"name":"X"}`}).is(http.StatusForbidden)
	s.send(call{method: http.MethodPatch, path: path, credential: writes, body: `{"name":"X"}`}).is(http.StatusOK)
	s.provision("globex", account.Settings{})
	s.send(call{
		method: http.MethodPost, path: intakes, credential: s.mint("globex", ""), body: `{"name":"A","kind":"form"}`,
	}).is(http.StatusForbidden)
}

func TestIntakes_Pages(t *testing.T) {
	t.Parallel()
	s := start(t)
	var last reply
	for range 3 {
		_, last = s.intake(`{"name":"Survey","kind":"typeform"}`)
	}
	first := s.as(http.MethodGet, after(intakes+"?limit=2", last), "").is(http.StatusOK)
	require.Len(t, first.at("data"), 2)
	require.Equal(t, last.at("data", "intakeId"),
		first.at("data").([]any)[0].(map[string]any)["intakeId"], "newest first")
	rest := s.as(http.MethodGet, intakes+"?limit=2&cursor="+first.at("nextCursor").(string), "").is(http.StatusOK)
	require.Len(t, rest.at("data"), 1)
	require.Nil(t, rest.at("nextCursor"))
	require.Equal(t, []string{"cursor"},
		s.as(http.MethodGet, endpoints+"?cursor="+first.at("nextCursor").(string),
			"").is(http.StatusBadRequest).fieldsNamed())
}

func TestIntakes_Preview(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, created := s.intake(
		`{"name":"Shop","kind":"webhook","signature":{"scheme":"bearer"},"mapping":{"name":"body.customer.first + ' ` +
			`' + body.customer.last","phone":"body.customer.tel","email":"null","deliveryId":"headers['x-id']",` +
			`"customFields":"{'plan': query.plan}"}}`,
	)
	preview := func(body string) reply { return s.as(http.MethodPost, path+"/preview", body).is(http.StatusOK) }
	const post = `{\"customer\":{\"first\":\"Asha\",\"last\":\"Rao\",\"tel\":\"98765 43210\"}}`
	good := preview(
		`{"contentType":"application/json","body":"` + post + `","headers":{"X-Id":"d-1"},"query":{"plan":"pro"}}`,
	)
	require.Equal(t, map[string]any{
		"lead": map[string]any{
			"name": "Asha Rao", "phone": "+919876543210", "source": "webhook",
			"metadata":     map[string]any{"source": "webhook"},
			"customFields": map[string]any{"plan": "pro"},
		},
		"deliveryId": "d-1", "test": false, "skip": false,
	}, good.at("data"))
	require.Nil(t, good.at("errors"))

	bad := preview(`{"body":"{\"customer\":{\"tel\":\"12\"}}","query":{"plan":"pro"}}`)
	require.Equal(t, []string{"phone"}, bad.fieldsNamed())
	require.Nil(t, bad.at("data", "lead"))
	require.Equal(t, []string{"body"}, preview(`{"body":"{"}`).fieldsNamed())
	result := preview(`{"body":"` + post + `","mapping":{"email":"'asha@example.com'","skip":"body.customer.first ` +
		`== 'Asha'"}}`)
	require.Equal(t, true, result.at("data", "skip"))
	wrong := s.as(http.MethodPost, path+"/preview",
		`{"body":"{}","mapping":{"email":"body."}}`).is(http.StatusBadRequest)
	require.Equal(t, []string{"mapping.email"}, wrong.fieldsNamed())
	shown := s.as(http.MethodGet, after(path, created), "").is(http.StatusOK)
	require.Nil(t, shown.at("data", "lastArrivalAt"), "a preview has no effect")
}

// A preview showed credentials to the mapping, which no post does: a mapping of them seemed to work.
func TestIntakes_PreviewHidesProofs(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.intake(
		`{"name":"Shop","kind":"webhook","secret":"k","signature":{"scheme":"header","header":"X-Shop"},` +
			`"mapping":{"metadata":"headers"}}`,
	)
	headers := map[string]string{"Authorization": "Bearer t", "Cookie": "c=1", "X-Shop": "k", "X-Campaign": "diwali"}
	given, err := json.Marshal(headers)
	require.NoError(t, err)
	preview := s.as(http.MethodPost, path+"/preview",
		`{"body":"{\"email\":\"asha@example.com\"}","headers":`+string(given)+`}`).is(http.StatusOK)
	require.Equal(t, map[string]any{
		"source": "webhook", "x-campaign": "diwali",
	}, preview.at("data", "lead", "metadata"))
}

// Fields of a test, or of a post that the mapping skips, do not matter: such a post is discarded.
func TestIntakes_PreviewDiscarded(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.intake(`{"name":"Google","kind":"google_lead_form"}`)
	for of, body := range map[string]string{
		"test": `{"body":"{\"is_test\":true,\"user_column_data\":[],\"lead_id\":\"t1\"}"}`,
		"skip": `{"body":"{\"user_column_data\":[],\"lead_id\":\"t1\"}","mapping":{"skip":"true"}}`,
	} {
		preview := s.as(http.MethodPost, path+"/preview", body).is(http.StatusOK)
		require.Nil(t, preview.at("errors"), preview.raw)
		require.Equal(t, true, preview.at("data", of), preview.raw)
		require.Nil(t, preview.at("data", "lead"))
	}
}

func TestIntakes_ChangedTargetNeedsSecret(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.as(http.MethodPost, intakes,
		`{"name":"Meta","kind":"meta_lead_ads","secret":"app","accessToken":"access"}`).is(http.StatusCreated)
	path := intakes + "/" + created.at("data", "intakeId").(string)
	changed := s.as(http.MethodPatch, path, `{"graphUrl":"https://graph.example.com"}`).is(http.StatusOK)
	warning := changed.at("warnings").([]any)[0].(map[string]any)
	require.Equal(t, "accessToken", warning["field"])
	require.Equal(t, "SECRET_REMOVED", warning["code"])
	for _, body := range []string{
		`{"graphUrl":"https://elsewhere.example.com"}`, `{"graphUrl":null,"accessToken":"again"}`, `{"name":"Page"}`,
	} {
		require.NotContains(t, s.as(http.MethodPatch, path, body).is(http.StatusOK).body, "warnings", body)
	}
}

func TestIntakes_PreviewMeta(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.as(http.MethodPost, intakes,
		`{"name":"Meta","kind":"meta_lead_ads","appSecret":"app","verifyToken":"mine","accessToken":"access"}`).
		is(http.StatusCreated)
	preview := func(body string) reply {
		encoded, err := json.Marshal(body)
		require.NoError(t, err)
		return s.as(http.MethodPost, intakes+"/"+created.at("data", "intakeId").(string)+"/preview",
			`{"body":`+string(encoded)+`}`).is(http.StatusOK)
	}
	announced := preview(`{"object":"page","entry":[{"changes":[{"field":"leadgen",` +
		`"value":{"leadgen_id":444}},{"field":"feed","value":{}},` +
		`{"field":"leadgen","value":{"leadgen_id":"445"}}]}]}`)
	require.Equal(t, map[string]any{
		"lead": nil, "deliveryId": nil, "test": false, "skip": false, "fetched": []any{"444", "445"},
	}, announced.at("data"))
	require.Equal(t, true, preview(`{"entry":[{"changes":[{"field":"feed","value":{}}]}]}`).at("data", "skip"),
		"a change of another kind is skipped")
	require.Equal(t, []string{"body"},
		preview(`{"entry":[{"changes":[{"field":"leadgen","value":{}}]}]}`).fieldsNamed())
	lead := preview(`{"id":"444","field_data":[{"name":"email","values":["asha@example.com"]}]}`)
	require.Equal(t, "asha@example.com", lead.at("data", "lead", "email"))
	require.NotContains(t, lead.raw, "fetched")
}

// A preview showed errors for what an arrival repairs, and read a post of several persons as that of one.
func TestIntakes_PreviewIsAsArrival(t *testing.T) {
	t.Parallel()
	s := start(t)
	preview := func(kind, body string) reply {
		path, _ := s.intake(kind)
		encoded, err := json.Marshal(body)
		require.NoError(t, err)
		return s.as(http.MethodPost, path+"/preview", `{"body":`+string(encoded)+`}`).is(http.StatusOK)
	}
	repaired := preview(`{"name":"Google","kind":"google_lead_form"}`, `{"user_column_data":[
		{"column_id":"WORK_EMAIL","string_value":"asha@example.com"},{"column_id":"PHONE_NUMBER","string_value":"+910000000000"},
		{"column_id":"what_is_your_preferred_dealership_in_the_city_or_its_surroundings?","string_value":"Pune"}]}`)
	require.Nil(t, repaired.at("errors"))
	require.Equal(t, map[string]any{"what_is_your_preferred_dealership_in_the_city_or_i": "Pune"},
		repaired.at("data", "lead", "customFields"))
	require.Len(t, repaired.at("warnings"), 2, repaired.raw)

	several := preview(`{"name":"Calls","kind":"webhook","signature":{"scheme":"bearer"}}`,
		`[{"phone":"+919876512345"},{"phone":"+919876512346"}]`)
	require.Equal(t, "+919876512345", several.at("data", "lead", "phone"))
	require.EqualValues(t, 2, several.at("data", "arrivals"))
	require.Equal(t, true, preview(`{"name":"Chat","kind":"whatsapp","secret":"s"}`,
		`{"entry":[{"changes":[{"field":"messages","value":{"statuses":[{"id":"1"}]}}]}]}`).at("data", "skip"))
}
