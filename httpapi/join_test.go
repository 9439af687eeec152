package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

// twoLeads captures somebody by phone and by email, as if they were two, and returns their ids.
func (s *service) twoLeads() (byPhone, byEmail string) {
	s.t.Helper()
	one := s.capture(`{"phone":"9876543210","city":"Pune","visitorId":"v-1","metadata":{"source":"website","utm":"x"}}`).is(http.StatusCreated)
	other := s.capture(`{"name":"Asha","email":"asha@example.com","opportunityValue":7,"city":"Goa","size":"XL","visitorId":"v-2","metadata":{"source":"google_ad"}}`).is(http.StatusCreated)
	s.capture(`{"email":"asha@example.com","metadata":{"source":"website"}}`).is(http.StatusOK)
	return one.at("data", "leadId").(string), other.at("data", "leadId").(string)
}

func (s *service) join(into, from string) reply {
	s.t.Helper()
	return s.as(http.MethodPost, leads+"/"+into+"/join", fmt.Sprintf(`{"from":%q}`, from))
}

func TestJoin_TwoLeads(t *testing.T) {
	t.Parallel()
	s := start(t)
	into, from := s.twoLeads()
	for visitor, title := range map[string]string{"v-1": "by telephone", "v-2": "by email"} {
		s.as(http.MethodPost, visitors+visitor+"/activity", fmt.Sprintf(`{"type":"page_view","title":%q}`, title)).is(http.StatusAccepted)
	}
	clash := s.capture(`{"phone":"9876543210","email":"asha@example.com"}`)
	require.Equal(t, "DUPLICATE_LEAD_EMAIL", clash.at("code"), clash.raw)
	before := s.as(http.MethodGet, after(leads+"/"+from, clash), "")

	joined := s.join(into, from).is(http.StatusOK)
	for field, want := range map[string]any{
		"leadId": into, "name": "Asha", "phone": "+919876543210", "email": "asha@example.com", "opportunityValue": 7.0, "source": "website",
		"customFields": map[string]any{"city": "Pune", "size": "XL"},
	} {
		require.Equal(t, want, joined.at("data", field), field)
	}
	again := s.join(into, from)
	require.Equal(t, http.StatusOK, again.status, "the same join again: %s", again.raw)
	require.Equal(t, joined.body["data"], again.body["data"])
	require.NotEmpty(t, again.header.Get("X-Log-Position"))

	shown := s.as(http.MethodGet, after(leads+"/"+into, joined), "")
	require.Equal(t, []any{from}, shown.at("data", "joined"), shown.raw)
	require.Equal(t, "x", shown.at("data", "metadata", "utm"))
	gone := s.as(http.MethodGet, after(leads+"/"+from, joined), "").is(http.StatusOK)
	require.Equal(t, into, gone.at("data", "joinedInto"))
	require.Equal(t, before.at("data", "customFields"), gone.at("data", "customFields"), "as it was")

	list := s.as(http.MethodGet, after(leads, joined), "").at("data").([]any)
	require.Len(t, list, 1)
	require.Equal(t, into, list[0].(map[string]any)["leadId"])
	events := s.as(http.MethodGet, leads+"/"+from+"/events", "").at("data").([]any)
	require.Equal(t, "lead.departed", events[len(events)-1].(map[string]any)["type"])
	events = s.as(http.MethodGet, leads+"/"+into+"/events", "").at("data").([]any)
	require.Equal(t, "lead.joined", events[len(events)-1].(map[string]any)["type"])

	activity := s.as(http.MethodGet, after(leads+"/"+into+"/activity", joined), "").at("data").([]any)
	require.Len(t, activity, 2)
	require.Len(t, s.as(http.MethodGet, after(leads+"/"+from+"/activity", joined), "").at("data"), 1)

	// Time travel: both as they were.
	at := "?asOf=" + before.at("data", "updatedAt").(string)
	was := s.as(http.MethodGet, leads+"/"+from+at, "")
	require.Equal(t, before.body["data"], was.body["data"], was.raw)
	was = s.as(http.MethodGet, leads+"/"+into+at, "")
	require.Equal(t, "", was.at("data", "email"), was.raw)
	was = s.as(http.MethodGet, leads+"/"+from+"?asOf="+joined.at("data", "updatedAt").(string), "")
	require.Equal(t, into, was.at("data", "joinedInto"), was.raw)

	for _, body := range []string{`{"phone":"9876543210"}`, `{"email":"asha@example.com"}`, `{"phone":"9876543210","email":"asha@example.com"}`} {
		r := s.capture(strings.TrimSuffix(body, "}") + `,"metadata":{"source":"chatbot"}}`).is(http.StatusOK)
		require.Equal(t, into, r.at("data", "leadId"))
	}
}

