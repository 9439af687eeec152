package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConsents_OfCapturesAndByHand(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	captured := s.capture(`{"phone":"9876543210","metadata":{"source":"website","consent":[
		{"purpose":"whatsapp","text":"Send me offers by WhatsApp","version":"3","url":"https://example.com/form","method":"checkbox"},
		{"purpose":"call","granted":false}]}}`).is(http.StatusCreated)
	require.NotContains(t, captured.raw, `"consents"`)
	id := s.leadID(captured)
	path := leads + "/" + id + "/consents"
	list := func(query string) []any {
		return s.as(http.MethodGet, path+query, "").is(http.StatusOK).at("data").([]any)
	}
	first := list("")
	require.Len(t, first, 2)
	whatsapp := first[0].(map[string]any)
	require.Equal(t, "Send me offers by WhatsApp", whatsapp["text"])
	require.Equal(t, captured.header.Get("X-Event-Id"), whatsapp["eventId"])
	require.Equal(t, map[string]any{"kind": "jwt", "id": "ann"}, whatsapp["credential"])
	require.Equal(t, []any{true, "3", "https://example.com/form", "checkbox", "127.0.0.1"},
		[]any{whatsapp["granted"], whatsapp["version"], whatsapp["url"], whatsapp["method"], whatsapp["ip"]})

	withdrawn := s.as(http.MethodPost, path, `{"purpose":"whatsapp","granted":false,"method":"phone call"}`).
		is(http.StatusCreated)
	require.Len(t, withdrawn.at("data"), 2, "what is current")
	again := s.as(http.MethodPost, path, `[{"purpose":"whatsapp","granted":false,"method":"phone call"}]`).
		is(http.StatusCreated)
	require.Equal(t, withdrawn.at("data"), again.at("data"))
	require.Len(t, list(""), 3, "the same again changes nothing")
	s.as(http.MethodPost, path, `[{"purpose":"call","text":"yes"},{"purpose":"email"}]`).is(http.StatusCreated)
	require.Len(t, list("?current=true"), 3)

	granted := map[string]any{"whatsapp": false, "call": true, "email": true}
	s.eventually(leads+"/"+id, func(r reply) bool {
		shown, _ := r.at("data", "consents").(map[string]any)
		return len(shown) == 3 && shown["whatsapp"] == granted["whatsapp"] && shown["call"] == granted["call"]
	})
	require.Contains(t, s.as(http.MethodGet, leads, "").is(http.StatusOK).raw,
		`"consents":{"call":true,"email":true,"whatsapp":false}`)
	require.Equal(t, map[string]any{"whatsapp": true, "call": false},
		s.as(http.MethodGet, leads+"/"+id+"?asOf="+whatsapp["at"].(string),
			"").is(http.StatusOK).at("data", "consents"))
	s.eventually("/api/v1/crm/audit/events?type=lead.consented", func(r reply) bool {
		return len(r.at("data").([]any)) == 2
	})
	require.NotContains(t, s.as(http.MethodGet, "/api/v1/crm/audit/events?type=lead.consented", "").raw, "phone call")

	never := s.leadID(s.capture(`{"phone":"9876543299"}`).is(http.StatusCreated))
	for filter, found := range map[string]bool{
		"call": true, "-call": false, "whatsapp": false, "-whatsapp": true, "post": false, "-post": false,
		"call&status=new": true, "call&q=zzz": false,
	} {
		r := s.as(http.MethodGet, leads+"?consent="+filter, "").is(http.StatusOK)
		require.Equal(t, found, strings.Contains(r.raw, id), filter)
		require.NotContains(t, r.raw, never, filter)
	}

	// A join brings the consents of the other lead. The latest of each purpose counts.
	other := s.leadID(
		s.capture(`{"phone":"9876543211","metadata":{"consent":{"purpose":"whatsapp"}}}`).is(http.StatusCreated),
	)
	s.join(id, other).is(http.StatusOK)
	require.Len(t, list(""), 6)
	s.eventually(leads+"/"+id, func(r reply) bool {
		shown, _ := r.at("data", "consents").(map[string]any)
		return shown["whatsapp"] == true
	})

	// After the split the consent that was recorded by hand stays, and that of the arrival leaves with it.
	s.as(http.MethodPost, path, `{"purpose":"whatsapp","method":"letter"}`).is(http.StatusCreated)
	undone := s.as(http.MethodPost, leads+"/"+id+"/split", `{"lead":"`+other+`"}`).is(http.StatusCreated)
	require.Len(t, list(""), 6)
	left := s.as(http.MethodGet, leads+"/"+other+"/consents?current=true", "").is(http.StatusOK).at("data").([]any)
	require.Len(t, left, 1)
	require.Equal(t, "whatsapp", left[0].(map[string]any)["purpose"])
	require.Equal(t, map[string]any{"whatsapp": true},
		s.as(http.MethodGet, after(leads+"/"+other, undone), "").is(http.StatusOK).at("data", "consents"))
	repeated := s.leadID(s.capture(`{"phone":"9876543210","email":"r@example.com","metadata":{"source":"whatsapp",` +
		`"consent":{"purpose":"post","granted":false,"text":"No letters"}}}`).is(http.StatusOK))
	require.Equal(t, id, repeated)
	arrivals := s.as(http.MethodGet, leads+"/"+id+"/events", "").is(http.StatusOK).at("data").([]any)
	split := s.as(http.MethodPost, leads+"/"+id+"/split",
		`{"touches":["`+arrivals[len(arrivals)-1].(map[string]any)["id"].(string)+`"]}`).is(http.StatusCreated)
	taken := s.as(http.MethodGet, leads+"/"+s.leadID(split)+"/consents", "").is(http.StatusOK).at("data").([]any)
	require.Len(t, taken, 1)
	require.Equal(t, "No letters", taken[0].(map[string]any)["text"], "on the stream of the lead that it left")
	require.Len(t, list(""), 6)
	feed := s.as(http.MethodGet, "/api/v1/crm/events?types=lead.consented&limit=1000", "").is(http.StatusOK)
	require.Len(t, feed.at("data"), 3)

	write := s.mint(ownAccount, "leads:write")
	sent := s.send(call{
		method: http.MethodPost, path: path, credential: write, body: `{"purpose":"post"}`,
	}).is(http.StatusCreated)
	require.Len(t, sent.at("data"), 1, "without leads:read only what was sent")
	s.send(call{method: http.MethodGet, path: path, credential: write}).is(http.StatusForbidden)
	s.send(call{
		method: http.MethodPost, path: path, credential: s.stranger(""), body: `{"purpose":"x"}`,
	}).is(http.StatusNotFound)
	s.erase(id, http.StatusOK)
	s.as(http.MethodGet, path, "").is(http.StatusNotFound)
	s.as(http.MethodPost, path, `{"purpose":"x"}`).is(http.StatusNotFound)
}

