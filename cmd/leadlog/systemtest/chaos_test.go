package systemtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// chaosRounds names the variable with the number of rounds; make chaos sets it.
const chaosRounds = "LEADLOG_TEST_CHAOS_ROUNDS"

// kills are the kills of a round, under load.
var kills = map[string]func(*testing.T, *chaos){
	"the service": func(t *testing.T, c *chaos) {
		c.killService(t)
		c.start(t)
	},
	"PostgreSQL": func(t *testing.T, c *chaos) { killPostgres(t, c.settings) },
	"both at once": func(t *testing.T, c *chaos) {
		killPostgres(t, c.settings)
		c.killService(t)
		c.start(t)
	},
	"PostgreSQL, and the service after its next answer": func(t *testing.T, c *chaos) {
		killPostgres(t, c.settings)
		c.await(t, 1)
		c.killService(t)
		c.start(t)
	},
	"the service, and PostgreSQL while the next one starts": func(t *testing.T, c *chaos) {
		c.killService(t)
		starting := launch(t, c.settings, "dev")
		killPostgres(t, c.settings)
		<-c.ready(starting)
		c.start(t)
	},
	"every session of PostgreSQL": func(t *testing.T, c *chaos) { killSessions(t, c.settings) },
}

// nodeKills are the rounds for a log in EventStoreDB.
var nodeKills = map[string]func(*testing.T, *chaos){
	"the node": func(t *testing.T, c *chaos) {
		c.killNode()
		c.awaitUnanswered(t, 20)
		c.node.Reopen()
	},
	"the node, after appends that it did not answer": func(t *testing.T, c *chaos) {
		c.node.LoseReplies(5)
		c.await(t, rand.Int64N(20))
		c.killNode()
		c.awaitUnanswered(t, 20)
		c.node.Reopen()
	},
	"the node, which comes back with another version": func(t *testing.T, c *chaos) {
		c.killNode()
		c.awaitUnanswered(t, 20)
		if c.upgraded = !c.upgraded; c.upgraded {
			c.node.Upgrade()
		} else {
			c.node.Downgrade()
		}
		c.node.Reopen()
	},
	"the service, after appends that the node did not answer": func(t *testing.T, c *chaos) {
		c.node.LoseReplies(5)
		c.await(t, rand.Int64N(20))
		c.killService(t)
		c.start(t)
	},
	"the service, and the node while the next one starts": func(t *testing.T, c *chaos) {
		c.killService(t)
		starting := launch(t, c.settings, "dev")
		c.killNode()
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		c.node.Reopen()
		<-c.ready(starting)
		c.start(t)
	},
	"all three at once": func(t *testing.T, c *chaos) {
		c.killNode()
		killPostgres(t, c.settings)
		c.killService(t)
		c.node.Reopen()
		c.start(t)
	},
}

// This is the longest test, and starts first.
func TestChaos_OnEventStoreDB(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	runChaos(t)
}

func TestChaos_NothingAcknowledgedIsLost(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	runChaos(t)
}

// runChaos kills the service and PostgreSQL, together and apart, at any time under load. With the log in EventStoreDB
// it kills the node too. After each round it checks every response of the round against the log, the views and the
// webhooks, and runs verify.
func runChaos(t *testing.T) {
	t.Helper()
	c := newChaos(t)
	rounds, err := strconv.Atoi(os.Getenv(chaosRounds))
	if err != nil {
		rounds = len(c.kills)
	}
	order := slices.Sorted(maps.Keys(c.kills))
	var all load
	for round := range rounds {
		if round%len(order) == 0 {
			rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		what := order[round%len(order)]
		work := c.load(t.Context(), round)
		c.await(t, rand.Int64N(300))
		c.kills[what](t, c)
		c.await(t, 100) // the service recovers without a restart
		work.end()
		require.Empty(t, c.failures(), "round %d, killed %s; stderr: %s", round+1, what, c.service.err)
		require.NoError(t, c.check(t.Context(), work), "round %d, killed %s", round+1, what)
		verified := launch(t, c.settings, "verify")
		require.Zero(t, verified.wait(t), "round %d, killed %s: %s %s", round+1, what, verified.out, verified.err)
		require.NotContains(t, verified.out.String(), "note:",
			"round %d, killed %s: an erasure is not finished", round+1, what)
		t.Logf("round %d, killed %s: %d people, %d joins, %d token values", round+1, what, len(work.people),
			len(work.joined), len(work.values))
		all.people, all.joined = append(all.people, work.people...), append(all.joined, work.joined...)
		all.values = append(all.values, work.values...)
	}
	require.NoError(t, c.checkLog(t.Context(), &all), "events of all rounds after the last one")
	c.checkWebhooks(t, &all)
	t.Logf("%d rounds: %d answers, %d unanswered requests, %d deliveries, %d of them repeated",
		rounds, c.answers.Load(), c.unanswered.Load(), c.receiver.count(), c.receiver.repeated())
}

// chaos is a service that is killed repeatedly, and its callers.
type chaos struct {
	settings     map[string]string
	kills        map[string]func(*testing.T, *chaos)
	node         *esdbtest.Server // server of the log, if it is in EventStoreDB
	upgraded     bool             // the node appends to several streams in one call
	receiver     *receiver
	service      running
	calling      atomic.Pointer[running] // service for new requests
	people       atomic.Int64
	answers      atomic.Int64
	unanswered   atomic.Int64
	serviceKills int

	mu    sync.Mutex
	wrong []string // failures, such as unexpected answers
}

func newChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{settings: devSettings(t), kills: maps.Clone(kills), receiver: newReceiver(t)}
	if onEventStoreDB(t) {
		c.node = esdbtest.Start(t) // the test double, which can inject faults
		if c.upgraded = rand.IntN(2) == 0; c.upgraded {
			c.node.Upgrade()
		}
		c.settings["LEADLOG_EVENTSTORE_URL"] = c.node.URL()
		c.kills = maps.Clone(nodeKills)
		for _, what := range []string{"the service", "PostgreSQL"} { // the other kills differ only in PostgreSQL
			c.kills[what] = kills[what]
		}
	}
	c.settings["LEADLOG_RATE_LIMIT"] = "0"
	c.start(t)
	mustCall(t, "POST", c.service.base+"/webhooks/endpoints", c.service.jwt, `{"url":"`+c.receiver.URL+`"}`).is(t, 201)
	return c
}

