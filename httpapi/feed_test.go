package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi"
)

const eventsPath = "/api/v1/crm/events"

// feed reads a page of the change feed.
func (s *service) feed(query string) (events []map[string]any, next string) {
	s.t.Helper()
	r := s.as(http.MethodGet, eventsPath+"?"+query, "").is(http.StatusOK)
	for _, e := range r.at("data").([]any) {
		events = append(events, e.(map[string]any))
	}
	return events, r.at("nextCursor").(string)
}

func typesOf(events []map[string]any) (types []string) {
	for _, e := range events {
		types = append(types, e["type"].(string))
	}
	return types
}

func TestFeed_SameAsEventLists(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.capture(fullArrival).is(http.StatusCreated).at("data", "leadId").(string)
	s.as(http.MethodPatch, "/api/v1/crm/leads/"+id, `{"name":"Asha R"}`).is(http.StatusOK)
	token, _ := s.token()
	s.as(http.MethodPost, "/api/v1/crm/tokens/"+token+"/rotate", "").is(http.StatusOK)
	s.capture(`{"phone":"9876543210","metadata":{"source":"api"}}`).is(http.StatusOK)
	s.capture(`{"phone":"9876543210","metadata":{"source":"api"}}`).is(http.StatusConflict)

	events, next := s.feed("")
	require.Equal(t, []string{
		"account.configured", "lead.created", "lead.updated", "token.created", "token.rotated", "lead.merged",
		"lead.refused",
	}, typesOf(events))
	for _, list := range []string{"/api/v1/crm/leads/" + id + "/events", "/api/v1/crm/tokens/" + token + "/events"} {
		for _, shown := range s.as(http.MethodGet, list, "").is(http.StatusOK).at("data").([]any) {
			shown := shown.(map[string]any)
			i := slices.IndexFunc(events, func(e map[string]any) bool { return e["id"] == shown["id"] })
			require.GreaterOrEqual(t, i, 0, shown)
			for _, member := range []string{"type", "at", "actor", "requestId", "data", "position"} {
				require.Equal(t, shown[member], events[i][member], "%s of %s", member, shown["type"])
			}
			require.Equal(t, false, events[i]["erased"])
		}
	}
	again, _ := s.feed("after=" + next) // no events after the cursor, although the read was recorded
	require.Empty(t, again)
}

func TestFeed_Erasure(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.capture(fullArrival).is(http.StatusCreated).at("data", "leadId").(string)
	s.capture(`{"name":"Asha","phone":"9876543210","metadata":{"source":"whatsapp"}}`).is(http.StatusOK)
	before, _ := s.feed("limit=2")
	cursors := func() (all []string) {
		r := s.send(call{
			method: http.MethodGet, path: eventsPath, credential: s.jwt,
			header: map[string]string{"Accept": "application/x-ndjson"},
		}).is(http.StatusOK)
		for line := range strings.Lines(r.raw) {
			var e map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			all = append(all, e["cursor"].(string)+" "+e["id"].(string))
		}
		return all
	}
	known := cursors()
	s.as(http.MethodDelete, "/api/v1/crm/leads/"+id, "").is(http.StatusOK)
	r := s.as(http.MethodGet, eventsPath, "").is(http.StatusOK)
	for _, trace := range traces {
		if trace != "diwali" { // the campaign is not personal data
			require.NotContains(t, r.raw, trace)
		}
	}
	require.NotContains(t, r.raw, "claim-")
	after, _ := s.feed("")
	require.Equal(t, []string{"account.configured", "lead.created", "lead.merged", "lead.erased"}, typesOf(after))
	require.Equal(t, before[1]["id"], after[1]["id"])
	require.Equal(t, []any{false, true, true, false}, []any{
		after[0]["erased"], after[1]["erased"], after[2]["erased"], after[3]["erased"],
	})
	require.Equal(t, "website", after[1]["data"].(map[string]any)["source"])
	require.Equal(t, known, cursors()[:len(known)])
}