func TestConsents_Invalid(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	id := s.leadID(s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated))
	many := "[" + strings.TrimSuffix(strings.Repeat(`{"purpose":"a"},`, 21), ",") + "]"
	large := `[` + strings.TrimSuffix(strings.Repeat(`{"purpose":"a","text":"`+strings.Repeat("x", 3900)+`"},`, 5),
		",") + `]`
	for body, field := range map[string]string{
		`{}`: "consent.purpose", `{"purpose":" "}`: "consent.purpose", `{"purpose":7}`: "consent.purpose",
		`[]`: "consent", `"x"`: "consent",
		`{"purpose":"` + strings.Repeat("p", 51) + `"}`:              "consent.purpose",
		`[{"purpose":"a"},{"purpose":"b","granted":"yes"}]`:          "consent[1].granted",
		`{"purpose":"a","text":"` + strings.Repeat("t", 4001) + `"}`: "consent.text",
		`{"purpose":"a","method":"` + strings.Repeat("m", 51) + `"}`: "consent.method",
		`{"purpose":"a","version":1}`:                                "consent.version", many: "consent",
		large: "consent",
	} {
		wrong := s.as(http.MethodPost, leads+"/"+id+"/consents", body).is(http.StatusBadRequest)
		require.Equal(t, []string{field}, wrong.fieldsNamed(), body[:min(len(body), 60)])
	}
	require.Equal(t, []string{"metadata.consent"}, s.capture(`{"phone":"9876543211","metadata":{"consent":`+large+`}}`).
		is(http.StatusBadRequest).fieldsNamed())
	for _, consent := range []string{`"yes"`, `[{"purpose":"a"},{"granted":true}]`, many} {
		captured := s.capture(`{"phone":"9876543211","metadata":{"consent":` + consent + `}}`).is(http.StatusCreated)
		warning := captured.at("warnings").([]any)[0].(map[string]any)
		require.Equal(t, "CONSENT_UNREADABLE", warning["code"], consent)
		unread := s.leadID(captured)
		require.Empty(t, s.as(http.MethodGet, leads+"/"+unread+"/consents", "").is(http.StatusOK).at("data"))
		kept := s.as(http.MethodGet, after(leads+"/"+unread, captured), "").is(http.StatusOK)
		require.Contains(t, kept.raw, `"consent":`+consent, "stored as metadata")
		require.Empty(t, kept.at("data", "consents"))
		s.erase(unread, http.StatusOK)
	}
	s.as(http.MethodPost, leads+"/"+id+"/consents", `{"purpose":"a"`).is(http.StatusBadRequest)
	s.as(http.MethodPost, leads+"/"+id+"/consents", ``).is(http.StatusBadRequest)
	s.as(http.MethodGet, leads+"/"+id+"/consents?current=x", "").is(http.StatusBadRequest)
	require.Empty(t, s.as(http.MethodGet, leads+"/"+id+"/consents", "").is(http.StatusOK).at("data"))
}

