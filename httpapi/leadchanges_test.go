package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/eventstore/event"
)

func TestLeadChanges_UpdateIsRecorded(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.capture(`{"phone":"9876543210","city":"Pune","size":"XL"}`)
	path := leads + "/" + created.at("data", "leadId").(string)

	changed := s.as(http.MethodPatch, path,
		`{"name":" Asha ","leadTemperature":"HOT","opportunityValue":12.5,"customFields":{"city":null,"size":"",`+
			`"team":7,"none":null}}`)
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
	require.Equal(t, "Asha", merged.at("data", "name"), "a capture merges into the changed lead")
}

// What a PATCH set stays with the lead that keeps its id, also when every arrival before it leaves.
func TestLeadChanges_StayAtSplit(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.leadID(s.capture(`{"name":"Asha","phone":"9876512511","email":"desk@example.com"}`).is(http.StatusCreated))
	path := leads + "/" + id
	s.as(http.MethodPatch, path,
		`{"name":"Ravi","status":"contacted","opportunityValue":12.5,"customFields":{"team":7}}`).is(http.StatusOK)
	s.capture(`{"phone":"9876512512","email":"desk@example.com","metadata":{"source":"whatsapp"}}`).is(http.StatusOK)

	split := s.as(http.MethodPost, path+"/split", `{"phone":"9876512511"}`).is(http.StatusCreated)
	now := url.QueryEscape(time.Now().UTC().Format(time.RFC3339Nano))
	for _, read := range []reply{
		split, s.as(http.MethodGet, after(path, split), ""), s.as(http.MethodGet, path+"?asOf="+now, ""),
	} {
		stays, left := read.at("data").(map[string]any), read.at("from")
		if left != nil {
			stays = left.(map[string]any)
		}
		require.Equal(t, []any{id, "Ravi", "contacted", 12.5, "+919876512512", map[string]any{"team": 7.0}}, []any{
			stays["leadId"], stays["name"], stays["status"], stays["opportunityValue"], stays["phone"],
			stays["customFields"],
		}, read.raw)
	}
	leaves := s.as(http.MethodGet, after(leads+"/"+s.leadID(split), split), "").is(http.StatusOK)
	require.Equal(t, []any{"Asha", "new", nil, "+919876512511", map[string]any{}}, []any{
		leaves.at("data", "name"), leaves.at("data", "status"), leaves.at("data", "opportunityValue"),
		leaves.at("data", "phone"), leaves.at("data", "customFields"),
	})
	contacted := s.as(http.MethodGet, leads+"?status=contacted", "").is(http.StatusOK).at("data").([]any)
	require.Len(t, contacted, 1)
	require.Equal(t, id, contacted[0].(map[string]any)["leadId"])
}

func TestLeadChanges_Rejections(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.capture(`{"phone":"9876543210"}`)
	path := leads + "/" + created.at("data", "leadId").(string)
	for body, fields := range map[string][]string{
		``:               {"body"},
		`{"leadId":"A"}`: {"body"},
		`{"nmae":"A"}`:   {"nmae"},
		`{"status":"won","opportunityvalue":95000,"city":"Pune","metadata":{},"fullName":"A"}`: {
			"opportunityvalue", "city", "metadata", "fullName",
		},
		`{"status":"nope","leadTemperature":"mild","opportunityValue":true}`: {
			"status", "leadTemperature", "opportunityValue",
		},
		`{"name":7}`:                        {"name"},
		`{"name":"A","phone":"9876543211"}`: {"phone"},
		`{"customFields":[1]}`:              {"customFields"},
		`{"customFields":{"a":"` + fmt.Sprintf("%02001d", 0) + `"}}`: {"customFields.a"},
	} {
		require.ElementsMatch(t, fields,
			s.as(http.MethodPatch, path, body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	s.send(call{
		method: http.MethodPatch, path: path, credential: s.mint("other", ""), body: `{"name":"A"}`,
	}).is(http.StatusNotFound)
	s.as(http.MethodPatch, leads+"/01JQKXZ8V4W9H6M3T2R5N7P0AB", `{"name":"A"}`).is(http.StatusNotFound)
	require.Equal(t, http.StatusForbidden, s.send(call{
		method: http.MethodPatch, path: path, credential: s.mint(ownAccount, "leads:read"), body: `{"name":"A"}`,
	}).status)
	require.Len(t, s.as(http.MethodGet, path+"/events", "").at("data"), 1)
}

func TestLeadChanges_ConcurrentWithCaptures(t *testing.T) {
	t.Parallel()
	s := start(t)
	processes := []*service{s, s.another()}
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
			r := processes[i%2].capture(
				fmt.Sprintf(`{"phone":"9876543210","c%d":1,"metadata":{"source":"website"}}`, i),
			)
			assert.Equal(t, http.StatusOK, r.status, r.raw)
		})
	}
	group.Wait()
	last := s.as(http.MethodPatch, path, `{"name":"done"}`)
	require.Len(t, last.at("data", "customFields"), 2*each)
}

