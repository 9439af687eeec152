package systemtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// sufferers are callers of a service whose database fails.
type sufferers struct {
	*chaos
	changes []request
	phase   atomic.Int32 // before, during and after the fault

	mu      sync.Mutex
	people  []person       // answered 201
	unsure  []request      // captures that were not
	answers [3]map[int]int // by status, to captures that began and ended in a phase
}

// The phases.
const (
	before int32 = iota
	during
	after
)

// suffer has callers go on while a fault begins, shows and ends, and until they get what they want again.
func (c *chaos) suffer(t *testing.T, f fault) *sufferers {
	t.Helper()
	s := &sufferers{chaos: c, answers: [3]map[int]int{{}, {}, {}}, changes: c.toChange(t)}
	ctx, stop := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	defer calling.Wait()
	defer stop()
	for range 4 {
		calling.Go(func() { s.capture(ctx) })
	}
	calling.Go(func() { s.change(ctx) })
	calling.Go(func() { s.read(ctx) })
	s.await(t, before, 201)
	f.begin(t)
	s.phase.Store(during)
	if f.lost {
		s.await(t, during, 503)
		s.mu.Lock()
		captured := s.answers[during][201]
		s.mu.Unlock()
		require.True(t, captured == 0 || f.leavesRoom, "captured without a database")
	} else {
		s.await(t, during, 201)
	}
	f.end(t)
	s.phase.Store(after)
	s.await(t, after, 201)
	return s
}

// toChange is ways to write: about a lead, the token, the endpoint and a visitor.
func (c *chaos) toChange(t *testing.T) []request {
	t.Helper()
	lead, _, _ := c.insist(t.Context(), request{method: "POST", path: leadsPath, body: `{"phone":"9876543210","metadata":{"source":"website"}}`}, 200, 201)
	require.Empty(t, c.complaints())
	one := func(path, id string) string {
		listed, _, _ := c.insist(t.Context(), request{method: "GET", path: path + "?minPosition=" + lead.header.Get("X-Log-Position")}, 200)
		return path + "/" + listed.body["data"].([]any)[0].(map[string]any)[id].(string)
	}
	endpoint := one("/webhooks/endpoints", "webhookId")
	return []request{
		{method: "PATCH", path: leadsPath + "/" + lead.data()["leadId"].(string), body: `{"name":"Asha"}`},
		{method: "POST", path: one(tokensPath, "tokenId") + "/rotate"},
		{method: "POST", path: endpoint + "/secret/rotate"},
		{method: "PATCH", path: endpoint, body: `{"description":"one that lives"}`},
		{method: "POST", path: "/api/v1/crm/visitors/v1/activity", body: `{"type":"page_view"}`},
	}
}

// await waits until a capture that began and ended in a phase has had an answer.
func (s *sufferers) await(t *testing.T, phase int32, status int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.answers[phase][status] > 0 || s.failed()
	}, 2*time.Minute, time.Millisecond, "phase %d, %d", phase, status)
	require.Empty(t, s.complaints())
}

// capture brings in one person after another.
func (s *sufferers) capture(ctx context.Context) {
	for ctx.Err() == nil {
		n := s.chaos.people.Add(1)
		r := request{method: "POST", path: leadsPath, key: fmt.Sprintf("sufferer-%d", n), body: fmt.Sprintf(`{"email":"person%d@example.com"}`, n)}
		phase := s.phase.Load()
		got, ok := s.ask(ctx, r, 201)
		s.mu.Lock()
		if got.status == 201 {
			s.people = append(s.people, person{asked: []request{r}, answered: []answer{got}})
		} else {
			s.unsure = append(s.unsure, r)
		}
		if ok && phase == s.phase.Load() {
			s.answers[phase][got.status]++
		}
		s.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

// change changes what there is, in all ways that write.
func (s *sufferers) change(ctx context.Context) {
	for ctx.Err() == nil {
		for _, r := range s.changes {
			s.ask(ctx, r, 200, 202)
		}
	}
}

func (s *sufferers) read(ctx context.Context) {
	for ctx.Err() == nil {
		for _, path := range []string{leadsPath, tokensPath, "/webhooks/endpoints", "/api/v1/crm/sources/report?interval=day", "/api/v1/crm/audit/tree", "/readyz"} {
			s.ask(ctx, request{method: "GET", path: path}, 200)
		}
		if got, err := (request{method: "GET", path: "/healthz"}).send(ctx, s.chaos.calling.Load().base, ""); err == nil && got.status != 200 {
			s.complain("/healthz was answered %d", got.status)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ask asks once. What is answered is one of those wanted, or 503 and when to try again.
func (s *sufferers) ask(ctx context.Context, r request, want ...int) (got answer, ok bool) {
	service := s.chaos.calling.Load()
	got, err := r.send(ctx, service.base, service.jwt)
	switch {
	case err != nil && ctx.Err() != nil:
		return answer{}, false
	case err != nil:
		s.complain("%s %s: %v", r.method, r.path, err)
	case got.status == 503 && got.header.Get("Retry-After") == "" && r.path != "/readyz":
		s.complain("%s %s was answered 503 without Retry-After", r.method, r.path)
	case got.status != 503 && !slices.Contains(want, got.status):
		s.complain("%s %s was answered %d %v", r.method, r.path, got.status, got.body)
	}
	return got, err == nil
}

// settle repeats, with their keys, the captures that were not known to be made, and wants everybody captured once.
func (s *sufferers) settle(t *testing.T) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for _, r := range s.unsure {
		group.Go(func() error {
			got, _, ok := s.insist(t.Context(), r, 201)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.people = append(s.people, person{asked: []request{r}, answered: []answer{got}})
			if !ok {
				return fmt.Errorf("repeated after a 503: %v", s.complaints())
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	t.Logf("%d captured, %d of them not known at first", len(s.people), len(s.unsure))
	for _, p := range s.people {
		group.Go(func() error {
			facts, err := s.facts(t.Context(), leadsPath+"/"+p.id(), p.position())
			if want := map[string]string{p.position(): "lead.created"}; err == nil && !maps.Equal(facts, want) {
				err = fmt.Errorf("lead %s was captured at %s, the log has %v", p.id(), p.position(), facts)
			}
			if _, _, ok := s.insist(t.Context(), request{method: "GET", path: leadsPath + "/" + p.id() + "?minPosition=" + p.position()}, 200); err == nil && !ok {
				err = fmt.Errorf("lead %s is in no view: %v", p.id(), s.complaints())
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	ids := map[string]bool{}
	for _, p := range s.people {
		ids[p.id()] = true
	}
	require.Len(t, ids, len(s.people))
	s.checkWebhooks(t, &load{people: s.people})
}
