package systemtest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const leadsPath = "/api/v1/crm/leads"

// load has the callers of a round and their answers.
type load struct {
	callers sync.WaitGroup
	stopped atomic.Bool

	mu     sync.Mutex
	people []person
	joined []joinedLeads
	values []tokenValue
}

// person has the requests of a caller that captures and changes one person, and their answers, in order.
type person struct {
	requests []request
	answers  []answer
	retried  []bool // an earlier attempt may have had its effect
}

func (p person) id() string { return p.lead(0) }

// lead returns the id of the lead in an answer.
func (p person) lead(i int) string { return p.answers[i].data()["leadId"].(string) }

// at returns the position of the acknowledged event, or an empty string if it is unknown. The answer to a repeat
// without a change has the log's head, or no position.
func (p person) at(i int) string {
	if p.requests[i].key == "" && p.retried[i] {
		return ""
	}
	return p.answers[i].header.Get("X-Log-Position")
}

// retry calls chaos.retry and stores the answer.
func (p *person) retry(ctx context.Context, c *chaos, r request, want ...int) bool {
	got, again, ok := c.retry(ctx, r, want...)
	if ok {
		p.requests, p.answers, p.retried = append(p.requests, r), append(p.answers, got), append(p.retried, again)
	}
	return ok
}

// position returns the position of the last answer.
func (p person) position() string { return p.answers[len(p.answers)-1].header.Get("X-Log-Position") }

// load starts callers that capture, change, join and erase people, and create, rotate and delete tokens, until end is
// called.
func (c *chaos) load(ctx context.Context, round int) *load {
	l := &load{}
	for range 8 {
		l.callers.Go(func() {
			for !l.stopped.Load() && !c.failed() && ctx.Err() == nil {
				n := c.people.Add(1)
				if n%4 == 0 {
					if both, ok := c.joinLeads(ctx, n, n%8 == 0); ok {
						l.mu.Lock()
						l.joined = append(l.joined, both)
						l.mu.Unlock()
					}
				} else if p, ok := c.capturePerson(ctx, n); ok {
					l.mu.Lock()
					l.people = append(l.people, p)
					l.mu.Unlock()
				}
			}
		})
	}
	for token := range 2 {
		l.callers.Go(func() {
			name := fmt.Sprintf("token %d of round %d", token, round)
			for !l.stopped.Load() && !c.failed() && ctx.Err() == nil {
				values := c.exerciseToken(ctx, l, name)
				l.mu.Lock()
				l.values = append(l.values, values...)
				l.mu.Unlock()
			}
		})
	}
	return l
}

// end stops the callers after their current sequence.
func (l *load) end() {
	l.stopped.Store(true)
	l.callers.Wait()
}

// capturePerson captures one person: created, merged twice, refused, changed.
func (c *chaos) capturePerson(ctx context.Context, n int64) (p person, ok bool) {
	phone, email := fmt.Sprintf("+9170000%05d", n), fmt.Sprintf("person%d@example.com", n)
	key := "person-" + strconv.FormatInt(n, 10) + "-"
	send := func(want int, r request) bool { return p.retry(ctx, c, r, want) }
	if !send(201, request{
		method: "POST", path: leadsPath, key: key + "1",
		body: fmt.Sprintf(`{"name":"P","phone":%q,"email":%q,"metadata":{"source":"website"}}`, phone, email),
	}) {
		return p, false
	}
	ok = send(200, request{
		method: "POST", path: leadsPath, key: key + "2",
		body: fmt.Sprintf(`{"phone":%q,"opportunityValue":%d,"metadata":{"source":"whatsapp"}}`, phone, n+1),
	}) &&
		send(200, request{method: "POST", path: leadsPath, key: key + "3", body: fmt.Sprintf(`{"email":%q}`, email)}) &&
		send(409, request{
			method: "POST", path: leadsPath, key: key + "4", body: fmt.Sprintf(`{"email":%q,"name":"Q"}`, email),
		}) &&
		send(200, request{
			method: "PATCH", path: leadsPath + "/" + p.id(),
			body: fmt.Sprintf(`{"status":"qualified","name":"Person %d"}`, n),
		})
	return p, ok
}

// joinedLeads has the requests of a caller that captures two leads and joins the second into the first, and their
// answers, in order. The caller may then erase the lead, and capture the person again.
type joinedLeads struct {
	person
	erased bool
}

// The answers of joinedLeads.
const (
	joinInto = iota
	joinFrom
	joinJoined
	joinMerged
	joinErased
	joinReturned
)