// A write without a change has the same answer as a write with a change, and appends only a record of the read.
func TestWrite_ChangesNothing(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.capture(`{"phone":"9876543210","name":"Asha","city":"Pune","opportunityValue":7,` +
		`"metadata":{"consent":{"purpose":"call"}}}`).is(http.StatusCreated)
	lead := leads + "/" + s.leadID(created)
	s.join(s.leadID(created), s.leadID(s.capture(`{"email":"asha@example.com"}`))).is(http.StatusOK)
	shown := s.as(http.MethodGet, lead, "").is(http.StatusOK).at("data").(map[string]any)
	maps.DeleteFunc(shown, func(name string, _ any) bool {
		return slices.Contains([]string{"phone", "email", "metadata"}, name)
	})
	require.Subset(t, slices.Collect(maps.Keys(shown)), []string{"joined", "contacts", "consents", "opportunityId"})
	answered, err := json.Marshal(shown)
	require.NoError(t, err)
	endpoint := s.endpoint()
	was := s.as(http.MethodGet, endpoint, "").is(http.StatusOK)
	s.as(http.MethodPatch, endpoint, `{"enabled":false}`).is(http.StatusOK)
	settings := `{"features":["crm_api"],"stages":["new","won"]}`
	admin := s.mint(ownAccount, "admin")
	account := func() reply {
		return s.send(call{
			method: http.MethodPut, path: accounts + s.account, credential: admin, body: settings,
		}).is(http.StatusOK)
	}
	account()
	before := s.last()
	requireUnchanged := func(r reply) {
		t.Helper()
		require.Equal(t, before, s.last(), r.asked.body)
		require.GreaterOrEqual(t, mustNumber(t, r.header.Get("X-Log-Position")), float64(before),
			"a read at this position shows the earlier change")
	}
	for _, body := range []string{
		`{}`, `{"enabled":false}`,
		fmt.Sprintf(`{"url":%q,"description":%q}`, was.at("data", "url"), was.at("data", "description")),
	} {
		requireUnchanged(s.as(http.MethodPatch, endpoint, body).is(http.StatusOK))
	}
	requireUnchanged(account())
	for _, body := range []string{
		`{}`, `{"name":null,"status":" "}`, string(answered),
		`{"name":"Asha","status":"NEW","leadTemperature":"warm","customFields":{"city":"Pune","none":null}}`,
	} {
		s.as(http.MethodPatch, lead, body).is(http.StatusOK)
	}
	require.Equal(t, "Asha", s.as(http.MethodPatch, lead, `{}`).at("data", "name"))
	for _, e := range s.written() {
		if e.Position > before {
			require.Equal(t, event.DataRevealed{}.EventType(), e.Type)
		}
	}
}

