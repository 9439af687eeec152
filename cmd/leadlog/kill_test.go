package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

// killRounds names the variable that says how many kills the test of them makes; make kill-test sets it.
const killRounds = "LEADLOG_TEST_KILL_ROUNDS"

// arrivals counts what a receiver of webhooks gets.
type arrivals struct {
	*httptest.Server
	mu         sync.Mutex
	deliveries map[string]int // by webhook-id
	leads      map[string]bool
}

func receiveLeads(t *testing.T) *arrivals {
	t.Helper()
	a := &arrivals{deliveries: map[string]int{}, leads: map[string]bool{}}
	a.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Data struct {
				LeadID string `json:"leadId"`
			} `json:"data"`
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &body) != nil {
			return // its sender was killed: that was no arrival
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.deliveries[r.Header.Get("webhook-id")]++
		a.leads[body.Data.LeadID] = true
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.deliveries)
}

// missing is how many of the leads have not come.
func (a *arrivals) missing(leads []string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range leads {
		if !a.leads[id] {
			n++
		}
	}
	return n
}

// burst captures leads from several callers at once, whatever happens to the service, until so many are acknowledged.
type burst struct {
	base, token atomic.Value // of the service that runs now
	mu          sync.Mutex
	acked       []string
	person      atomic.Int64
}

func (b *burst) run(ctx context.Context, callers, until int) *sync.WaitGroup {
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for b.acknowledged() < until && ctx.Err() == nil {
				body := fmt.Sprintf(`{"email":"person%d@example.com"}`, b.person.Add(1))
				got, err := call(ctx, "POST", b.base.Load().(string)+"/api/v1/crm/leads", b.token.Load().(string), body)
				if err != nil || got.status != 201 {
					time.Sleep(20 * time.Millisecond) // not acknowledged: nothing was promised
					continue
				}
				b.mu.Lock()
				b.acked = append(b.acked, got.data()["leadId"].(string))
				b.mu.Unlock()
			}
		})
	}
	return &calling
}

func (b *burst) acknowledged() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.acked)
}

// TestEveryAcknowledgedLeadsWebhookArrivesThroughKills kills the service and PostgreSQL in turn while leads come and
// their webhooks go.
func TestEveryAcknowledgedLeadsWebhookArrivesThroughKills(t *testing.T) {
	t.Parallel()
	const each = 1600 // captures for each kill
	rounds, err := strconv.Atoi(os.Getenv(killRounds))
	if err != nil {
		rounds = 2
	}
	settings := development(t)
	settings["LEADLOG_RATE_LIMIT"] = "0"
	receiver := receiveLeads(t)
	service := dev(t, settings)
	endpoint := mustCall(t, "POST", service.base+"/webhooks/endpoints", service.jwt, `{"url":"`+receiver.URL+`","events":["lead.created"]}`)
	require.Equal(t, 201, endpoint.status, endpoint.body)

	b := &burst{}
	for round := range rounds {
		b.base.Store(service.base)
		b.token.Store(service.token)
		calling := b.run(t.Context(), 8, (round+1)*each)
		before := receiver.count()
		require.Eventually(t, func() bool {
			return b.acknowledged() > round*each+each/3 && receiver.count() > before
		}, 2*time.Minute, time.Millisecond, "in the midst of the burst")
		if round%2 == 0 {
			service.signal(t, syscall.SIGKILL)
			service.finish(t)
			service = dev(t, settings)
			b.base.Store(service.base)
		} else {
			require.NoError(t, exec.Command("kill", "-9", postgresOf(settings)).Run())
		}
		calling.Wait()
	}
	missing := 0
	require.Eventually(t, func() bool {
		missing = receiver.missing(b.acked)
		return missing == 0
	}, 2*time.Minute, 20*time.Millisecond, "%d of %d", &missing, len(b.acked))

	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	twice := 0
	for _, n := range receiver.deliveries {
		twice += n - 1
	}
	t.Logf("%d kills: %d leads acknowledged, %d deliveries, %d of them again", rounds, len(b.acked), len(receiver.deliveries), twice)
	// At a kill of the service, so many attempts at an endpoint are ahead of what is written down: 64 at the most.
	require.LessOrEqual(t, twice, len(receiver.deliveries)/50, "at most 2 % twice")
}
