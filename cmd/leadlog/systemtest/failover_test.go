package systemtest

import (
	"fmt"
	"maps"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// startBehindStandby copies an unused database to a standby without replication. It returns the settings of a service
// behind a proxy, and a function that promotes the standby.
func startBehindStandby(t *testing.T, settings map[string]string) (behind map[string]string, promote func()) {
	t.Helper()
	direct := settings["LEADLOG_DATABASE_URL"]
	config, err := pgx.ParseConfig(direct)
	require.NoError(t, err)
	server := pgtest.OtherDatabase(t, direct)
	primary, standby := pgx.Identifier{config.Database}.Sanitize(),
		pgx.Identifier{config.Database + "_standby"}.Sanitize()
	execute(t, server, `CREATE DATABASE `+standby+` TEMPLATE `+primary)
	proxy := pgtest.NewProxy(t, direct)
	behind = maps.Clone(settings)
	behind["LEADLOG_DATABASE_URL"] = proxy.URL()
	return behind, func() {
		proxy.Refuse()
		// fails while an autovacuum worker uses the database, which only a superuser may terminate
		require.Eventually(t, func() bool {
			return inDatabase(t.Context(), t, server, `DROP DATABASE `+primary+` WITH (FORCE)`) == nil
		}, soon, 100*time.Millisecond)
		execute(t, server, `ALTER DATABASE `+standby+` RENAME TO `+primary)
		proxy.Accept(t)
	}
}

// The promoted standby lacks a rotation. The service must refuse the rotated value, which it has cached at a revision
// that now has another event.
func TestFailover_ServeDropsLostEvents(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	token := mustCall(t, "POST", base+tokensPath, jwt, `{"name":"site","expiresInDays":30}`).is(t,
		201).data()["tokenId"].(string)
	p.stop(t)

	behind, takeOver := startBehindStandby(t, settings)
	p, base = serve(t, behind)
	rotated := mustCall(t, "POST", base+tokensPath+"/"+token+"/rotate", jwt, "").is(t,
		200).data()["plainToken"].(string)
	mustCall(t, "POST", base+"/api/v1/crm/leads", rotated, `{"phone":"9876543210"}`).is(t, 201)
	takeOver()
	base = "http://" + p.waitFor(t, p.err, `(?s)restarting with empty caches.*"listening","addr":"([^"]+)"`)
	mustCall(t, "DELETE", base+tokensPath+"/"+token, jwt, "").is(t, 200)
	mustCall(t, "POST", base+"/api/v1/crm/leads", rotated, `{"phone":"9876543211"}`).is(t, 401)
	p.stop(t)
	launch(t, settings, "verify").exits(t, 0)
}

// A restarting service waits for running requests. SIGTERM stops the service even while a slow request runs.
func TestFailover_StopsWhileRestarting(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	behind, takeOver := startBehindStandby(t, settings)
	p, base := serve(t, behind)
	mustCall(t, "POST", base+tokensPath, jwt, `{"name":"site","expiresInDays":30}`).is(t, 201)
	slow, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	require.NoError(t, err)
	defer slow.Close()
	_, err = fmt.Fprintf(slow,
		"POST %s HTTP/1.1\r\nHost: leadlog\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\nExpect: "+
			"100-continue\r\n\r\n",
		tokensPath, jwt)
	require.NoError(t, err)
	_, err = slow.Read(make([]byte, 1)) // the service waits for the body
	require.NoError(t, err)
	takeOver()
	p.waitFor(t, p.err, `"(stopping)"`)
	p.signal(t, syscall.SIGTERM)
	require.NoError(t, slow.Close())
	p.exits(t, 0)
}

func TestFailover_DevStops(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	behind, takeOver := startBehindStandby(t, settings)
	behind["LEADLOG_DATA_DIR"] = t.TempDir()
	p := launch(t, behind, "dev")
	p.waitFor(t, p.err, `"(listening)"`)
	takeOver()
	p.exits(t, 1)
	require.Contains(t, p.err.String(), "the log has lost events that were read from it")
	require.Contains(t, p.err.String(), "Try: again: the log has lost events")
}

func TestFailover_TailEnds(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	behind, takeOver := startBehindStandby(t, settings)
	newAccount(t, behind, "globex")
	p := launch(t, behind, "tail", "--from", "0")
	p.waitFor(t, p.out, `(globex)`)
	takeOver()
	p.exits(t, 1)
	require.Contains(t, p.err.String(), "the log has lost events that were read from it")
}
