package systemtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev"
)

// devSettings returns settings to run leadlog dev on a new data directory.
func devSettings(t *testing.T) map[string]string {
	t.Helper()
	dir, err := pgdev.MkdirTemp("leadlog-dev-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return withEventStore(t, map[string]string{"LEADLOG_DATA_DIR": dir + "/data", "LEADLOG_ADDR": "127.0.0.1:0"})
}

// running is a leadlog dev that is ready.
type running struct {
	*program
	base, token, jwt string
}

func dev(t *testing.T, settings map[string]string) running {
	t.Helper()
	p := launch(t, settings, "dev")
	r := running{program: p}
	r.base = p.waitFor(t, p.out, `ready at (http://\S+)`)
	r.token = p.waitFor(t, p.out, `API token +(\S+)`)
	r.jwt = p.waitFor(t, p.out, `JWT +(\S+)`)
	p.waitFor(t, p.out, `(curl -sS)`)
	return r
}

func (r running) capture(t *testing.T, body string) answer {
	t.Helper()
	return mustCall(t, "POST", r.base+"/api/v1/crm/leads", r.token, body)
}

// captureRetrying captures, and retries without an answer or after 503.
func (r running) captureRetrying(t *testing.T, body string) (last answer) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, err := call(t.Context(), "POST", r.base+"/api/v1/crm/leads", r.token, body)
		last = got
		return err == nil && got.status != 503
	}, soon, 50*time.Millisecond)
	return last
}

func TestDev_PrintedCurlLine(t *testing.T) {
	t.Parallel()
	r := dev(t, devSettings(t))
	line := r.waitFor(t, r.out, `(?m)^(curl .*)$`)
	output, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), `{"success":true,"merged":false,"data":{"leadId":"`)

	lead := mustCall(t, "GET", r.base+"/api/v1/crm/leads?minPosition=6", r.jwt, "").is(t, 200)
	require.Len(t, lead.body["data"], 1)
}

func TestDev_Restart(t *testing.T) {
	t.Parallel()
	settings := devSettings(t)
	first := dev(t, settings)
	require.Equal(t, 201, first.capture(t, `{"phone":"9876543210"}`).status)
	require.NotEmpty(t, postgresPID(settings))
	first.signal(t, syscall.SIGINT)
	require.Zero(t, first.wait(t), first.err)
	require.Error(t, dial(t, first.base), "nothing listens")
	require.Empty(t, postgresPID(settings), "PostgreSQL has also stopped")

	second := dev(t, settings)
	require.Equal(t, first.token, second.token)
	require.Equal(t, 409, second.capture(t, `{"phone":"9876543210"}`).status)
	again := mustCall(t, "GET", second.base+"/api/v1/crm/leads", first.jwt, "")
	require.Equal(t, 200, again.status, "an earlier JWT is valid, because the secret is kept")
}

func TestDev_RecoversFromKills(t *testing.T) {
	t.Parallel()
	settings := devSettings(t)
	first := dev(t, settings)
	require.Equal(t, 201, first.capture(t, `{"phone":"9876543210"}`).status)

	t.Log("kill -9 of leadlog: the next start adopts its PostgreSQL")
	first.signal(t, syscall.SIGKILL)
	first.wait(t)
	orphan := postgresPID(settings)
	require.NotEmpty(t, orphan)
	second := dev(t, settings)
	require.Equal(t, orphan, postgresPID(settings))
	require.Equal(t, 409, second.capture(t, `{"phone":"9876543210"}`).status)

	t.Log("kill -9 of PostgreSQL: the running service restarts it")
	require.NoError(t, exec.Command("kill", "-9", orphan).Run())
	require.Eventually(t, func() bool { // open sessions may answer for a short time
		now := postgresPID(settings)
		return now != "" && now != orphan
	}, soon, 10*time.Millisecond)
	require.NotEqual(t, 503, second.captureRetrying(t, `{"phone":"9876543211"}`).status)
	require.Equal(t, 409, second.captureRetrying(t, `{"phone":"9876543210"}`).status)
	require.Equal(t, 409, second.captureRetrying(t, `{"phone":"9876543211"}`).status)

	t.Log("Ctrl-C stops the restarted PostgreSQL")
	second.signal(t, syscall.SIGINT)
	require.Zero(t, second.wait(t), second.err)
	require.Empty(t, postgresPID(settings), second.err)
	second = dev(t, settings)

	t.Log("kill -9 of both")
	require.NoError(t, exec.Command("kill", "-9", postgresPID(settings), fmt.Sprint(second.cmd.Process.Pid)).Run())
	second.wait(t)
	third := dev(t, settings)
	require.Equal(t, 409, third.capture(t, `{"phone":"9876543211"}`).status)
	third.stop(t)
	require.Empty(t, postgresPID(settings), third.err)
}

