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

// load is what the callers of a round were told.
type load struct {
	calling sync.WaitGroup
	over    atomic.Bool

	mu      sync.Mutex
	people  []person
	couples []couple
	values  []tokenValue
}

// person is one whom a caller captured, again and again, and changed: the requests and their answers, in order.
type person struct {
	asked    []request
	answered []answer
	again    []bool // an earlier try of the request may have had its effect
}

func (p person) id() string { return p.lead(0) }

// lead is the id of the lead in an answer.
func (p person) lead(i int) string { return p.answered[i].data()["leadId"].(string) }

// at is the position of the event that an answer acknowledged, or empty if it is not known: a repeat that changed nothing is
// answered with the log's head, or without a position.
func (p person) at(i int) string {
	if p.asked[i].key == "" && p.again[i] {
		return ""
	}
	return p.answered[i].header.Get("X-Log-Position")
}

// ask insists on one of the answers, and keeps it.
func (p *person) ask(ctx context.Context, c *chaos, r request, want ...int) bool {
	got, again, ok := c.insist(ctx, r, want...)
	if ok {
		p.asked, p.answered, p.again = append(p.asked, r), append(p.answered, got), append(p.again, again)
	}
	return ok
}

// position is that of the last answer.
func (p person) position() string { return p.answered[len(p.answered)-1].header.Get("X-Log-Position") }

// load has callers call until its end: they bring people in, change, join and erase them, and create,
// rotate and delete tokens.
func (c *chaos) load(ctx context.Context, round int) *load {
	l := &load{}
	for range 8 {
		l.calling.Go(func() {
			for !l.over.Load() && !c.failed() && ctx.Err() == nil {
				n := c.people.Add(1)
				if n%4 == 0 {
					if both, ok := c.couple(ctx, n, n%8 == 0); ok {
						l.mu.Lock()
						l.couples = append(l.couples, both)
						l.mu.Unlock()
					}
				} else if p, ok := c.bringIn(ctx, n); ok {
					l.mu.Lock()
					l.people = append(l.people, p)
					l.mu.Unlock()
				}
			}
		})
	}
	for keeper := range 2 {
		l.calling.Go(func() {
			name := fmt.Sprintf("keeper %d of round %d", keeper, round)
			for !l.over.Load() && !c.failed() && ctx.Err() == nil {
				values := c.keepToken(ctx, l, name)
				l.mu.Lock()
				l.values = append(l.values, values...)
				l.mu.Unlock()
			}
		})
	}
	return l
}

// end lets the callers finish what they are at.
func (l *load) end() {
	l.over.Store(true)
	l.calling.Wait()
}

// bringIn is the life of one person: new, merged twice, refused, changed.
func (c *chaos) bringIn(ctx context.Context, n int64) (p person, ok bool) {
	phone, email := fmt.Sprintf("+9170000%05d", n), fmt.Sprintf("person%d@example.com", n)
	key := "person-" + strconv.FormatInt(n, 10) + "-"
	ask := func(want int, r request) bool { return p.ask(ctx, c, r, want) }
	if !ask(201, request{method: "POST", path: leadsPath, key: key + "1", body: fmt.Sprintf(`{"name":"P","phone":%q,"email":%q,"metadata":{"source":"website"}}`, phone, email)}) {
		return p, false
	}
	ok = ask(200, request{method: "POST", path: leadsPath, key: key + "2", body: fmt.Sprintf(`{"phone":%q,"opportunityValue":%d,"metadata":{"source":"whatsapp"}}`, phone, n+1)}) &&
		ask(200, request{method: "POST", path: leadsPath, key: key + "3", body: fmt.Sprintf(`{"email":%q}`, email)}) &&
		ask(409, request{method: "POST", path: leadsPath, key: key + "4", body: fmt.Sprintf(`{"email":%q,"name":"Q"}`, email)}) &&
		ask(200, request{method: "PATCH", path: leadsPath + "/" + p.id(), body: fmt.Sprintf(`{"status":"qualified","name":"Person %d"}`, n)})
	return p, ok
}

// couple is two leads that a caller captured and joined into the first, which found both afterwards: the requests and their
// answers, in order. The lead may have been erased then, and the person captured once more.
type couple struct {
	person
	erased bool
}

// The answers of a couple.
const (
	coupleInto = iota
	coupleFrom
	coupleJoined
	coupleMerged
	coupleErased
	coupleReturned
)