// joinLeads captures two leads, joins them, and may erase the result.
func (c *chaos) joinLeads(ctx context.Context, n int64, erase bool) (both joinedLeads, ok bool) {
	both.erased = erase
	phone, email := fmt.Sprintf("+9170000%05d", n), fmt.Sprintf("person%d@example.com", n)
	key := "join-" + strconv.FormatInt(n, 10) + "-"
	ask := func(r request, want ...int) bool { return both.retry(ctx, c, r, want...) }
	capture := func(nth, body string, want int) bool {
		return ask(request{method: "POST", path: leadsPath, key: key + nth, body: body}, want)
	}
	ok = capture("1", fmt.Sprintf(`{"name":"P","phone":%q,"metadata":{"source":"website"}}`, phone), 201) &&
		capture("2", fmt.Sprintf(`{"name":"Q","email":%q,"metadata":{"source":"whatsapp"}}`, email), 201) &&
		ask(request{
			method: "POST", path: leadsPath + "/" + both.id() + "/join",
			body: fmt.Sprintf(`{"from":%q}`, both.lead(joinFrom)),
		}, 200) &&
		capture("3", fmt.Sprintf(`{"email":%q}`, email), 200)
	if !ok || !erase {
		return both, ok
	}
	if !ask(request{method: "DELETE", path: leadsPath + "/" + both.id()}, 200, 404) {
		return both, false
	}
	if both.answers[joinErased].status == 404 && !both.retried[joinErased] {
		c.failf("lead %s was not found for its erasure", both.id())
	}
	return both, capture("4", fmt.Sprintf(`{"phone":%q,"email":%q}`, phone, email), 201)
}

// webhookEvents returns the positions of the events that have webhooks. Of an erased lead, only the erasure is certain
// to have one.
func (both joinedLeads) webhookEvents() (events []string) {
	first := joinInto
	if both.erased {
		first = joinErased
	}
	for i := first; i < len(both.answers); i++ {
		if at := both.at(i); at != "" {
			events = append(events, at)
		}
	}
	return events
}

// checkJoinedLog requires the acknowledged events on the streams of both leads. Events of erased leads are not visible.
func (c *chaos) checkJoinedLog(ctx context.Context, both joinedLeads) error {
	since := both.position()
	if both.erased {
		return c.checkLead(ctx, both.lead(joinReturned), since, []fact{{"lead.created", both.at(joinReturned)}})
	}
	err := c.checkLead(ctx, both.id(), since, []fact{
		{"lead.created", both.at(joinInto)}, {"lead.joined", both.at(joinJoined)}, {"lead.merged", both.at(joinMerged)},
	})
	if err != nil {
		return err
	}
	return c.checkLead(ctx, both.lead(joinFrom), since, []fact{
		{"lead.created", both.at(joinFrom)}, {"lead.joinedinto", ""},
	})
}

// checkJoined requires that the two leads are shown as one lead, or not at all after their erasure.
func (c *chaos) checkJoined(ctx context.Context, both joinedLeads) error {
	into, from, since := both.id(), both.lead(joinFrom), "?minPosition="+both.position()
	if both.erased {
		return c.checkErased(ctx, both)
	}
	if both.lead(joinJoined) != into || both.lead(joinMerged) != into {
		return fmt.Errorf("leads %s and %s: the answers after their join name %s and %s", into, from,
			both.lead(joinJoined), both.lead(joinMerged))
	}
	if err := c.checkViews(ctx, both.person); err != nil {
		return err
	}
	shown, _, ok := c.retry(ctx, request{method: "GET", path: leadsPath + "/" + from + since}, 200)
	if !ok || shown.data()["joinedInto"] != into {
		return fmt.Errorf("lead %s was joined into %s, and is shown as %v", from, into, shown.body)
	}
	if _, _, ok := c.retry(ctx, request{
		method: "PATCH", path: leadsPath + "/" + from, body: `{"name":"R"}`,
	}, 409); !ok {
		return fmt.Errorf("lead %s was joined into %s, and changed: %v", from, into, c.failures())
	}
	return c.checkRepeats(ctx, both.person)
}