func TestRelease_NextArrivalIsNewLead(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.capture(
		`{"name":"Asha","phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`,
	)
	path := leads + "/" + created.at("data", "leadId").(string)
	moved := s.capture(`{"phone":"9876543211","email":"asha@example.com","metadata":{"source":"website"}}`)
	require.Equal(t, "+919876543211", moved.at("data", "phone"), moved.raw)

	released := s.as(http.MethodPost, path+"/contacts/release", `{"phone":"98765 43210"}`).is(http.StatusOK)
	require.Equal(t, "+919876543211", released.at("data", "phone"),
		"the release of a former number keeps the current one")
	s.capture(`{"phone":"9876543210","metadata":{"source":"website"}}`).is(http.StatusCreated)

	released = s.as(http.MethodPost, path+"/contacts/release", `{"phone":"+919876543211"}`).is(http.StatusOK)
	require.Equal(t, "", released.at("data", "phone"))
	require.Equal(t, "asha@example.com", released.at("data", "email"))
	for _, shown := range []reply{
		s.as(http.MethodGet, after(path, released), ""),
		s.as(http.MethodGet, path+"?asOf="+released.at("data", "updatedAt").(string), ""),
	} {
		require.Equal(t, http.StatusOK, shown.status, shown.raw)
		require.Equal(t, "", shown.at("data", "phone"))
	}
	require.Empty(t, s.as(http.MethodGet, after(leads+"?phone=%2B919876543211", released), "").at("data"))
	events := s.as(http.MethodGet, path+"/events", "").at("data").([]any)
	last := events[len(events)-1].(map[string]any)
	require.Equal(t, "lead.released", last["type"])
	require.Equal(t, "user:ann", last["actor"])

	only := s.as(http.MethodPost, path+"/contacts/release", `{"email":"Asha@Example.com"}`).is(http.StatusConflict)
	require.Equal(t, "LAST_CONTACT", only.at("code"))
	again := s.as(http.MethodPost, path+"/contacts/release", `{"phone":"9876543211"}`).is(http.StatusBadRequest)
	require.Equal(t, []string{"phone"}, again.fieldsNamed())
	require.Equal(t, []string{"body"}, s.as(http.MethodPost, path+"/contacts/release", `{}`).fieldsNamed())
}

// In any order, no person has two leads, and each lead keeps a contact.
func TestRelease_ConcurrentWithCaptures(t *testing.T) {
	t.Parallel()
	s := start(t)
	processes := []*service{s, s.another()}
	created := s.capture(`{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`)
	path := leads + "/" + created.at("data", "leadId").(string) + "/contacts/release"
	var group sync.WaitGroup
	var mu sync.Mutex
	var releases, births int
	for i := range 24 {
		group.Go(func() {
			p := processes[i%2]
			if i%3 == 0 {
				r := p.as(http.MethodPost, path,
					[]string{`{"phone":"9876543210"}`, `{"email":"asha@example.com"}`}[i/3%2])
				assert.Contains(t, []int{http.StatusOK, http.StatusBadRequest, http.StatusConflict}, r.status, r.raw)
				mu.Lock()
				defer mu.Unlock()
				if r.status == http.StatusOK {
					releases++
				}
				return
			}
			r := p.capture(fmt.Sprintf(`{"phone":"9876543210","n%d":1,"metadata":{"source":"website"}}`, i))
			assert.Contains(t, []int{http.StatusOK, http.StatusCreated}, r.status, r.raw)
			mu.Lock()
			defer mu.Unlock()
			if r.status == http.StatusCreated {
				births++
			}
		})
	}
	group.Wait()
	require.Equal(t, 1, releases, "the second release found the last contact or no lead")
	require.LessOrEqual(t, births, 1)
	next := s.capture(`{"phone":"9876543210","metadata":{"source":"website"}}`)
	require.Contains(t, []int{http.StatusOK, http.StatusCreated}, next.status)
	found := s.as(http.MethodGet, after(leads+"?phone=9876543210", next), "")
	require.Len(t, found.at("data"), 1, found.raw)
}