// A closed terminal, which may send SIGHUP twice, once killed leadlog but not PostgreSQL.
func TestDev_StopsOnHangup(t *testing.T) {
	t.Parallel()
	settings := devSettings(t)
	r := dev(t, settings)
	require.NotEmpty(t, postgresPID(settings))
	r.signal(t, syscall.SIGHUP)
	r.waitFor(t, r.err, `(stopping)`)
	_ = r.cmd.Process.Signal(syscall.SIGHUP) // the process may have ended
	require.Zero(t, r.wait(t), r.err)
	require.Empty(t, postgresPID(settings))
}

// leadlog export | head -1 once did not stop PostgreSQL, and the end of a log collector killed a service.
func TestDev_BrokenPipeStopsPostgres(t *testing.T) {
	t.Parallel()
	settings := devSettings(t)
	first := dev(t, settings)
	first.signal(t, syscall.SIGINT)
	require.Zero(t, first.wait(t), first.err)

	unread, closed, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, unread.Close())
	for _, args := range [][]string{{"tail", "--from", "0"}, {"export", "tokens", "--account", "demo"}} {
		p := launchTo(t, closed, settings, args...)
		require.Zero(t, p.wait(t), p.err)
		require.NotContains(t, p.err.String(), "broken pipe")
		require.Empty(t, postgresPID(settings))
	}
	require.NoError(t, closed.Close())
}

func TestDev_RejectsOtherClaimKey(t *testing.T) {
	t.Parallel()
	settings := devSettings(t)
	first := dev(t, settings)
	require.Equal(t, 201, first.capture(t, `{"phone":"9876543210"}`).status)
	first.signal(t, syscall.SIGINT)
	require.Zero(t, first.wait(t), first.err)

	require.NoError(t, os.Remove(settings["LEADLOG_DATA_DIR"]+"/keys/claim_key"))
	second := launch(t, settings, "dev").exits(t, 1)
	require.Contains(t, second.err.String(), "the claim key differs from the one that this log was started with")
	require.Contains(t, second.err.String(), "LEADLOG_CLAIM_KEY")
	require.Empty(t, postgresPID(settings), "PostgreSQL was stopped")
}

func TestDev_CommandsSharePostgres(t *testing.T) {
	t.Parallel()
	settings := devSettings(t)
	r := dev(t, settings)
	launch(t, settings, "account", "set", "acme", "--feature", "crm_api", "--stage", "Fresh", "--stage", "Sold",
		"--region", "US").exits(t, 0)
	mint := launch(t, settings, "jwt", "--account", "acme", "--scope", "leads:write").exits(t, 0)
	jwt := strings.TrimSpace(mint.out.String())
	got := mustCall(t, "POST", r.base+"/api/v1/crm/leads", jwt, `{"phone":"415 555 2671","status":"sold"}`).is(t, 201)
	require.Equal(t, "Sold", got.data()["status"])
	require.Equal(t, 403, mustCall(t, "GET", r.base+"/api/v1/crm/leads", jwt, "").status,
		"the only scope is leads:write")

	early := launch(t, settings, "account", "set", "acme", "--jwt-not-before", "0001-01-01T00:30:00+14:00").exits(t, 2)
	require.Contains(t, early.err.String(),
		`--jwt-not-before="0001-01-01T00:30:00+14:00": must be a time after the beginning of the year 1`)
	revoke := launch(t, settings, "account", "set", "acme", "--jwt-not-before", "2026-01-01T00:00:00Z").exits(t, 0)
	require.Contains(t, revoke.out.String(),
		"features crm_api; stages Fresh, Sold; won stages won; region US; currency USD; visitors for 395 days; "+
			"arrivals for 30 days; JWTs from 2026-01-01", "omitted settings are kept")
	mustCall(t, "POST", r.base+"/api/v1/crm/leads", jwt, `{"phone":"415 555 2672"}`).is(t, 201)
	disable := launch(t, settings, "account", "set", "acme", "--feature", "").exits(t, 0)
	require.Contains(t, disable.out.String(), "features none; stages Fresh, Sold")
	require.Equal(t, 403, mustCall(t, "POST", r.base+"/api/v1/crm/leads", jwt, `{"phone":"415 555 2673"}`).status)
}

func dial(t *testing.T, base string) error {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(base, "http://"), time.Second)
	if err == nil {
		conn.Close()
	}
	return err
}

// postgresPID returns the process id of the PostgreSQL of a data directory, or an empty string.
func postgresPID(settings map[string]string) string {
	raw, err := os.ReadFile(settings["LEADLOG_DATA_DIR"] + "/postgres/postmaster.pid")
	if err != nil {
		return ""
	}
	pid, _, _ := strings.Cut(string(raw), "\n")
	return pid
}
