package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

// A capture, a line of a batch and a dry run warn alike.
func TestCapture_Warnings(t *testing.T) {
	t.Parallel()
	s := start(t)
	codes := func(answer map[string]any) (codes []any) {
		warnings, _ := answer["warnings"].([]any)
		for _, one := range warnings {
			require.NotEmpty(t, one.(map[string]any)["message"])
			codes = append(codes, one.(map[string]any)["field"], one.(map[string]any)["code"])
		}
		return codes
	}
	want := []any{"name", "NOT_A_NAME", "metadata.source", "UNKNOWN_SOURCE"}
	dry := s.send(call{
		method: http.MethodPost, path: leads + "?dryRun=true", credential: s.jwt,
		body: `{"phone":"9876500001","name":"{{name}}","metadata":{"source":"Website"}}`,
	}).is(http.StatusCreated)
	require.Equal(t, want, codes(dry.body))
	single := s.send(call{
		method: http.MethodPost, path: leads, credential: s.jwt,
		body: `{"phone":"9876500001","name":"{{name}}","metadata":{"source":"Website"}}`,
	}).is(http.StatusCreated)
	require.Equal(t, want, codes(single.body))
	lines := s.sendBatch(
		`{"phone":"9876500002","name":"{{name}}","metadata":{"source":"Website"}}` + "\n" + `{"phone":"9876500003",` +
			`"name":"Asha"}` + "\n",
	).lines(t)
	require.Equal(t, want, codes(lines[0]))
	require.NotContains(t, lines[1], "warnings")
	quiet := s.send(call{
		method: http.MethodPost, path: leads, credential: s.jwt, body: `{"phone":"9876500004","name":"Asha"}`,
	}).is(http.StatusCreated)
	require.NotContains(t, quiet.raw, "warnings")
}

// A lead that may be several persons is listed, and shows its contacts.
func TestLeads_SharedAndContacts(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, SharedAfter: new(2)})
	capture := func(body string, status int) reply {
		return s.send(call{method: http.MethodPost, path: leads, credential: s.jwt, body: body}).is(status)
	}
	id := func(r reply) string { return r.at("data", "leadId").(string) }
	first := capture(`{"phone":"9876500001","email":"test@test.com","metadata":{"source":"website"}}`,
		http.StatusCreated)
	second := capture(`{"phone":"9876500002","email":"test@test.com","metadata":{"source":"website"}}`, http.StatusOK)
	third := capture(`{"phone":"9876500003","email":"test@test.com","metadata":{"source":"website"}}`,
		http.StatusCreated)
	require.Contains(t, third.raw, `"code":"SHARED_CONTACT"`)
	require.NotEqual(t, id(first), id(third))

	list := s.send(call{
		method: http.MethodGet, path: after(leads+"?shared=true", third), credential: s.jwt,
	}).is(http.StatusOK)
	require.Len(t, list.at("data"), 1)
	require.Contains(t, list.raw, id(first))
	require.NotContains(t, list.raw, "contacts")
	require.Len(t, s.send(call{method: http.MethodGet, path: leads + "?shared=false", credential: s.jwt}).at("data"), 2)
	require.Equal(t, []string{"shared"},
		s.send(call{
			method: http.MethodGet, path: leads + "?shared=x", credential: s.jwt,
		}).is(http.StatusBadRequest).fieldsNamed())

	shown := s.send(call{
		method: http.MethodGet, path: after(leads+"/"+id(first), third), credential: s.jwt,
	}).is(http.StatusOK)
	require.Equal(t, map[string]any{
		"phones": []any{
			map[string]any{"value": "+919876500001", "firstSeenAt": first.at("data", "createdAt"), "current": false},
			map[string]any{"value": "+919876500002", "firstSeenAt": second.at("data", "updatedAt"), "current": true},
		},
		"emails": []any{map[string]any{
			"value": "test@test.com", "firstSeenAt": first.at("data", "createdAt"), "current": true,
		}},
	}, shown.at("data", "contacts"))
	stranger := s.send(call{method: http.MethodGet, path: leads + "/" + id(third), credential: s.jwt}).is(http.StatusOK)
	require.Equal(t, "test@test.com", stranger.at("data", "email"))
	require.Empty(t, stranger.at("data", "contacts", "emails"))
	earlier := s.send(call{
		method: http.MethodGet, path: leads + "/" + id(first) + "?asOf=" + first.at("data", "createdAt").(string),
		credential: s.jwt,
	}).is(http.StatusOK)
	require.Len(t, earlier.at("data", "contacts", "phones"), 1)
}

