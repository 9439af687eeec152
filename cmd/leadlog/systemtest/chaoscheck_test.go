package systemtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// check holds what the callers of a round were told against the log, the views and the service, in the calm.
func (c *chaos) check(ctx context.Context, l *load) error {
	if err := c.checkLog(ctx, l); err != nil {
		return err
	}
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, p := range l.people {
		group.Go(func() error {
			if err := c.checkViews(each, p); err != nil {
				return err
			}
			return c.checkRepeats(each, p)
		})
	}
	for _, both := range l.couples {
		group.Go(func() error { return c.checkCouple(each, both) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, v := range l.values {
		if !c.tryValue(ctx, v) {
			return fmt.Errorf("value of token %s, dead: %v: %v", v.token, v.dead, c.wrong)
		}
		names[v.name] = true
	}
	for name := range names {
		c.sweep(ctx, name)
	}
	return nil
}

// checkLog wants every fact that was acknowledged on its stream, where it was said to be, and none of them twice.
func (c *chaos) checkLog(ctx context.Context, l *load) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, p := range l.people {
		group.Go(func() error {
			return c.checkLead(ctx, p.id(), p.position(), []fact{
				{"lead.created", p.at(0)}, {"lead.merged", p.at(1)}, {"lead.merged", p.at(2)}, {"lead.updated", p.at(4)},
			})
		})
	}
	for _, both := range l.couples {
		group.Go(func() error { return c.checkCoupleLog(ctx, both) })
	}
	for _, v := range l.values {
		group.Go(func() error {
			facts, err := c.facts(ctx, tokensPath+"/"+v.token, v.position)
			if err == nil && facts[v.position] != v.fact {
				err = fmt.Errorf("token %s: %s was acknowledged at %s, the log has %v", v.token, v.fact, v.position, facts)
			}
			return err
		})
	}
	return group.Wait()
}

// fact is an event that was acknowledged, at a position if that is known.
type fact struct{ kind, at string }

// checkLead wants these events on a lead's stream, and no others.
func (c *chaos) checkLead(ctx context.Context, id, since string, want []fact) error {
	facts, err := c.facts(ctx, leadsPath+"/"+id, since)
	if err != nil {
		return err
	}
	var kinds []string
	for _, f := range want {
		if f.at != "" && facts[f.at] != f.kind {
			return fmt.Errorf("lead %s: %s was acknowledged at %s, the log has %v", id, f.kind, f.at, facts)
		}
		kinds = append(kinds, f.kind)
	}
	if slices.Sort(kinds); !slices.Equal(kinds, slices.Sorted(maps.Values(facts))) {
		return fmt.Errorf("lead %s: %v were acknowledged, the log has %v", id, want, facts)
	}
	return nil
}

// facts are the events of a lead or token, by position, read once the views know of a position.
func (c *chaos) facts(ctx context.Context, path, since string) (map[string]string, error) {
	got, _, ok := c.insist(ctx, request{method: "GET", path: path + "/events?limit=200&minPosition=" + since}, 200)
	if !ok {
		return nil, fmt.Errorf("%s: no events: %v", path, c.wrong)
	}
	facts := map[string]string{}
	for _, item := range got.body["data"].([]any) {
		fact := item.(map[string]any)
		facts[fmt.Sprintf("%.0f", fact["position"])] = fact["type"].(string)
	}
	return facts, nil
}

// checkViews wants the lead as the last answer had it, and each of its arrivals once.
func (c *chaos) checkViews(ctx context.Context, p person) error {
	path, last := leadsPath+"/"+p.id(), p.answered[len(p.answered)-1]
	since := "?minPosition=" + p.position()
	shown, _, shownOK := c.insist(ctx, request{method: "GET", path: path + since}, 200)
	sources, _, sourcesOK := c.insist(ctx, request{method: "GET", path: path + "/sources" + since}, 200)
	if !shownOK || !sourcesOK {
		return fmt.Errorf("person %s: %v", p.id(), c.wrong)
	}
	for field, value := range last.data() {
		if !assert.ObjectsAreEqual(value, shown.data()[field]) {
			return fmt.Errorf("person %s: %s was answered as %v, the view has %v", p.id(), field, value, shown.data()[field])
		}
	}
	history := ""
	for _, item := range sources.body["data"].([]any) {
		entry := item.(map[string]any)
		history += fmt.Sprintf("%v %v, ", entry["source"], entry["arrivals"])
	}
	if history != "website 1, whatsapp 1, api 1, " {
		return fmt.Errorf("person %s: the history of its sources is %s", p.id(), history)
	}
	return nil
}

// checkRepeats repeats each capture with its key, and wants the answer that there was.
func (c *chaos) checkRepeats(ctx context.Context, p person) error {
	for i, r := range p.asked {
		if r.key == "" {
			continue
		}
		had := p.answered[i]
		got, _, ok := c.insist(ctx, r, had.status)
		if !ok || got.header.Get("Idempotent-Replayed") != "true" || !assert.ObjectsAreEqual(had.body, got.body) ||
			had.header.Get("X-Log-Position") != got.header.Get("X-Log-Position") {
			return fmt.Errorf("person %s: %s was answered %v, and with the same key again %d %v", p.id(), r.body, had.body, got.status, got.body)
		}
	}
	return nil
}

// checkWebhooks waits for the webhook of every fact that was acknowledged.
func (c *chaos) checkWebhooks(t *testing.T, l *load) {
	t.Helper()
	var events []string
	for _, p := range l.people {
		for i, got := range p.answered {
			if at := p.at(i); got.status != 409 && at != "" {
				events = append(events, at)
			}
		}
	}
	for _, both := range l.couples {
		events = append(events, both.announced()...)
	}
	for _, v := range l.values {
		events = append(events, v.position)
	}
	var missing []string
	require.Eventually(t, func() bool {
		missing = c.receiver.missing(events)
		return len(missing) == 0
	}, 2*time.Minute, 20*time.Millisecond, "webhooks of %d events; missing %v", len(events), &missing)
	// When the service is killed, so many attempts at an endpoint are ahead of what is written down.
	require.LessOrEqual(t, c.receiver.twice(), 64*c.died, "came twice")
}
