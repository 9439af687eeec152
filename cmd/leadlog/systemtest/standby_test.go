package systemtest

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// standbyTest has a service on a primary with a stopped synchronous standby. A capture and a change of an account were
// answered 503. The primary has committed the capture.
type standbyTest struct {
	pair              *pgtest.Pair
	settings          map[string]string
	program           *program
	base, jwt, admin  string
	arrival, accounts request
	in                *receiver
}

func newStandbyTest(t *testing.T) *standbyTest {
	t.Helper()
	p := &standbyTest{pair: pgtest.NewPair(t), settings: emptySettings(t), in: newReceiver(t)}
	p.settings["LEADLOG_DATABASE_URL"] = p.pair.URL(t)
	p.jwt = provision(t, p.settings)
	p.admin = strings.TrimSpace(
		launch(t, p.settings, "jwt", "--account", "admins", "--scope", "admin").exits(t, 0).out.String(),
	)
	p.program, p.base = serve(t, p.settings)
	mustCall(t, "POST", p.base+"/webhooks/endpoints", p.jwt, `{"url":"`+p.in.URL+`","events":["lead.created"]}`).
		is(t, 201)
	first := mustCall(t, "POST", p.base+"/api/v1/crm/leads", p.jwt, `{"email":"first@example.com"}`).is(t, 201)
	p.in.waitFor(t, 1, 1)

	p.pair.StopStandby(t)
	p.arrival = request{
		method: "POST", path: "/api/v1/crm/leads", body: `{"email":"second@example.com"}`, bearer: p.jwt, key: "second",
	}
	p.accounts = request{
		method: "PUT", path: "/api/v1/admin/accounts/other", body: `{"features":["crm_api"]}`, bearer: p.admin,
	}
	for _, sent := range []request{p.arrival, p.accounts} {
		p.call(t, sent, 503)
	}
	// The pending commit is not visible, and other requests are answered.
	p.call(t, request{method: "GET", path: "/api/v1/crm/leads/" + first.data()["leadId"].(string)}, 200)
	waitReady(t, p.base)
	return p
}

func (p *standbyTest) call(t *testing.T, sent request, status int) answer {
	t.Helper()
	got, err := sent.send(t.Context(), p.base, p.jwt)
	require.NoError(t, err)
	return got.is(t, status)
}

// cancelWaits cancels the waits for the standby until the primary shows the second event of a type. A request that
// waited behind another append was never written. So it calls again, unless that is nil, whenever the event does not
// appear.
func (p *standbyTest) cancelWaits(t *testing.T, eventType string, again func()) {
	t.Helper()
	conn := pgtest.Connect(t, p.pair.Primary.AdminURL())
	defer conn.Close(context.Background())
	for polls := 1; ; polls++ {
		pgtest.Exec(t, conn, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		if pgtest.Value[bool](t, conn, `SELECT count(*) = 2 FROM log.event WHERE type = $1`, eventType) {
			return
		}
		require.Less(t, polls, 3000, "the primary does not show the second %s", eventType)
		time.Sleep(10 * time.Millisecond)
		if polls%100 == 0 && again != nil {
			again()
		}
	}
}

// requireAnsweredOnce requires both requests to succeed once, and to reach views and webhooks.
func (p *standbyTest) requireAnsweredOnce(t *testing.T) {
	t.Helper()
	var lead string
	for _, sent := range []request{p.accounts, p.arrival} {
		var got answer
		require.Eventually(t, func() (ok bool) {
			var err error
			got, err = sent.send(t.Context(), p.base, p.jwt)
			return err == nil && got.status != 503
		}, soon, 10*time.Millisecond)
		require.Less(t, got.status, 300, got.body)
		if sent.method == "POST" {
			lead = got.data()["leadId"].(string)
		}
	}
	// the first event may be delivered again, because the new primary may lack the record of its delivery
	p.in.waitForLead(t, lead)
	mustCall(t, "GET", p.base+"/api/v1/crm/leads/"+lead, p.jwt, "").is(t, 200)
	p.program.stop(t)
	launch(t, p.settings, "verify").exits(t, 0)
}

// The primary has committed events that its standby lacks, and that the failover loses. No answer, view or webhook may
// show them before, neither of the process that appended them nor of a later one.
func TestStandby_NothingShownIsLost(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	for name, fail := range map[string]func(*testing.T, *standbyTest){
		"waits cancelled": func(t *testing.T, p *standbyTest) {
			p.cancelWaits(t, "lead.created.v1", func() { p.call(t, p.arrival, 503) })
			p.cancelWaits(t, "account.configured.v1", func() { p.call(t, p.accounts, 503) })
		},
		"primary crashed": func(t *testing.T, p *standbyTest) { p.pair.RestartPrimary(t, true) },
		"service killed": func(t *testing.T, p *standbyTest) {
			p.program.signal(t, syscall.SIGKILL)
			p.cancelWaits(t, "lead.created.v1", nil)
			second := launch(t, p.settings, "serve").exits(t, 1)
			require.Contains(t, second.err.String(), "Try: again, when the standby")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newStandbyTest(t)
			fail(t, p)
			shown := pgtest.Value[int](t, pgtest.Connect(t, p.pair.Primary.AdminURL()),
				`SELECT count(*) FROM log.event`)
			require.NotZero(t, shown)
			if name == "service killed" {
				p.pair.Failover(t)
				p.program, p.base = serve(t, p.settings)
				p.requireAnsweredOnce(t)
				return
			}
			p.call(t, p.arrival, 503)
			p.call(t, p.accounts, 503)
			listed := p.call(t, request{method: "GET", path: "/api/v1/crm/leads"}, 200)
			require.NotContains(t, fmt.Sprint(listed.body), "second@")
			p.call(t, request{method: "GET", path: "/api/v1/crm/leads?minPosition=" + fmt.Sprint(shown)}, 503)
			require.Contains(t, fmt.Sprint(p.call(t, request{method: "GET", path: "/readyz"}, 503).body),
				"waits for a synchronous standby")
			p.in.waitFor(t, 1, 1)
			require.Len(t, p.in.missing([]string{fmt.Sprint(shown), fmt.Sprint(shown - 1)}), 2)
			p.pair.Failover(t)
			p.requireAnsweredOnce(t)
		})
	}
}

// The standby returns and receives the events that the primary has committed. A retry then gets the first answer, also
// after a failover.
func TestStandby_ReturnAnswersRetry(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	p := newStandbyTest(t)
	p.cancelWaits(t, "lead.created.v1", func() { p.call(t, p.arrival, 503) })
	p.call(t, p.arrival, 503)
	p.pair.StartStandby(t)
	var got answer
	require.Eventually(t, func() bool {
		var err error
		got, err = p.arrival.send(t.Context(), p.base, p.jwt)
		return err == nil && got.status != 503
	}, soon, 10*time.Millisecond)
	require.Equal(t, "true", got.is(t, 201).header.Get("Idempotent-Replayed"))
	p.pair.Failover(t)
	p.requireAnsweredOnce(t)
}
