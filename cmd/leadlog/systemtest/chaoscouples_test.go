package systemtest

import (
	"context"
	"fmt"
	"strconv"
)

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