// Two persons who were taken for one become two leads, the reports follow, and the erasure of one leaves the other.
func TestSplitLead(t *testing.T) {
	t.Parallel()
	s := start(t)
	do := func(method, path, body string, status int) reply {
		return s.send(call{method: method, path: path, credential: s.jwt, body: body}).is(status)
	}
	first := do(http.MethodPost, leads,
		`{"phone":"9876500001","email":"test@test.com","name":"Asha","metadata":{"source":"website"}}`,
		http.StatusCreated)
	time.Sleep(2 * time.Millisecond) // asOf has milliseconds
	merged := do(http.MethodPost, leads,
		`{"phone":"9876500002","email":"test@test.com","name":"Bala","metadata":{"source":"website"},`+
			`"customFields":{"city":"Qzx"}}`, http.StatusOK)
	id := first.at("data", "leadId").(string)
	do(http.MethodPatch, leads+"/"+id, `{"status":"won","opportunityValue":5}`, http.StatusOK)
	before := merged.at("data", "updatedAt").(string)
	time.Sleep(2 * time.Millisecond)

	wrong := do(http.MethodPost, leads+"/"+id+"/split", `{"email":"test@test.com"}`, http.StatusBadRequest)
	require.Equal(t, []string{"email"}, wrong.fieldsNamed(), "everything would go")
	require.Equal(t, http.StatusForbidden,
		s.send(call{
			method: http.MethodPost, path: leads + "/" + id + "/split", credential: s.mint(ownAccount, "leads:read"),
			body: `{}`,
		}).status)
	split := do(http.MethodPost, leads+"/"+id+"/split", `{"phone":"+91 98765 00002"}`, http.StatusCreated)
	left := split.at("data", "leadId").(string)
	require.Equal(t, []any{"Bala", "new", "Asha", "won"}, []any{
		split.at("data", "name"), split.at("data", "status"), split.at("from", "name"), split.at("from", "status"),
	})
	require.Equal(t, []string{"phone"},
		do(http.MethodPost, leads+"/"+id+"/split", `{"phone":"+91 98765 00002"}`, http.StatusBadRequest).fieldsNamed())

	get := func(path string) reply { return do(http.MethodGet, after(path, split), "", http.StatusOK) }
	require.Equal(t, "Bala", get(leads+"/"+left).at("data", "name"))
	was := get(leads + "/" + id + "?asOf=" + before)
	require.Equal(t, []any{"Bala", "+919876500002"}, []any{was.at("data", "name"), was.at("data", "phone")})
	for lead, want := range map[string]string{id: "created", left: "merged"} {
		require.Len(t, get("/api/v1/crm/touches?leadId="+lead).at("data"), 1)
		require.Contains(t, get("/api/v1/crm/touches?leadId="+lead).raw, `"kind":"`+want+`"`)
		require.Contains(t, get(leads+"/"+lead+"/sources").raw, `"arrivals":1`)
		require.Contains(t, get(leads+"/"+lead+"/events").raw, `"type":"lead.split"`)
	}
	require.Contains(t, get("/api/v1/crm/attribution").raw, `"total":{"conversions":"1.000000","value":"5.0000"}`)
	trail := get("/api/v1/crm/audit/events?type=lead.split")
	require.Len(t, trail.at("data"), 2)
	require.NotContains(t, trail.raw, "9876500002")

	erased := do(http.MethodDelete, leads+"/"+left, "", http.StatusOK)
	get = func(path string) reply { return do(http.MethodGet, after(path, erased), "", http.StatusOK) }
	require.Equal(t, "Asha", get(leads+"/"+id).at("data", "name"))
	for _, path := range []string{
		leads + "/" + id, leads + "/" + id + "/events", "/api/v1/crm/events?types=lead.*&limit=1000",
		"/api/v1/crm/touches", leads,
	} {
		require.NotContains(t, get(path).raw, "Qzx", path)
		require.NotContains(t, get(path).raw, "9876500002", path)
	}
	again := do(http.MethodPost, leads, `{"phone":"9876500001","metadata":{"source":"website"}}`, http.StatusOK)
	require.Equal(t, id, again.at("data", "leadId"))
}