func (c *chaos) start(t *testing.T) {
	t.Helper()
	c.service = dev(t, c.settings)
	service := c.service
	c.calling.Store(&service)
}

// ready returns a channel that is closed after a service was ready or has ended. The service may end because its
// database is killed during the start.
func (c *chaos) ready(starting *program) <-chan struct{} {
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		for !strings.Contains(starting.out.String(), "curl -sS") {
			select {
			case <-starting.exited:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		_ = kill(starting)
		<-starting.exited
	}()
	return ready
}

func (c *chaos) killService(t *testing.T) {
	t.Helper()
	c.service.signal(t, syscall.SIGKILL)
	c.service.wait(t)
	c.serviceKills++
}

// killNode stops the node and drops all but its journal, as kill -9 does, until it is reopened.
func (c *chaos) killNode() {
	c.node.Shut()
	c.node.Forget()
}

func killPostgres(t *testing.T, settings map[string]string) {
	t.Helper()
	require.NoError(t, exec.Command("kill", "-9", postgresPID(settings)).Run())
}

// killSessions kills every child of the postmaster, which then recovers.
func killSessions(t *testing.T, settings map[string]string) {
	t.Helper()
	listed, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	require.NoError(t, err)
	parent := postgresPID(settings)
	killed := 0
	for line := range strings.Lines(string(listed)) {
		if of := strings.Fields(line); len(of) == 2 && of[1] == parent {
			pid, err := strconv.Atoi(of[0])
			require.NoError(t, err)
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
			killed++
		}
	}
	require.NotZero(t, killed)
}

// await waits for a number of additional answers.
func (c *chaos) await(t *testing.T, more int64) {
	t.Helper()
	until := c.answers.Load() + more
	require.Eventually(t, func() bool { return c.answers.Load() >= until || c.failed() }, soon, time.Millisecond,
		"no more answers; stderr: %s", c.service.err)
}

// awaitUnanswered waits for a number of additional requests without an answer, or with 503.
func (c *chaos) awaitUnanswered(t *testing.T, more int64) {
	t.Helper()
	until := c.unanswered.Load() + more
	require.Eventually(t, func() bool { return c.unanswered.Load() >= until || c.failed() }, soon, time.Millisecond)
}

// retry repeats a request until it gets a wanted status. No answer, 503 and 429 are retried; every other status is a
// failure. The result again is true if an earlier attempt may have had an effect.
func (c *chaos) retry(ctx context.Context, r request, want ...int) (got answer, again, ok bool) {
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; {
		service := c.calling.Load()
		got, err = r.send(ctx, service.base, service.jwt)
		switch {
		case err == nil && slices.Contains(want, got.status):
			c.answers.Add(1)
			return got, again, true
		case err == nil && got.status != 503 && got.status != 429:
			c.failf("%s %s %s (again: %v) answered %d %v", r.method, r.path, r.body, again, got.status, got.body)
			return got, again, false
		}
		again = again || err != nil || got.status == 503
		c.unanswered.Add(1)
		time.Sleep(20 * time.Millisecond)
	}
	if ctx.Err() == nil {
		c.failf("%s %s %s got no answer, last %d %v %v", r.method, r.path, r.body, got.status, got.body, err)
	}
	return answer{}, again, false
}

func (c *chaos) failf(format string, arguments ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, arguments...))
}