// twoLeads captures a person by phone and by email as two leads, and returns their ids.
func (s *service) twoLeads() (byPhone, byEmail string) {
	s.t.Helper()
	one := s.capture(`{"phone":"9876543210","city":"Pune","visitorId":"v-1","metadata":{"source":"website",` +
		`"utm":"x"}}`).is(http.StatusCreated)
	other := s.capture(`{"name":"Asha","email":"asha@example.com","opportunityValue":7,"city":"Goa","size":"XL",` +
		`"visitorId":"v-2","metadata":{"source":"google_ad"}}`).is(http.StatusCreated)
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
		s.as(http.MethodPost, visitors+visitor+"/activity", fmt.Sprintf(`{"type":"page_view","title":%q}`, title)).
			is(http.StatusAccepted)
	}
	clash := s.capture(`{"phone":"9876543210","email":"asha@example.com"}`)
	require.Equal(t, "DUPLICATE_LEAD_EMAIL", clash.at("code"), clash.raw)
	before := s.as(http.MethodGet, after(leads+"/"+from, clash), "")

	joined := s.join(into, from).is(http.StatusOK)
	for field, want := range map[string]any{
		"leadId": into, "name": "Asha", "phone": "+919876543210", "email": "asha@example.com", "opportunityValue": 7.0,
		"source":       "website",
		"customFields": map[string]any{"city": "Pune", "size": "XL"},
	} {
		require.Equal(t, want, joined.at("data", field), field)
	}
	again := s.join(into, from)
	require.Equal(t, http.StatusOK, again.status, "a repeated join: %s", again.raw)
	require.Equal(t, joined.body["data"], again.body["data"])
	require.NotEmpty(t, again.header.Get("X-Log-Position"))

	shown := s.as(http.MethodGet, after(leads+"/"+into, joined), "")
	require.Equal(t, []any{from}, shown.at("data", "joined"), shown.raw)
	require.Equal(t, "x", shown.at("data", "metadata", "utm"))
	source := s.as(http.MethodGet, after(leads+"/"+from, joined), "").is(http.StatusOK)
	require.Equal(t, into, source.at("data", "joinedInto"))
	require.Equal(t, before.at("data", "customFields"), source.at("data", "customFields"), "unchanged")

	list := s.as(http.MethodGet, after(leads, joined), "").at("data").([]any)
	require.Len(t, list, 1)
	require.Equal(t, into, list[0].(map[string]any)["leadId"])
	events := s.as(http.MethodGet, leads+"/"+from+"/events", "").at("data").([]any)
	require.Equal(t, "lead.joinedinto", events[len(events)-1].(map[string]any)["type"])
	events = s.as(http.MethodGet, leads+"/"+into+"/events", "").at("data").([]any)
	require.Equal(t, "lead.joined", events[len(events)-1].(map[string]any)["type"])

	activity := s.as(http.MethodGet, after(leads+"/"+into+"/activity", joined), "").at("data").([]any)
	require.Len(t, activity, 2)
	require.Len(t, s.as(http.MethodGet, after(leads+"/"+from+"/activity", joined), "").at("data"), 1)

	// Reads as of a time before the join show both leads.
	at := "?asOf=" + before.at("data", "updatedAt").(string)
	was := s.as(http.MethodGet, leads+"/"+from+at, "")
	require.Equal(t, before.body["data"], was.body["data"], was.raw)
	was = s.as(http.MethodGet, leads+"/"+into+at, "")
	require.Equal(t, "", was.at("data", "email"), was.raw)
	was = s.as(http.MethodGet, leads+"/"+from+"?asOf="+joined.at("data", "updatedAt").(string), "")
	require.Equal(t, into, was.at("data", "joinedInto"), was.raw)

	for _, body := range []string{
		`{"phone":"9876543210"}`, `{"email":"asha@example.com"}`, `{"phone":"9876543210","email":"asha@example.com"}`,
	} {
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
			require.NotContains(t, counted, entry["source"], "one entry for each source")
			counted[entry["source"].(string)] = entry["arrivals"].(float64)
		}
		return counted
	}
	both := map[string]float64{"website": 2, "google_ad": 1}
	require.Equal(t, both, arrivals(path(into)+"/sources"))
	require.Equal(t, both, arrivals("/api/v1/crm/sources/history"), "the account's history counts each arrival once")
	require.Equal(t, map[string]float64{"website": 1, "google_ad": 1}, arrivals(path(from)+"/sources"),
		"the sources of the source lead are kept")
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
			require.Equal(t, was[column], is[column], "the arrivals are unchanged")
		}
		require.Zero(t, is["won"], "the surviving lead is not won")
	}

	repeat := s.capture(`{"email":"asha@example.com","metadata":{"source":"google_ad"}}`).is(http.StatusOK)
	entries := s.as(http.MethodGet, after(path(into)+"/sources", repeat), "").at("data").([]any)
	require.Len(t, entries, 2, "the lead has the sources of both")
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
		"a change":     s.as(http.MethodPatch, path, `{"name":"B"}`),
		"a release":    s.as(http.MethodPost, path+"/contacts/release", `{"email":"asha@example.com"}`),
		"a join":       s.join(from, third),
		"reverse join": s.join(from, into),
	} {
		require.Equal(t, http.StatusConflict, r.status, "%s: %s", name, r.raw)
		require.Equal(t, "LEAD_JOINED", r.at("code"))
		require.Equal(t, "Lead "+from+" was joined into lead "+third, r.at("message"),
			"the message has the final surviving lead")
	}
	again := s.join(into, from).is(http.StatusOK)
	require.Equal(t, third, again.at("data", "leadId"), "a repeated join returns the final surviving lead")
	shown := s.as(http.MethodGet, after(path, again), "")
	require.Equal(t, third, shown.at("data", "joinedInto"), shown.raw)
	fourth := s.capture(`{"phone":"9876543218"}`).at("data", "leadId").(string)
	s.join(fourth, from).is(http.StatusConflict)

	path = leads + "/" + third
	s.as(http.MethodPost, path+"/contacts/release", `{"email":"asha@example.com"}`).is(http.StatusOK)
	stranger := s.capture(`{"email":"asha@example.com"}`).is(http.StatusCreated)
	require.Equal(t, http.StatusOK, s.join(into, from).status,
		"a repeated join succeeds after another lead got the address")
	known := s.capture(`{"email":"asha@example.com","metadata":{"source":"website"}}`)
	require.Equal(t, stranger.at("data", "leadId"), known.at("data", "leadId"), known.raw)
}