// An erasure was interrupted between its event and the destruction of the keys.
func TestFeed_HidesUnfinishedErasure(t *testing.T) {
	t.Parallel()
	s := start(t)
	joined := s.capture(`{"name":"Asha","phone":"9876543210"}`).is(http.StatusCreated).at("data", "leadId").(string)
	id := s.capture(`{"name":"Rao","email":"asha@example.com","customFields":{"city":"pune-city"}}`).
		is(http.StatusCreated).at("data", "leadId").(string)
	other := s.capture(`{"name":"Gus","email":"gus@example.com"}`).is(http.StatusCreated).at("data", "leadId").(string)
	s.as(http.MethodPost, "/api/v1/crm/leads/"+id+"/join", `{"from":"`+joined+`"}`).is(http.StatusOK)
	facts := s.commands.Erasure(command.Caller{Account: s.account, Actor: "user:ann"})
	_, at, _, err := facts.EraseLead(t.Context(), id, s.eraser().Keys)
	require.NoError(t, err)
	s.as(http.MethodGet, "/api/v1/crm/leads?minPosition="+strconv.FormatUint(uint64(at), 10), "").is(http.StatusOK)
	events, _ := s.feed("types=lead.*")
	for _, e := range events {
		require.Equal(t, !strings.HasSuffix(e["stream"].(string), other) && e["type"] != "lead.erased", e["erased"], e)
		if e["erased"] == true {
			require.Empty(t, e["requestId"])
		}
	}
	require.Equal(t,
		[]string{"lead.created", "lead.created", "lead.created", "lead.joinedinto", "lead.joined", "lead.erased"},
		typesOf(events))
	raw := s.as(http.MethodGet, eventsPath, "").raw
	require.Contains(t, raw, "gus@example.com")
	for _, trace := range traces {
		require.NotContains(t, raw, trace)
	}
}

func TestFeed_Scopes(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.token()
	s.as(http.MethodPost, "/webhooks/endpoints", `{"url":"https://8.8.8.8/hook"}`).is(http.StatusCreated)
	s.capture(fullArrival).is(http.StatusCreated)
	for scope, want := range map[string]string{
		"leads:read":                          "lead.created",
		"leads:read audit:read":               "account.configured token.created lead.created",
		"leads:read webhooks:read":            "webhook.registered lead.created",
		"leads:read audit:read webhooks:read": "account.configured token.created webhook.registered lead.created",
	} {
		r := s.send(call{
			method: http.MethodGet, path: eventsPath, credential: s.mint(ownAccount, scope),
		}).is(http.StatusOK)
		var types []string
		for _, e := range r.at("data").([]any) {
			types = append(types, e.(map[string]any)["type"].(string))
		}
		require.Equal(t, want, strings.Join(types, " "), scope)
	}
	s.send(call{
		method: http.MethodGet, path: eventsPath, credential: s.mint(ownAccount, "audit:read"),
	}).is(http.StatusForbidden)
	r := s.send(call{
		method: http.MethodGet, path: eventsPath + "?types=token.*", credential: s.mint(ownAccount, "leads:read"),
	}).is(http.StatusOK)
	require.Empty(t, r.at("data"), "events without a scope are omitted")
}

func TestFeed_QuarantinedArrival(t *testing.T) {
	t.Parallel()
	s := start(t)
	path, _ := s.createIntake(bearerIntake)
	quarantined := s.deliver(path, `{"id":"1","name":"Asha"}`, validProof).is(http.StatusOK)
	s.deliver(path, `{"id":"2","phone":"9876543210"}`, validProof).is(http.StatusOK)
	id := quarantined.at("arrivalId").(string)
	read := func(scope string) []any {
		return s.send(call{
			method: http.MethodGet, path: eventsPath + "?types=arrival.*", credential: s.mint(ownAccount, scope),
		}).is(http.StatusOK).at("data").([]any)
	}
	require.Empty(t, read("leads:read audit:read webhooks:read"))
	events := read("leads:read intakes:read")
	require.Len(t, events, 1)
	shown := events[0].(map[string]any)
	require.Equal(t, "arrival.quarantined", shown["type"])
	listed := s.as(http.MethodGet, after("/api/v1/crm/arrivals?state=quarantined", quarantined), "").is(http.StatusOK)
	require.Equal(t, listed.at("data").([]any)[0], shown["data"], "the arrival's record")
	require.Equal(t, id, shown["data"].(map[string]any)["arrivalId"])
}

func TestFeed_Parameters(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.capture(fullArrival).is(http.StatusCreated)
	for query, name := range map[string]string{
		"limit=0": "limit", "limit=1001": "limit", "limit=x": "limit", "wait=31": "wait", "wait=-1": "wait",
		"wait=NaN": "wait", "types=data.revealed": "types", "types=lead.creat": "types", "types=lead.*,": "types",
		"types=claim.*": "types", "after=x": "after", "after=a&after=b": "after", "minPosition=x": "minPosition",
		"minPosition=999999999": "minPosition",
	} {
		r := s.as(http.MethodGet, eventsPath+"?"+query, "").is(http.StatusBadRequest)
		require.Equal(t, name, r.at("errors").([]any)[0].(map[string]any)["field"], query)
	}
	events, next := s.feed("types=" + url.QueryEscape("lead.created,token.*"))
	require.Equal(t, []string{"lead.created"}, typesOf(events))

	stranger := s.stranger("leads:read")
	s.send(call{
		method: http.MethodGet, path: eventsPath + "?after=" + next, credential: stranger,
	}).is(http.StatusBadRequest)
	r := s.send(call{method: http.MethodGet, path: eventsPath, credential: stranger}).is(http.StatusOK)
	require.Empty(t, r.at("data"), "another account's events")

	database := migrated(t)
	other := startOn(t, database, database, nil) // with the same key and account
	other.suffix, other.jwt = s.suffix, s.jwt
	other.provisioned()
	r = other.as(http.MethodGet, eventsPath+"?after="+next, "").is(http.StatusGone)
	require.Equal(t, "CURSOR_OF_ANOTHER_LOG", r.at("code"))
}

