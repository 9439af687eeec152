package main

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

	mu     sync.Mutex
	people []person
	values []tokenValue
}

// person is one whom a caller captured, again and again, and changed: the requests and their answers, in order.
type person struct {
	asked    []request
	answered []answer
}

func (p person) id() string { return p.answered[0].data()["leadId"].(string) }

// position is that of the last answer.
func (p person) position() string { return p.answered[len(p.answered)-1].header.Get("X-Log-Position") }

// load has callers call until its end: they bring people in and change them, and create, rotate and delete tokens.
func (c *chaos) load(ctx context.Context, round int) *load {
	l := &load{}
	for range 8 {
		l.calling.Go(func() {
			for !l.over.Load() && !c.failed() && ctx.Err() == nil {
				if p, ok := c.bringIn(ctx, c.people.Add(1)); ok {
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
	ask := func(want int, r request) bool {
		got, _, ok := c.insist(ctx, r, want)
		if ok {
			p.asked, p.answered = append(p.asked, r), append(p.answered, got)
		}
		return ok
	}
	if !ask(201, request{method: "POST", path: leadsPath, key: key + "1", body: fmt.Sprintf(`{"name":"P","phone":%q,"email":%q,"metadata":{"source":"website"}}`, phone, email)}) {
		return p, false
	}
	ok = ask(200, request{method: "POST", path: leadsPath, key: key + "2", body: fmt.Sprintf(`{"phone":%q,"opportunityValue":%d,"metadata":{"source":"whatsapp"}}`, phone, n+1)}) &&
		ask(200, request{method: "POST", path: leadsPath, key: key + "3", body: fmt.Sprintf(`{"email":%q}`, email)}) &&
		ask(409, request{method: "POST", path: leadsPath, key: key + "4", body: fmt.Sprintf(`{"email":%q,"name":"Q"}`, email)}) &&
		ask(200, request{method: "PATCH", path: leadsPath + "/" + p.id(), body: fmt.Sprintf(`{"status":"qualified","name":"Person %d"}`, n)})
	return p, ok
}
