package systemtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// traffic captures leads and reads one continuously, and stops at the first unexpected answer.
type traffic struct {
	captured []string // positions
	failed   error
	stop     func()
}

func startTraffic(base, jwt, known string) *traffic {
	ctx, cancel := context.WithCancel(context.Background())
	tr, done := &traffic{}, make(chan struct{})
	tr.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil && tr.failed == nil; n++ {
			got, err := call(context.Background(), "POST", base+"/api/v1/crm/leads", jwt,
				fmt.Sprintf(`{"phone":"98765%05d"}`, n))
			if tr.failed = unexpected(201, got, err); tr.failed != nil {
				return
			}
			tr.captured = append(tr.captured, got.header.Get("X-Log-Position"))
			got, err = call(context.Background(), "GET", base+"/api/v1/crm/leads/"+known, jwt, "")
			tr.failed = unexpected(200, got, err)
		}
	}()
	return tr
}

func unexpected(status int, got answer, err error) error {
	if err == nil && got.status != status {
		err = fmt.Errorf("answered %d: %v", got.status, got.body)
	}
	return err
}

func TestReplay_ResumesAfterKill(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	leads := fillLog(t, settings, 0, 2000, nil)
	_, base := serve(t, settings)
	hook := newReceiver(t)
	require.Equal(t, 201, mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+hook.URL+`"}`).status)
	require.Eventually(t, func() bool {
		return mustCall(t, "GET", base+"/api/v1/crm/leads/"+leads[len(leads)-1], jwt, "").status == 200
	}, soon, 10*time.Millisecond)

	running := startTraffic(base, jwt, leads[0])
	t.Cleanup(running.stop)
	interrupted := 0
	for round := range 12 { // the delays grow, so the first kills interrupt a replay on any machine
		p := launch(t, settings, "replay", "all")
		select {
		case <-p.exited:
		case <-time.After(time.Duration(rand.IntN(100*(round+1))) * time.Millisecond):
			require.NoError(t, kill(p))
		}
		if p.wait(t) != 0 {
			interrupted++
			require.NotContains(t, p.err.String(), "error")
		}
	}
	launch(t, settings, "replay", "all").exits(t, 0)
	running.stop()
	require.NoError(t, running.failed, "a capture or read failed during the replay")
	require.NotZero(t, interrupted)
	require.NotEmpty(t, running.captured)

	launch(t, settings, "verify").exits(t, 0)
	require.Eventually(t, func() bool { return len(hook.missing(running.captured)) == 0 }, soon, 20*time.Millisecond)
	require.Equal(t, len(running.captured), hook.count(), "events before the registration have no webhook")
	require.Zero(t, queryInt(t, settings, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'replay%'`))
}

// kill ends a program with SIGKILL, unless it has already ended.
func kill(p *program) error {
	if err := p.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func queryInt(t *testing.T, settings map[string]string, sql string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), settings["LEADLOG_DATABASE_URL"])
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	err = conn.QueryRow(t.Context(), sql).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0
	}
	require.NoError(t, err)
	return n
}

func TestReplay_DueAfterVersionChange(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	filled := fillLog(t, settings, 0, 3, nil)
	p, base := serve(t, settings)
	lead := base + "/api/v1/crm/leads/" + filled[2]
	require.Eventually(t, func() bool {
		return mustCall(t, "GET", lead, jwt, "").status == 200
	}, soon, 10*time.Millisecond)
	p.stop(t)
	require.Zero(t,
		queryInt(t, settings, `UPDATE views.checkpoint SET version = version + 1 WHERE projector = 'lead' RETURNING 0`))

	p, base = serve(t, settings)
	lead = base + "/api/v1/crm/leads/" + filled[2]
	p.waitFor(t, p.err, `(run leadlog replay)`)
	require.Eventually(t, func() bool {
		return mustCall(t, "GET", base+"/readyz", "", "").status == 503
	}, soon, 10*time.Millisecond)
	ready := mustCall(t, "GET", base+"/readyz", "", "")
	require.Contains(t, fmt.Sprint(ready.body), "built by another version; run leadlog replay lead")
	require.Equal(t, 200, mustCall(t, "GET", lead, jwt, "").status)
	require.Equal(t, 201, mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210"}`).status,
		"captures do not need the view")

	launch(t, settings, "replay", "lead").exits(t, 0)
	require.Equal(t, 200, mustCall(t, "GET", lead, jwt, "").status)
	p.stop(t)
	_, base = serve(t, settings)
	waitReady(t, base)
}

func TestReplay_WhileServing(t *testing.T) {
	t.Parallel()
	settings, jwt, base := startService(t)
	var last answer
	capture := func(n int) {
		last = mustCall(t, "POST", base+"/api/v1/crm/leads", jwt,
			fmt.Sprintf(`{"phone":"98765%05d","metadata":{"source":"website"}}`, n)).is(t, 201)
	}
	for n := range 30 {
		capture(n)
	}
	p := launch(t, settings, "replay", "all")
	for n := 30; ; n++ {
		capture(n)
		select {
		case <-p.exited:
		default:
			continue
		}
		break
	}
	require.Zero(t, p.wait(t), p.err)
	require.Contains(t, p.err.String(), "replay lead: replaced, from the log up to position")
	capture(99999)
	mustCall(t, "GET", base+"/api/v1/crm/sources/report?interval=month&minPosition="+last.header.Get("X-Log-Position"),
		jwt, "").is(t, 200)

	launch(t, settings, "verify").exits(t, 0)

	copied := launch(t, settings, "replay", "lead", "--into", "as_of", "--until", "2000-01-01T00:00:00Z").exits(t, 0)
	require.Contains(t, copied.err.String(), "as_of is as of 2000-01-01T00:00:00Z")
	for _, args := range [][]string{
		{"replay", "nothing"}, {"replay", "lead", "--until", "5"}, {"replay", "lead", "--into", "x", "--until", "soon"},
		{"replay", "lead", "--into", `a"b`},
		{"replay", "lead", "--into", ""}, {"replay", "lead", "--into", "x", "--until", ""},
		{"replay", "lead", "--into", "replay_lead"}, {"replay", "lead", "--into", "verify_lead"},
	} {
		launch(t, settings, args...).exits(t, 2)
	}
	launch(t, settings, "replay", "lead", "--into", "views").exits(t, 1)
}