func TestJoin_MergesHistories(t *testing.T) {
	t.Parallel()
	s := start(t)
	into, from := s.twoLeads()
	path := func(id string) string { return leads + "/" + id }
	won := s.as(http.MethodPatch, path(from), `{"status":"won"}`).is(http.StatusOK)
	before := s.as(http.MethodGet, after("/api/v1/crm/sources/report", won), "").at("data").([]any)
	joined := s.join(into, from).is(http.StatusOK)

	arrivals := func(path string) map[string]float64 {
		counted := map[string]float64{}
		for _, one := range s.as(http.MethodGet, after(path, joined), "").at("data").([]any) {
			entry := one.(map[string]any)
			require.NotContains(t, counted, entry["source"], "one entry a source")
			counted[entry["source"].(string)] = entry["arrivals"].(float64)
		}
		return counted
	}
	both := map[string]float64{"website": 2, "google_ad": 1}
	require.Equal(t, both, arrivals(path(into)+"/sources"))
	require.Equal(t, both, arrivals("/api/v1/crm/sources/history"), "the account's history has each once")
	require.Equal(t, map[string]float64{"website": 1, "google_ad": 1}, arrivals(path(from)+"/sources"), "and what it had is kept")
	first := s.as(http.MethodGet, after(path(from)+"/sources?limit=1", joined), "")
	require.Equal(t, "google_ad", first.at("data").([]any)[0].(map[string]any)["source"])
	second := s.as(http.MethodGet, path(from)+"/sources?limit=1&cursor="+first.at("nextCursor").(string), "")
	require.Equal(t, "website", second.at("data").([]any)[0].(map[string]any)["source"])
	require.Nil(t, second.at("nextCursor"))

	report := s.as(http.MethodGet, after("/api/v1/crm/sources/report", joined), "").at("data").([]any)
	require.Len(t, report, len(before))
	for i := range report {
		was, is := before[i].(map[string]any), report[i].(map[string]any)
		for _, column := range []string{"source", "created", "merged", "refused"} {
			require.Equal(t, was[column], is[column], "arrivals stay what they were")
		}
		require.Zero(t, is["won"], "the lead that stays is not won")
	}

	repeat := s.capture(`{"email":"asha@example.com","metadata":{"source":"google_ad"}}`).is(http.StatusOK)
	entries := s.as(http.MethodGet, after(path(into)+"/sources", repeat), "").at("data").([]any)
	require.Len(t, entries, 2, "a source of either is one that the lead has")
}

func TestJoin_RequestsForSourceLead(t *testing.T) {
	t.Parallel()
	s := start(t)
	into, from := s.twoLeads()
	third := s.capture(`{"phone":"9876543219"}`).at("data", "leadId").(string)
	s.join(into, from).is(http.StatusOK)
	s.join(third, into).is(http.StatusOK)
	path := leads + "/" + from
	for name, r := range map[string]reply{
		"a change":            s.as(http.MethodPatch, path, `{"name":"B"}`),
		"a release":           s.as(http.MethodPost, path+"/contacts/release", `{"email":"asha@example.com"}`),
		"a join":              s.join(from, third),
		"the other way round": s.join(from, into),
	} {
		require.Equal(t, http.StatusConflict, r.status, "%s: %s", name, r.raw)
		require.Equal(t, "LEAD_JOINED", r.at("code"))
		require.Equal(t, "Lead "+from+" was joined into lead "+third, r.at("message"), "the one to ask for, in the end")
	}
	again := s.join(into, from).is(http.StatusOK)
	require.Equal(t, third, again.at("data", "leadId"), "the same join again, wherever the lead is now")
	shown := s.as(http.MethodGet, after(path, again), "")
	require.Equal(t, third, shown.at("data", "joinedInto"), shown.raw)
	fourth := s.capture(`{"phone":"9876543218"}`).at("data", "leadId").(string)
	s.join(fourth, from).is(http.StatusConflict)

	path = leads + "/" + third
	s.as(http.MethodPost, path+"/contacts/release", `{"email":"asha@example.com"}`).is(http.StatusOK)
	stranger := s.capture(`{"email":"asha@example.com"}`).is(http.StatusCreated)
	require.Equal(t, http.StatusOK, s.join(into, from).status, "and once more, when somebody else has the address")
	known := s.capture(`{"email":"asha@example.com","metadata":{"source":"website"}}`)
	require.Equal(t, stranger.at("data", "leadId"), known.at("data", "leadId"), known.raw)
}