// couple is the life of two leads.
func (c *chaos) couple(ctx context.Context, n int64, erase bool) (both couple, ok bool) {
	both.erased = erase
	phone, email := fmt.Sprintf("+9170000%05d", n), fmt.Sprintf("person%d@example.com", n)
	key := "couple-" + strconv.FormatInt(n, 10) + "-"
	ask := func(r request, want ...int) bool { return both.ask(ctx, c, r, want...) }
	capture := func(nth, body string, want int) bool {
		return ask(request{method: "POST", path: leadsPath, key: key + nth, body: body}, want)
	}
	ok = capture("1", fmt.Sprintf(`{"name":"P","phone":%q,"metadata":{"source":"website"}}`, phone), 201) &&
		capture("2", fmt.Sprintf(`{"name":"Q","email":%q,"metadata":{"source":"whatsapp"}}`, email), 201) &&
		ask(request{method: "POST", path: leadsPath + "/" + both.id() + "/join", body: fmt.Sprintf(`{"from":%q}`, both.lead(coupleFrom))}, 200) &&
		capture("3", fmt.Sprintf(`{"email":%q}`, email), 200)
	if !ok || !erase {
		return both, ok
	}
	if !ask(request{method: "DELETE", path: leadsPath + "/" + both.id()}, 200, 404) {
		return both, false
	}
	if both.answered[coupleErased].status == 404 && !both.again[coupleErased] {
		c.complain("lead %s was not found for its erasure", both.id())
	}
	return both, capture("4", fmt.Sprintf(`{"phone":%q,"email":%q}`, phone, email), 201)
}

// announced are the positions of the events whose webhooks must come. Of an erased lead that is the erasure.
func (both couple) announced() (events []string) {
	first := coupleInto
	if both.erased {
		first = coupleErased
	}
	for i := first; i < len(both.answered); i++ {
		if at := both.at(i); at != "" {
			events = append(events, at)
		}
	}
	return events
}

// checkCoupleLog wants what was acknowledged on the streams of both leads. Those of erased leads are not shown.
func (c *chaos) checkCoupleLog(ctx context.Context, both couple) error {
	since := both.position()
	if both.erased {
		return c.checkLead(ctx, both.lead(coupleReturned), since, []fact{{"lead.created", both.at(coupleReturned)}})
	}
	err := c.checkLead(ctx, both.id(), since, []fact{
		{"lead.created", both.at(coupleInto)}, {"lead.joined", both.at(coupleJoined)}, {"lead.merged", both.at(coupleMerged)},
	})
	if err != nil {
		return err
	}
	return c.checkLead(ctx, both.lead(coupleFrom), since, []fact{{"lead.created", both.at(coupleFrom)}, {"lead.departed", ""}})
}

// checkCouple wants the two leads shown as one, or nothing of them after their erasure.
func (c *chaos) checkCouple(ctx context.Context, both couple) error {
	into, from, since := both.id(), both.lead(coupleFrom), "?minPosition="+both.position()
	if both.erased {
		return c.checkErased(ctx, both)
	}
	if both.lead(coupleJoined) != into || both.lead(coupleMerged) != into {
		return fmt.Errorf("leads %s and %s: the answers after their join name %s and %s", into, from, both.lead(coupleJoined), both.lead(coupleMerged))
	}
	if err := c.checkViews(ctx, both.person); err != nil {
		return err
	}
	shown, _, ok := c.insist(ctx, request{method: "GET", path: leadsPath + "/" + from + since}, 200)
	if !ok || shown.data()["joinedInto"] != into {
		return fmt.Errorf("lead %s was joined into %s, and is shown as %v", from, into, shown.body)
	}
	if _, _, ok := c.insist(ctx, request{method: "PATCH", path: leadsPath + "/" + from, body: `{"name":"R"}`}, 409); !ok {
		return fmt.Errorf("lead %s was joined into %s, and changed: %v", from, into, c.complaints())
	}
	return c.checkRepeats(ctx, both.person)
}

