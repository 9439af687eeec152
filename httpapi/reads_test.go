package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi"
)

// The views are some milliseconds behind the log. A read by id must not return 404 in that time.
func TestReads_FindNewResources(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fanOut()
	requireFound := func(path string) reply {
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
		requireFound(lead)
		lead = leads + "/" + s.leadID(s.capture(fmt.Sprintf(`{"phone":"98765432%02d"}`, 2*i+1)))
		require.Len(t, requireFound(lead+"/sources").at("data"), 1)

		id, _ := s.token()
		requireFound(tokens + "/" + id)
		s.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)
		id, _ = s.token()
		require.NotEmpty(t, requireFound(tokens+"/"+id+"/events").at("data"))
		s.as(http.MethodDelete, tokens+"/"+id, "").is(http.StatusOK)

		requireFound(register())
		requireFound(register() + "/deliveries")
		endpoint := register()
		tested := s.as(http.MethodPost, endpoint+"/test", "").is(http.StatusAccepted)
		delivery := endpoint + "/deliveries/" + tested.at("data", "deliveryId").(string)
		s.as(http.MethodPost, delivery+"/retry", "").is(http.StatusAccepted)
		requireFound(delivery)

		account := accounts + s.id(fmt.Sprint("a", i))
		require.Equal(t, http.StatusOK,
			s.send(call{method: http.MethodPut, path: account, credential: admin, body: "{}"}).status)
		require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: account, credential: admin}).status)
	}
}