// A lead has at most 200 purposes. An arrival with another is captured with a warning, and kept as it was given.
func TestConsents_TooManyPurposes(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	id := s.leadID(s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated))
	path := leads + "/" + id + "/consents"
	for i := range 10 {
		var many []string
		for j := range 20 {
			many = append(many, fmt.Sprintf(`{"purpose":"p%d"}`, 20*i+j))
		}
		s.as(http.MethodPost, path, "["+strings.Join(many, ",")+"]").is(http.StatusCreated)
	}
	before := s.last()
	require.Equal(t, []string{"consent.purpose"},
		s.as(http.MethodPost, path, `{"purpose":"call"}`).is(http.StatusBadRequest).fieldsNamed())
	require.Equal(t, []string{"consent[1].purpose"}, s.as(http.MethodPost, path,
		`[{"purpose":"p0","granted":false},{"purpose":"call"}]`).is(http.StatusBadRequest).fieldsNamed())
	require.Equal(t, before, s.last())
	s.as(http.MethodPost, path, `{"purpose":"p0","granted":false}`).is(http.StatusCreated)

	want := map[string]any{
		"field": "metadata.consent", "code": "CONSENT_UNREADABLE",
		"message": "has more purposes than the 200 of a lead: further ones were stored with the arrival only",
	}
	body := `{"phone":"9876543210","metadata":{"source":"website",` +
		`"consent":[{"purpose":"p1","granted":false},{"purpose":"call"}]}}`
	for range 2 { // the second answer is that of the key
		captured := s.send(call{
			method: http.MethodPost, path: leads, credential: s.jwt, body: body,
			header: map[string]string{"Idempotency-Key": "k"},
		}).is(http.StatusOK)
		require.Equal(t, []any{want}, captured.at("warnings"))
	}
	intake, _ := s.createIntake(bearerIntake)
	arrived := s.deliver(intake, body, validProof).is(http.StatusOK)
	arrival := s.as(http.MethodGet, after("/api/v1/crm/arrivals/"+arrived.at("arrivalId").(string), arrived), "")
	require.Equal(t, []any{want}, arrival.is(http.StatusOK).at("data", "warnings"))
	consents := s.as(http.MethodGet, after(leads+"/"+id, arrived), "").is(http.StatusOK).at("data", "consents")
	require.Len(t, consents, 200)
	require.NotContains(t, consents, "call")
}