func (c *chaos) checkErased(ctx context.Context, both couple) error {
	into, from, since := both.id(), both.lead(coupleFrom), "?minPosition="+both.position()
	returned := both.lead(coupleReturned)
	if returned == into || returned == from {
		return fmt.Errorf("lead %s was erased, and captured again", returned)
	}
	for _, id := range []string{into, from} {
		for _, path := range []string{"", "/events", "/sources"} {
			if _, _, ok := c.insist(ctx, request{method: "GET", path: leadsPath + "/" + id + path + since}, 404); !ok {
				return fmt.Errorf("lead %s was erased: %v", id, c.complaints())
			}
		}
	}
	for _, i := range []int{coupleInto, coupleFrom, coupleMerged} {
		if _, _, ok := c.insist(ctx, both.asked[i], 410); !ok {
			return fmt.Errorf("lead %s was erased, and a repeat of its capture answered: %v", into, c.complaints())
		}
	}
	if _, _, ok := c.insist(ctx, request{method: "GET", path: leadsPath + "/" + returned + since}, 200); !ok {
		return fmt.Errorf("lead %s is in no view: %v", returned, c.complaints())
	}
	return nil
}

const tokensPath = "/api/v1/crm/tokens"

// tokenValue is a value that a token was given.
type tokenValue struct {
	name         string // of the token
	token, value string
	position     string // of the fact on the log
	fact         string // its type
	dead         bool   // the token was rotated or deleted after it
}

// keepToken is the life of one token: created, rotated up to ten times, the new value and the old tried after each, and
// deleted. At the end of the load it is left alive, to be tried in the calm.
func (c *chaos) keepToken(ctx context.Context, l *load, name string) (values []tokenValue) {
	got, ok := c.createToken(ctx, name)
	if !ok {
		return nil
	}
	id := got.data()["tokenId"].(string)
	values = []tokenValue{newValue(got, "token.created")}
	for turn := 0; turn < 10 && !l.over.Load(); turn++ {
		if got, _, ok = c.insist(ctx, request{method: "POST", path: tokensPath + "/" + id + "/rotate"}, 200); !ok {
			return values
		}
		values[len(values)-1].dead = true
		values = append(values, newValue(got, "token.rotated"))
		if !c.tryValue(ctx, values[len(values)-1]) || !c.tryValue(ctx, values[len(values)-2]) {
			return values
		}
	}
	if l.over.Load() {
		return values
	}
	got, again, ok := c.insist(ctx, request{method: "DELETE", path: tokensPath + "/" + id}, 200, 404)
	if ok && got.status == 404 && !again {
		c.complain("token %s was not there to be deleted", id)
	}
	if ok {
		values[len(values)-1].dead = true
		c.tryValue(ctx, values[len(values)-1])
	}
	c.sweep(ctx, name)
	return values
}

func newValue(got answer, fact string) tokenValue {
	return tokenValue{
		name: got.data()["name"].(string), token: got.data()["tokenId"].(string), value: got.data()["plainToken"].(string),
		position: got.header.Get("X-Log-Position"), fact: fact,
	}
}

// tryValue uses a value: one that is dead must let nobody in, and one that lives must.
func (c *chaos) tryValue(ctx context.Context, v tokenValue) bool {
	want := []int{200, 201}
	if v.dead {
		want = []int{401}
	}
	_, _, ok := c.insist(ctx, request{
		method: "POST", path: leadsPath, bearer: v.value, body: `{"email":"token@example.com","metadata":{"source":"website"}}`,
	}, want...)
	return ok
}

// createToken creates one. A try without an answer may have made a token that nobody knows, and that holds a place:
// it is looked for when there is none left.
func (c *chaos) createToken(ctx context.Context, name string) (got answer, ok bool) {
	for {
		got, _, ok = c.insist(ctx, request{method: "POST", path: tokensPath, body: fmt.Sprintf(`{"name":%q,"expiresInDays":30}`, name)}, 201, 409)
		if !ok || got.status == 201 {
			return got, ok
		}
		c.sweep(ctx, name)
		time.Sleep(20 * time.Millisecond) // the list may not show it yet, or it is another keeper's
	}
}

// sweep deletes all tokens of a name that the list shows.
func (c *chaos) sweep(ctx context.Context, name string) {
	listed, _, ok := c.insist(ctx, request{method: "GET", path: tokensPath + "?limit=200"}, 200)
	if !ok {
		return
	}
	for _, item := range listed.body["data"].([]any) {
		shown := item.(map[string]any)
		if shown["name"] == name && shown["status"] == "active" {
			c.insist(ctx, request{method: "DELETE", path: tokensPath + "/" + shown["tokenId"].(string)}, 200, 404)
		}
	}
}