func (c *chaos) failures() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.wrong)
}

func (c *chaos) failed() bool { return len(c.failures()) > 0 }

// check compares the answers of a round with the log, the views and the service, without load.
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
	for _, both := range l.joined {
		group.Go(func() error { return c.checkJoined(each, both) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, v := range l.values {
		if !c.useValue(ctx, v) {
			return fmt.Errorf("value of token %s, revoked: %v: %v", v.token, v.revoked, c.wrong)
		}
		names[v.name] = true
	}
	for name := range names {
		c.deleteTokens(ctx, name)
	}
	return nil
}

// checkLog requires that each acknowledged event is on its stream once, at its position.
func (c *chaos) checkLog(ctx context.Context, l *load) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, p := range l.people {
		group.Go(func() error {
			return c.checkLead(ctx, p.id(), p.position(), []fact{
				{"lead.created", p.at(0)}, {"lead.merged", p.at(1)}, {"lead.merged", p.at(2)},
				{"lead.updated", p.at(4)},
			})
		})
	}
	for _, both := range l.joined {
		group.Go(func() error { return c.checkJoinedLog(ctx, both) })
	}
	for _, v := range l.values {
		group.Go(func() error {
			facts, err := c.facts(ctx, tokensPath+"/"+v.token, v.position)
			if err == nil && facts[v.position] != v.fact {
				err = fmt.Errorf("token %s: %s was acknowledged at %s, the log has %v",
					v.token, v.fact, v.position, facts)
			}
			return err
		})
	}
	return group.Wait()
}

// fact is an acknowledged event, with its position if known.
type fact struct{ kind, at string }

// checkLead requires exactly these events on a lead's stream.
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

// facts returns the events of a lead or token by position, after the views have reached a position.
func (c *chaos) facts(ctx context.Context, path, since string) (map[string]string, error) {
	got, _, ok := c.retry(ctx, request{method: "GET", path: path + "/events?limit=200&minPosition=" + since}, 200)
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

// checkViews requires that the views have the lead of the last answer, and each of its arrivals once.
func (c *chaos) checkViews(ctx context.Context, p person) error {
	path, last := leadsPath+"/"+p.id(), p.answers[len(p.answers)-1]
	since := "?minPosition=" + p.position()
	shown, _, shownOK := c.retry(ctx, request{method: "GET", path: path + since}, 200)
	sources, _, sourcesOK := c.retry(ctx, request{method: "GET", path: path + "/sources" + since}, 200)
	if !shownOK || !sourcesOK {
		return fmt.Errorf("person %s: %v", p.id(), c.wrong)
	}
	for field, value := range last.data() {
		if !assert.ObjectsAreEqual(value, shown.data()[field]) {
			return fmt.Errorf("person %s: %s was %v in the answer, the view has %v", p.id(),
				field, value, shown.data()[field])
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

// checkRepeats repeats each capture with its key, and requires the same answer.
func (c *chaos) checkRepeats(ctx context.Context, p person) error {
	for i, r := range p.requests {
		if r.key == "" {
			continue
		}
		had := p.answers[i]
		got, _, ok := c.retry(ctx, r, had.status)
		if !ok || got.header.Get("Idempotent-Replayed") != "true" || !assert.ObjectsAreEqual(had.body, got.body) ||
			had.header.Get("X-Log-Position") != got.header.Get("X-Log-Position") {
			return fmt.Errorf("person %s: %s answered %v, and with the same key again %d %v", p.id(), r.body,
				had.body, got.status, got.body)
		}
	}
	return nil
}

// checkWebhooks waits for the webhook of each acknowledged event.
func (c *chaos) checkWebhooks(t *testing.T, l *load) {
	t.Helper()
	var events []string
	for _, p := range l.people {
		for i, got := range p.answers {
			if at := p.at(i); got.status != 409 && at != "" {
				events = append(events, at)
			}
		}
	}
	for _, both := range l.joined {
		events = append(events, both.webhookEvents()...)
	}
	for _, v := range l.values {
		events = append(events, v.position)
	}
	var missing []string
	require.Eventually(t, func() bool {
		missing = c.receiver.missing(events)
		return len(missing) == 0
	}, soon, 20*time.Millisecond, "webhooks of %d events; missing %v", len(events), &missing)
	// A killed service may lose the results of this many attempts at an endpoint.
	require.LessOrEqual(t, c.receiver.repeated(), 64*c.serviceKills, "repeated deliveries")
}