func (c *chaos) checkErased(ctx context.Context, both joinedLeads) error {
	into, from, since := both.id(), both.lead(joinFrom), "?minPosition="+both.position()
	returned := both.lead(joinReturned)
	if returned == into || returned == from {
		return fmt.Errorf("lead %s was erased, and captured again", returned)
	}
	for _, id := range []string{into, from} {
		for _, path := range []string{"", "/events", "/sources"} {
			if _, _, ok := c.retry(ctx, request{method: "GET", path: leadsPath + "/" + id + path + since}, 404); !ok {
				return fmt.Errorf("lead %s was erased: %v", id, c.failures())
			}
		}
	}
	for _, i := range []int{joinInto, joinFrom, joinMerged} {
		if _, _, ok := c.retry(ctx, both.requests[i], 410); !ok {
			return fmt.Errorf("lead %s was erased, and a repeat of its capture did not get 410: %v", into, c.failures())
		}
	}
	if _, _, ok := c.retry(ctx, request{method: "GET", path: leadsPath + "/" + returned + since}, 200); !ok {
		return fmt.Errorf("lead %s is in no view: %v", returned, c.failures())
	}
	return nil
}

const tokensPath = "/api/v1/crm/tokens"

// tokenValue is a value of a token.
type tokenValue struct {
	name         string // of the token
	token, value string
	position     string // of its event
	fact         string // type of the event
	revoked      bool   // the token was rotated or deleted after it
}

// exerciseToken creates one token, rotates it up to ten times, uses the new and the old value after each rotation, and
// deletes it. The last token of the load is kept, to be checked without load.
func (c *chaos) exerciseToken(ctx context.Context, l *load, name string) (values []tokenValue) {
	got, ok := c.createToken(ctx, name)
	if !ok {
		return nil
	}
	id := got.data()["tokenId"].(string)
	values = []tokenValue{newValue(got, "token.created")}
	for turn := 0; turn < 10 && !l.stopped.Load(); turn++ {
		if got, _, ok = c.retry(ctx, request{method: "POST", path: tokensPath + "/" + id + "/rotate"}, 200); !ok {
			return values
		}
		values[len(values)-1].revoked = true
		values = append(values, newValue(got, "token.rotated"))
		if !c.useValue(ctx, values[len(values)-1]) || !c.useValue(ctx, values[len(values)-2]) {
			return values
		}
	}
	if l.stopped.Load() {
		return values
	}
	got, again, ok := c.retry(ctx, request{method: "DELETE", path: tokensPath + "/" + id}, 200, 404)
	if ok && got.status == 404 && !again {
		c.failf("token %s was not found for its deletion", id)
	}
	if ok {
		values[len(values)-1].revoked = true
		c.useValue(ctx, values[len(values)-1])
	}
	c.deleteTokens(ctx, name)
	return values
}

func newValue(got answer, fact string) tokenValue {
	return tokenValue{
		name: got.data()["name"].(string), token: got.data()["tokenId"].(string),
		value: got.data()["plainToken"].(string), position: got.header.Get("X-Log-Position"), fact: fact,
	}
}

// useValue requires that a value is accepted, or refused if it is revoked.
func (c *chaos) useValue(ctx context.Context, v tokenValue) bool {
	want := []int{200, 201}
	if v.revoked {
		want = []int{401}
	}
	_, _, ok := c.retry(ctx, request{
		method: "POST", path: leadsPath, bearer: v.value,
		body: `{"email":"token@example.com","metadata":{"source":"website"}}`,
	}, want...)
	return ok
}

// createToken creates a token. An attempt without an answer may also have created one, which counts towards the limit.
// At the limit such tokens are deleted.
func (c *chaos) createToken(ctx context.Context, name string) (got answer, ok bool) {
	for {
		got, _, ok = c.retry(ctx, request{
			method: "POST", path: tokensPath, body: fmt.Sprintf(`{"name":%q,"expiresInDays":30}`, name),
		}, 201, 409)
		if !ok || got.status == 201 {
			return got, ok
		}
		c.deleteTokens(ctx, name)
		time.Sleep(20 * time.Millisecond) // the list may be behind, or the token belongs to another caller
	}
}

// deleteTokens deletes the active tokens of a name.
func (c *chaos) deleteTokens(ctx context.Context, name string) {
	listed, _, ok := c.retry(ctx, request{method: "GET", path: tokensPath + "?limit=200"}, 200)
	if !ok {
		return
	}
	for _, item := range listed.body["data"].([]any) {
		shown := item.(map[string]any)
		if shown["name"] == name && shown["status"] == "active" {
			c.retry(ctx, request{method: "DELETE", path: tokensPath + "/" + shown["tokenId"].(string)}, 200, 404)
		}
	}
}