func TestJoin_Rejections(t *testing.T) {
	t.Parallel()
	s := start(t)
	into, from := s.twoLeads()
	path := leads + "/" + into + "/join"
	for body, field := range map[string]string{
		`{}`: "from", `{"from":null}`: "from", `{"from":7}`: "from", fmt.Sprintf(`{"from":%q}`, into): "from",
		`[]`: "body",
	} {
		require.Equal(t, []string{field},
			s.as(http.MethodPost, path, body).is(http.StatusBadRequest).fieldsNamed(), body)
	}
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	captured := s.send(call{
		method: http.MethodPost, path: leads, credential: s.mint("other", ""), body: `{"phone":"9876543210"}`,
	})
	foreign := captured.at("data", "leadId").(string)
	for _, pair := range [][2]string{
		{into, foreign}, {foreign, into}, {into, "01JQKXZ8V4W9H6M3T2R5N7P0AB"}, {"01JQKXZ8V4W9H6M3T2R5N7P0AB", into},
		{into, "x"}, {"x", into},
	} {
		require.Equal(t, http.StatusNotFound, s.join(pair[0], pair[1]).status, "%v", pair)
	}
	_, value := s.token()
	for credential, status := range map[string]int{
		s.mint("other", ""): http.StatusNotFound, s.mint(ownAccount, "leads:read"): http.StatusForbidden,
		value: http.StatusUnauthorized,
	} {
		s.send(call{
			method: http.MethodPost, path: path, credential: credential, body: fmt.Sprintf(`{"from":%q}`, from),
		}).is(status)
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
			require.NotContains(t, []any{"lead.joinedinto", "lead.joined", "lead.joining"},
				e.(map[string]any)["type"], "nothing changed")
		}
	}
}

// In any order, all leads end as one, and every answer has its id.
func TestJoin_ConcurrentJoinsAndCaptures(t *testing.T) {
	t.Parallel()
	s := start(t)
	processes := []*service{s, s.another()}
	phone := func(i int) string { return fmt.Sprintf("987654321%d", i) }
	var ids []string
	for i := range 3 {
		ids = append(ids,
			s.capture(fmt.Sprintf(`{"phone":%q,"metadata":{"source":"website"}}`, phone(i))).at("data", "leadId").(string))
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
	surviving := list[0].(map[string]any)
	require.Len(t, surviving["customFields"], 18, "every arrival counts once")
	for i := range 3 {
		r := s.capture(fmt.Sprintf(`{"phone":%q,"metadata":{"source":"website"}}`, phone(i)))
		require.Equal(t, surviving["leadId"], r.at("data", "leadId"), r.raw)
	}
}

func TestJoin_IdempotentRepeat(t *testing.T) {
	t.Parallel()
	s := start(t)
	send := func() reply {
		return s.send(call{
			method: http.MethodPost, path: leads, credential: s.jwt, body: `{"email":"asha@example.com"}`,
			header: map[string]string{"Idempotency-Key": "k"},
		})
	}
	first := send()
	other := s.capture(`{"phone":"9876543210"}`).at("data", "leadId").(string)
	s.join(other, first.at("data", "leadId").(string)).is(http.StatusOK)
	again := send()
	require.Equal(t, first.raw, again.raw)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
}