// A read after a change shows the change.
func TestReads_ShowOwnChanges(t *testing.T) {
	t.Parallel()
	s := start(t)
	shown := func(path string, member ...string) any {
		t.Helper()
		return s.as(http.MethodGet, path, "").is(http.StatusOK).at(append([]string{"data"}, member...)...)
	}
	lead := leads + "/" + s.leadID(s.capture(`{"phone":"9876543210"}`))
	register := s.as(http.MethodPost, endpoints, `{"url":"https://example.com/hook"}`)
	endpoint := endpoints + "/" + register.at("data", "webhookId").(string)
	account, admin := accounts+s.id("other"), s.mint(ownAccount, "admin")
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

// A request waits only briefly for a stopped view, and then answers from it.
func TestReads_AnsweredByStoppedView(t *testing.T) {
	t.Parallel()
	s := startAlone(t, func(o *httpapi.Options) { o.OwnWriteTimeout = 0 })
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

// A list by phone or email returns the lead that currently has the value. Ownership is read from the log.
func TestLeads_FoundByPhoneAndEmail(t *testing.T) {
	t.Parallel()
	s := start(t)
	found := func(query string, behind reply, want ...string) {
		t.Helper()
		list := s.as(http.MethodGet, after(leads+"?"+query, behind), "").is(http.StatusOK)
		require.Nil(t, list.at("nextCursor"))
		ids := []string{}
		for _, l := range list.at("data").([]any) {
			ids = append(ids, l.(map[string]any)["leadId"].(string))
		}
		require.ElementsMatch(t, want, ids, query)
	}
	into, from := s.twoLeads()
	last := s.capture(`{"phone":"9876543210","email":"first@example.com","metadata":{"source":"website"}}`)
	for _, written := range []string{"9876543210", "98765+43210", "%2B919876543210", "+919876543210"} {
		found("phone="+written, last, into)
	}
	found("phone=9876543210&createdSince=2020-01-01T00:00:00+05:30", last, into)
	found("email=FIRST@example.com", last, into)
	found("email=asha@example.com", last, from)
	found("phone=9876543210&email=first@example.com", last, into)
	found("phone=9876543210&email=asha@example.com", last)
	found("phone=9876543210&source=website", last, into)
	found("phone=9876543210&status=won", last)
	found("phone=9876543299", last)

	// A search for a complete phone or email returns the lead with it. If no lead has it, the search returns leads that
	// contain it.
	longer := s.capture(`{"phone":"9876543218","email":"not-first@example.com"}`)
	found("q=9876543210", longer, into)
	found("q=first@EXAMPLE.com", longer, into)
	found("q=irst@example.com", longer, into, longer.at("data", "leadId").(string))
	found("q=987654321", longer, into, longer.at("data", "leadId").(string))
	found("q=first@example.com&source=facebook_ad", longer)
	found("q=missing@example.com", longer)

	last = s.capture(`{"phone":"9876543210","email":"second@example.com","metadata":{"source":"website"}}`)
	found("email=second@example.com", last, into)
	found("email=first@example.com", last) // the lead owns the former email, but it is not current

	last = s.as(http.MethodPost, leads+"/"+from+"/join", `{"from":"`+into+`"}`).is(http.StatusOK)
	require.Equal(t, "+919876543210", last.at("data", "phone"))
	found("phone=9876543210", last, from) // taken over from the source lead

	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	otherList := s.send(call{
		method: http.MethodGet, path: leads + "?phone=9876543210", credential: s.mint("other", "leads:read"),
	}).is(http.StatusOK)
	require.Empty(t, otherList.at("data"))

	last = s.as(http.MethodDelete, leads+"/"+from, "").is(http.StatusOK)
	found("phone=9876543210", last)
	last = s.capture(`{"phone":"9876543210"}`)
	found("phone=9876543210", last, last.at("data", "leadId").(string))
}

// The former and the current form of a renumbered phone identify one person in every request.
func TestPhone_RetiredForms(t *testing.T) {
	t.Parallel()
	s := start(t)
	website := func(phone, more string) reply {
		return s.capture(`{"phone":"` + phone + `"` + more + `,"metadata":{"source":"website"}}`)
	}
	id := func(r reply) string { return r.at("data", "leadId").(string) }
	found := func(behind reply, query string, want ...string) {
		t.Helper()
		ids := []string{}
		for _, l := range s.as(http.MethodGet, after(leads+"?"+query, behind),
			"").is(http.StatusOK).at("data").([]any) {
			ids = append(ids, l.(map[string]any)["leadId"].(string))
		}
		require.ElementsMatch(t, want, ids, query)
	}
	for former, now := range map[string]string{
		"+5215512345678": "+525512345678", "+551187654321": "+5511987654321", "+22997123456": "+2290197123456",
		"+22507123456": "+2250707123456", "+841681234567": "+84381234567", "+5712345678": "+576012345678",
		"+2416031234": "+24166031234",
	} {
		first := website(former, "").is(http.StatusCreated)
		require.Equal(t, former, first.at("data", "phone"), "a valid E.164 number is kept")
		last := first
		for _, phone := range []string{former, now} {
			for _, query := range []string{"phone=%2B" + phone[1:], "q=%2B" + phone[1:]} {
				found(last, query, id(first))
			}
		}
		again := website(now, `,"email":"ana@example.com"`).is(http.StatusOK)
		require.Equal(t, id(first), id(again))
		require.Equal(t, now, again.at("data", "phone"), "the latest value wins")
		last = s.capture(`{"phone":"` + former + `","metadata":{"source":"api"}}`).is(http.StatusOK)
		require.Equal(t, "DUPLICATE_LEAD_SOURCE", s.capture(`{"phone":"`+now+`"}`).is(http.StatusConflict).at("code"))
		found(last, "phone=%2B"+now[1:], id(first))

		path := leads + "/" + id(first)
		last = s.as(http.MethodPost, path+"/contacts/release", `{"phone":"`+former+`"}`).is(http.StatusOK)
		require.Equal(t, "", last.at("data", "phone"), "either form can be released")
		second := website(now, "").is(http.StatusCreated)
		s.as(http.MethodPost, path+"/join", `{"from":"`+id(second)+`"}`).is(http.StatusOK)
		last = website(former, "").is(http.StatusOK)
		require.Equal(t, id(first), id(last))

		s.as(http.MethodDelete, path, "").is(http.StatusOK)
		third := website(now, "").is(http.StatusCreated)
		require.Equal(t, id(third), id(website(former, "").is(http.StatusOK)))
	}
	lines := s.sendBatch(
		`{"phone":"+5215587654321"}` + "\n" + `{"phone":"+525587654321","metadata":{"source":"website"}}`,
	).lines(t)
	require.Equal(t, []int{http.StatusCreated, http.StatusOK}, statuses(lines))
}

// What was captured is found, changed and released by the same text.
func TestLeads_FoundByCapturedText(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct{ field, text, want string }{
		{"phone", "+52 1 55 1234 5678", "+5215512345678"},
		{"phone", "091-98765 43210, ext: 12", "+919876543210"},
		{"phone", "\ufeff+91 91 98765 43211", "+919876543211"},
		{"email", "\u200bmailto:Asha@Example.com?subject=Hi", "asha@example.com"},
		{"email", "%20ravi@example.com", "ravi@example.com"},
	} {
		body := `{"` + c.field + `":"` + c.text + `","name":"undefined undefined"}`
		first := s.capture(body).is(http.StatusCreated)
		require.Equal(t, c.want, first.at("data", c.field))
		require.NotContains(t, first.at("data", "name"), "undefined", "a derived name is shown")
		require.Equal(t, []int{http.StatusConflict}, statuses(s.sendBatch(body).lines(t)), "a batch reads the same")
		for _, query := range []string{c.field, "q"} {
			r := s.as(http.MethodGet, after(leads+"?"+query+"="+url.QueryEscape(c.text), first), "").is(http.StatusOK)
			require.Len(t, r.at("data"), 1, "%s=%s", query, c.text)
		}
		path := leads + "/" + first.at("data", "leadId").(string)
		r := s.as(http.MethodPatch, path, `{"name":"Asha","opportunityValue":"1.500 €"}`).is(http.StatusOK)
		require.EqualValues(t, 1500, r.at("data", "opportunityValue"))
		r = s.as(http.MethodPatch, path, `{"name":"{{name}}","opportunityValue":"Rs. 50,000/-"}`).is(http.StatusOK)
		require.Equal(t, "Asha", r.at("data", "name"), "a placeholder replaces no name")
		require.EqualValues(t, 50000, r.at("data", "opportunityValue"))
		s.as(http.MethodPost, path+"/contacts/release", `{"`+c.field+`":"`+c.text+`"}`).is(http.StatusConflict)
	}
}

// An unknown filter value is rejected, because an empty list would suggest that no event matches.
func TestParams_RejectsUnknownFilterValue(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{
		leads + "?source=", leads + "?leadTemperature=", leads + "/refused?source=", leads + "/refused?code=",
		"/api/v1/crm/sources/history?source=", "/api/v1/crm/sources/report?source=",
		"/api/v1/crm/sources/report?interval=",
		"/api/v1/crm/audit/tokens?type=",
	} {
		_, name, _ := strings.Cut(path, "?")
		require.Equal(t, []string{strings.TrimSuffix(name, "=")},
			s.as(http.MethodGet, path+"nonesuch", "").fieldsNamed(), path)
		if name != "interval=" { // the document does not allow an empty value
			require.Equal(t, http.StatusOK, s.as(http.MethodGet, path, "").status, "an empty filter is no filter")
		}
	}
	s.capture(`{"phone":"9876543210","leadTemperature":"hot","metadata":{"source":"website"}}`)
	for _, filter := range []string{"source=website", "source=Website", "leadTemperature=HOT"} {
		require.Len(t, s.as(http.MethodGet, leads+"?"+filter, "").at("data"), 1, filter)
	}
}