func TestJoin_Rejections(t *testing.T) {
	t.Parallel()
	s := start(t)
	into, from := s.twoLeads()
	path := leads + "/" + into + "/join"
	for body, field := range map[string]string{
		`{}`: "from", `{"from":null}`: "from", `{"from":7}`: "from", fmt.Sprintf(`{"from":%q}`, into): "from", `[]`: "body",
	} {
		require.Equal(t, []string{field}, s.as(http.MethodPost, path, body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	theirs := s.send(call{method: http.MethodPost, path: leads, credential: s.mint("other", ""), body: `{"phone":"9876543210"}`})
	foreign := theirs.at("data", "leadId").(string)
	for _, pair := range [][2]string{{into, foreign}, {foreign, into}, {into, "01JQKXZ8V4W9H6M3T2R5N7P0AB"}, {"01JQKXZ8V4W9H6M3T2R5N7P0AB", into}, {into, "x"}, {"x", into}} {
		require.Equal(t, http.StatusNotFound, s.join(pair[0], pair[1]).status, "%v", pair)
	}
	_, value := s.token()
	for credential, status := range map[string]int{s.mint("other", ""): http.StatusNotFound, s.mint(ownAccount, "leads:read"): http.StatusForbidden, value: http.StatusUnauthorized} {
		s.send(call{method: http.MethodPost, path: path, credential: credential, body: fmt.Sprintf(`{"from":%q}`, from)}).is(status)
	}

	fields := func(prefix string, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"%s%d":1`, prefix, i))
		}
		return strings.Join(all, ",")
	}
	big := s.capture(`{"phone":"9876543218",`+fields("a", 30)+`}`).at("data", "leadId").(string)
	bigger := s.capture(`{"phone":"9876543219",`+fields("b", 21)+`}`).at("data", "leadId").(string)
	r := s.join(big, bigger).is(http.StatusBadRequest)
	require.Equal(t, []string{"customFields"}, r.fieldsNamed())
	for _, id := range []string{big, bigger, into, from} {
		for _, e := range s.as(http.MethodGet, leads+"/"+id+"/events", "").at("data").([]any) {
			require.NotContains(t, []any{"lead.departed", "lead.joined", "lead.joining"}, e.(map[string]any)["type"], "nothing changed")
		}
	}
}

// Whoever comes first, all of them are one lead in the end, and every answer says which.
func TestJoin_ConcurrentJoinsAndCaptures(t *testing.T) {
	t.Parallel()
	s := start(t)
	processes := []*service{s, serveOn(t, s.url, s.events)}
	phone := func(i int) string { return fmt.Sprintf("987654321%d", i) }
	var ids []string
	for i := range 3 {
		ids = append(ids, s.capture(fmt.Sprintf(`{"phone":%q,"metadata":{"source":"website"}}`, phone(i))).at("data", "leadId").(string))
	}
	var group sync.WaitGroup
	for i := range 18 {
		p := processes[i%2]
		group.Go(func() {
			r := p.join(ids[i%3], ids[(i+1+i/9)%3])
			assert.Contains(t, []int{http.StatusOK, http.StatusConflict}, r.status, r.raw)
		})
		group.Go(func() {
			r := p.capture(fmt.Sprintf(`{"phone":%q,"n%d":1,"metadata":{"source":"website"}}`, phone(i%3), i))
			assert.Equal(t, http.StatusOK, r.status, r.raw)
		})
	}
	group.Wait()
	last := s.capture(fmt.Sprintf(`{"phone":%q,"metadata":{"source":"website"}}`, phone(0)))
	list := s.as(http.MethodGet, after(leads, last), "").at("data").([]any)
	require.Len(t, list, 1)
	stays := list[0].(map[string]any)
	require.Len(t, stays["customFields"], 18, "every arrival counts once")
	for i := range 3 {
		r := s.capture(fmt.Sprintf(`{"phone":%q,"metadata":{"source":"website"}}`, phone(i)))
		require.Equal(t, stays["leadId"], r.at("data", "leadId"), r.raw)
	}
}

func TestJoin_IdempotentRepeat(t *testing.T) {
	t.Parallel()
	s := start(t)
	send := func() reply {
		return s.send(call{method: http.MethodPost, path: leads, credential: s.jwt, body: `{"email":"asha@example.com"}`, header: map[string]string{"Idempotency-Key": "k"}})
	}
	first := send()
	other := s.capture(`{"phone":"9876543210"}`).at("data", "leadId").(string)
	s.join(other, first.at("data", "leadId").(string)).is(http.StatusOK)
	again := send()
	require.Equal(t, first.raw, again.raw)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
}
