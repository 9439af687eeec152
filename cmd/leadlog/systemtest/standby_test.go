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

// onPair is a service on a primary whose synchronous standby has stopped. An arrival and an account were sent to it and answered
// 503. The primary has committed the first of them.
type onPair struct {
	pair              *pgtest.Pair
	settings          map[string]string
	program           *program
	base, jwt, admin  string
	arrival, accounts request
	in                *arrivals
}

func startOnPair(t *testing.T) *onPair {
	t.Helper()
	p := &onPair{pair: pgtest.NewPair(t), settings: production(t), in: receiveWebhooks(t)}
	p.settings["LEADLOG_DATABASE_URL"] = p.pair.URL(t)
	p.jwt = provisioned(t, p.settings)
	p.admin = strings.TrimSpace(launch(t, p.settings, "jwt", "--account", "admins", "--scope", "admin").ends(t, 0).out.String())
	p.program, p.base = serve(t, p.settings)
	mustCall(t, "POST", p.base+"/webhooks/endpoints", p.jwt, `{"url":"`+p.in.URL+`","events":["lead.created"]}`).is(t, 201)
	first := mustCall(t, "POST", p.base+"/api/v1/crm/leads", p.jwt, `{"email":"first@example.com"}`).is(t, 201)
	p.in.got(t, 1, 1)

	p.pair.StopStandby(t)
	p.arrival = request{method: "POST", path: "/api/v1/crm/leads", body: `{"email":"second@example.com"}`, bearer: p.jwt, key: "second"}
	p.accounts = request{method: "PUT", path: "/api/v1/admin/accounts/other", body: `{"features":["crm_api"]}`, bearer: p.admin}
	for _, sent := range []request{p.arrival, p.accounts} {
		p.is(t, sent, 503)
	}
	// The wait goes on: nothing is visible, and all else is answered.
	p.is(t, request{method: "GET", path: "/api/v1/crm/leads/" + first.data()["leadId"].(string)}, 200)
	p.is(t, request{method: "GET", path: "/readyz"}, 200)
	return p
}

func (p *onPair) is(t *testing.T, sent request, status int) answer {
	t.Helper()
	got, err := sent.send(t.Context(), p.base, p.jwt)
	require.NoError(t, err)
	return got.is(t, status)
}

// cancel cancels the waits for the standby until the primary shows the second event of a type.
func (p *onPair) cancel(t *testing.T, eventType string) {
	t.Helper()
	conn := pgtest.Connect(t, p.pair.Primary.AdminURL())
	defer conn.Close(context.Background())
	require.Eventually(t, func() bool {
		pgtest.Exec(t, conn, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		return pgtest.Value[bool](t, conn, `SELECT count(*) = 2 FROM log.event WHERE type = $1`, eventType)
	}, time.Minute, 10*time.Millisecond)
}

// afterwards checks that both are answered, once, and arrive everywhere.
func (p *onPair) afterwards(t *testing.T) {
	t.Helper()
	var lead string
	for _, sent := range []request{p.accounts, p.arrival} {
		var got answer
		require.Eventually(t, func() (ok bool) {
			var err error
			got, err = sent.send(t.Context(), p.base, p.jwt)
			return err == nil && got.status != 503
		}, time.Minute, 10*time.Millisecond)
		require.Less(t, got.status, 300, got.body)
		if sent.method == "POST" {
			lead = got.data()["leadId"].(string)
		}
	}
	p.in.got(t, 2, 1)
	_, raw := p.in.latest()
	require.Contains(t, string(raw), lead)
	mustCall(t, "GET", p.base+"/api/v1/crm/leads/"+lead, p.jwt, "").is(t, 200)
	p.program.stop(t)
	launch(t, p.settings, "verify").ends(t, 0)
}

// The primary has committed what its standby lacks. Until that is lost in the failover, no answer, view or webhook shows it, from
// the process that sent it or from one that started later.
func TestStandby_NothingShownIsLost(t *testing.T) {
	t.Parallel()
	for name, show := range map[string]func(*testing.T, *onPair){
		"waits cancelled": func(t *testing.T, p *onPair) {
			p.cancel(t, "lead.created.v1")
			p.is(t, p.accounts, 503)
			p.cancel(t, "account.configured.v1")
		},
		"primary crashed": func(t *testing.T, p *onPair) { p.pair.RestartPrimary(t, true) },
		"service killed": func(t *testing.T, p *onPair) {
			p.program.signal(t, syscall.SIGKILL)
			p.cancel(t, "lead.created.v1")
			second := launch(t, p.settings, "serve").ends(t, 1)
			require.Contains(t, second.err.String(), "Try: again, when the standby")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startOnPair(t)
			show(t, p)
			shown := pgtest.Value[int](t, pgtest.Connect(t, p.pair.Primary.AdminURL()), `SELECT count(*) FROM log.event`)
			require.NotZero(t, shown)
			if name == "service killed" {
				p.pair.Failover(t)
				p.program, p.base = serve(t, p.settings)
				p.afterwards(t)
				return
			}
			p.is(t, p.arrival, 503)
			p.is(t, p.accounts, 503)
			listed := p.is(t, request{method: "GET", path: "/api/v1/crm/leads"}, 200)
			require.NotContains(t, fmt.Sprint(listed.body), "second@")
			p.is(t, request{method: "GET", path: "/api/v1/crm/leads?minPosition=" + fmt.Sprint(shown)}, 503)
			require.Contains(t, fmt.Sprint(p.is(t, request{method: "GET", path: "/readyz"}, 503).body), "waits for a synchronous standby")
			p.in.got(t, 1, 1)
			require.Len(t, p.in.missing([]string{fmt.Sprint(shown), fmt.Sprint(shown - 1)}), 2)
			p.pair.Failover(t)
			p.afterwards(t)
		})
	}
}

// The standby returns, and has what the primary committed meanwhile: the retry gets the first answer, which a failover keeps.
func TestStandby_ReturnAnswersRetry(t *testing.T) {
	t.Parallel()
	p := startOnPair(t)
	p.cancel(t, "lead.created.v1")
	p.is(t, p.arrival, 503)
	p.pair.StartStandby(t)
	var got answer
	require.Eventually(t, func() bool {
		var err error
		got, err = p.arrival.send(t.Context(), p.base, p.jwt)
		return err == nil && got.status != 503
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, "true", got.is(t, 201).header.Get("Idempotent-Replayed"))
	p.pair.Failover(t)
	p.afterwards(t)
}
