package systemtest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
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