func TestFeed_WaitEndsAtEvent(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, next := s.feed("")
	answered := make(chan reply)
	go func() { answered <- s.as(http.MethodGet, eventsPath+"?wait=30&types=lead.created&after="+next, "") }()
	s.token() // an event of another type does not end the wait
	s.capture(fullArrival).is(http.StatusCreated)
	r := (<-answered).is(http.StatusOK)
	require.Equal(t, "lead.created", r.at("data").([]any)[0].(map[string]any)["type"])

	began := time.Now()
	events, _ := s.feed("wait=0.2&after=" + r.at("nextCursor").(string))
	require.Empty(t, events)
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
}

func TestFeed_WaitEndsAtShutdown(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	s := start(t, func(o *httpapi.Options) { o.Stopping = stopping })
	_, next := s.feed("")
	answered := make(chan reply)
	go func() { answered <- s.as(http.MethodGet, eventsPath+"?wait=30&after="+next, "") }()
	close(stopping)
	require.Empty(t, (<-answered).is(http.StatusOK).at("data"))
}

func TestFeed_WaitsBoundedPerAccount(t *testing.T) {
	t.Parallel()
	stopping := make(chan struct{})
	// an account may have 2 waiting requests
	s := start(t, func(o *httpapi.Options) { o.Stopping, o.MaxRequests = stopping, 32 })
	_, next := s.feed("")
	var waits sync.WaitGroup
	refused := make(chan struct{}, 3)
	for range 3 {
		waits.Go(func() {
			if s.request(call{
				method: http.MethodGet, path: eventsPath + "?wait=30&after=" + next, credential: s.jwt,
			}).status == http.StatusTooManyRequests {
				refused <- struct{}{}
			}
		})
	}
	<-refused
	s.feed("") // requests without a wait are served
	close(stopping)
	waits.Wait()
	require.Empty(t, refused)
}

// TestFeed_FollowerSeesEachEventOnce captures while a follower reads with random limits and waits. At random the
// follower restarts from its stored cursor.
func TestFeed_FollowerSeesEachEventOnce(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	s.provision("globex", account.Settings{Features: []string{account.FeatureAPI}, RateLimit: new(0.0)})
	globex, captured := s.mint("globex", ""), 0
	_, kept := s.feed("")
	rapid.Check(t, func(rt *rapid.T) {
		writers, each := rapid.IntRange(1, 2).Draw(rt, "writers"), rapid.IntRange(1, 2).Draw(rt, "each")
		first := captured
		captured += writers * each
		var writing sync.WaitGroup
		for i := range writers {
			writing.Go(func() {
				for j := range each {
					s.capture(fmt.Sprintf(`{"email":"p%d@example.com"}`, first+i*each+j))
				}
				s.send(call{
					method: http.MethodPost, path: "/api/v1/crm/leads", credential: globex,
					body: `{"email":"gus@example.com"}`,
				})
			})
		}
		seen, last := map[string]int{}, 0
		for len(seen) < writers*each {
			limit, wait := rapid.IntRange(1, 5).Draw(rt, "limit"),
				rapid.SampledFrom([]string{"0", "0.01", "1"}).Draw(rt, "wait")
			r := s.as(http.MethodGet,
				fmt.Sprintf("%s?types=lead.*&limit=%d&wait=%s&after=%s", eventsPath, limit, wait, kept),
				"").is(http.StatusOK)
			if rapid.IntRange(0, 4).Draw(rt, "crash") == 0 {
				continue // crash before the cursor is stored
			}
			kept = r.at("nextCursor").(string)
			for _, e := range r.at("data").([]any) {
				e := e.(map[string]any)
				position, err := strconv.Atoi(fmt.Sprint(e["position"]))
				require.NoError(rt, err)
				require.Greater(rt, position, last)
				last = position
				seen[e["id"].(string)]++
				require.Equal(rt, 1, seen[e["id"].(string)])
			}
		}
		writing.Wait()
		events, _ := s.feed("types=lead.*&after=" + kept)
		require.Empty(rt, events)
	})
}
