package systemtest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// tool runs a program of PostgreSQL.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	programs, err := pgdev.FindBinaries()
	require.NoError(t, err)
	output, err := exec.CommandContext(t.Context(), filepath.Join(programs.Dir, name), args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, output)
	return string(output)
}

func captureAs(t *testing.T, base, jwt, name string) answer {
	t.Helper()
	got := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"email":"`+name+`@example.com"}`).is(t, 201)
	return got
}

// seenBy waits until every view has a captured lead.
func seenBy(t *testing.T, base, jwt string, captured answer) {
	t.Helper()
	for _, path := range []string{
		"/api/v1/crm/leads", "/api/v1/crm/sources/history", "/api/v1/crm/sources/report?interval=day",
	} {
		join := "?"
		if filepath.Ext(path) == "" && path[len(path)-3:] == "day" {
			join = "&"
		}
		mustCall(t, "GET", base+path+join+"minPosition="+captured.header.Get("X-Log-Position"), jwt, "").is(t, 200)
	}
}

func TestRestore_WholeDatabase(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	seenBy(t, base, jwt, captureAs(t, base, jwt, "before"))
	dump := filepath.Join(t.TempDir(), "leadlog.dump")
	tool(t, "pg_dump", "--format=custom", "--file="+dump, settings["LEADLOG_DATABASE_URL"]) // while the service runs
	captureAs(t, base, jwt, "lost")
	p.stop(t)

	settings["LEADLOG_DATABASE_URL"] = pgtest.Database(t)
	tool(t, "pg_restore", "--exit-on-error", "--dbname="+settings["LEADLOG_DATABASE_URL"], dump)
	_, base = serve(t, settings)
	seenBy(t, base, jwt, captureAs(t, base, jwt, "after"))
	launch(t, settings, "verify").exits(t, 0)
	require.Equal(t, 2, queryInt(t, settings, `SELECT count(*) FROM views.lead`))
}

// The log has its own database. Only the log is restored, and it grows beyond the position of the views before they
// follow it again.
func TestRestore_LogAlone(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := emptySettings(t)
	settings["LEADLOG_EVENTSTORE_URL"] = pgtest.Database(t)
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	receiver := newReceiver(t)
	endpoint := mustCall(t, "POST", base+"/webhooks/endpoints", jwt,
		`{"url":"`+receiver.URL+`","events":["lead.created"]}`).is(t, 201)
	captureAs(t, base, jwt, "before")
	dump := filepath.Join(t.TempDir(), "log.dump")
	tool(t, "pg_dump", "--format=custom", "--file="+dump, settings["LEADLOG_EVENTSTORE_URL"])
	var last answer
	for i := range 3 {
		last = captureAs(t, base, jwt, fmt.Sprintf("lost%d", i))
	}
	seenBy(t, base, jwt, last)
	require.Eventually(t, func() bool {
		return len(receiver.missing([]string{last.header.Get("X-Log-Position")})) == 0
	}, soon, 10*time.Millisecond)
	follower := mustCall(t, "GET", base+"/api/v1/crm/events", jwt, "").is(t, 200).body["nextCursor"].(string)
	require.Eventually(t, func() bool { // a checkpoint of the lost events is published
		return queryInt(t, settings,
			`SELECT coalesce(max(size), 0) FROM audit.checkpoint WHERE published_at IS NOT NULL`) >=
			queryInt(t, map[string]string{"LEADLOG_DATABASE_URL": settings["LEADLOG_EVENTSTORE_URL"]},
				`SELECT count(*) FROM log.event`)
	}, soon, 10*time.Millisecond)
	p.stop(t)

	settings["LEADLOG_EVENTSTORE_URL"] = pgtest.Database(t)
	tool(t, "pg_restore", "--exit-on-error", "--dbname="+settings["LEADLOG_EVENTSTORE_URL"], dump)
	head := tool(t, "psql", "-Atqc", "SELECT max(position) FROM log.event", settings["LEADLOG_EVENTSTORE_URL"])
	p, base = serve(t, settings)
	for i := range 6 { // the log grows beyond the position of the views
		last = captureAs(t, base, jwt, fmt.Sprintf("after%d", i))
	}
	p.stop(t)
	p, base = serve(t, settings)
	require.Eventually(t, func() bool {
		return mustCall(t, "GET", base+"/readyz", "", "").status == 503
	}, soon, 20*time.Millisecond)
	p.waitFor(t, p.err, `(the view has events that the log does not have)`)
	p.stop(t)

	// of a lost request
	tool(t, "psql", "-qc", `UPDATE delivery.delivery SET retried = 1000000`, settings["LEADLOG_DATABASE_URL"])
	tool(t, "psql", "-v", "head="+head[:len(head)-1], "-f", "../../../deploy/restored-log.sql",
		settings["LEADLOG_DATABASE_URL"])
	// checkpoints with the former name include lost events
	settings["LEADLOG_LOG_ORIGIN"] = "example.com/leads-restored"
	launch(t, settings, "replay", "all").exits(t, 0)
	launch(t, settings, "verify").exits(t, 0) // as in the runbook, before the service starts
	_, base = serve(t, settings)
	waitReady(t, base)
	seenBy(t, base, jwt, last)
	launch(t, settings, "verify").exits(t, 0)
	require.Equal(t, 7, queryInt(t, settings, `SELECT count(*) FROM views.lead`))
	require.Eventually(t, func() bool {
		return len(receiver.missing([]string{last.header.Get("X-Log-Position")})) == 0
	}, soon, 10*time.Millisecond,
		"events after the backup have webhooks")
	require.Zero(t, receiver.repeated())
	refused := mustCall(t, "GET", base+"/api/v1/crm/events?after="+follower, jwt, "").is(t, 410)
	require.Equal(t, "CURSOR_OF_ANOTHER_LOG", refused.body["code"], "the cursor is refused, although the log is longer")

	path := base + "/webhooks/endpoints/" + endpoint.data()["webhookId"].(string) + "/deliveries"
	sent := mustCall(t, "GET", path, jwt, "").body["data"].([]any)
	oldest := sent[len(sent)-1].(map[string]any)["deliveryId"].(string) // from before the backup
	require.Equal(t, 202, mustCall(t, "POST", path+"/"+oldest+"/retry", jwt, "").status)
	require.Eventually(t, func() bool {
		return len(mustCall(t, "GET", path+"/"+oldest, jwt, "").data()["attempts"].([]any)) == 2
	}, soon, 10*time.Millisecond, "a retry requested after the restore is sent")
}

// A log from before an erasure is restored, with the keys from after it.
func TestRestore_ErasesAgain(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	leads := base + "/api/v1/crm/leads"
	surviving, source := captureAs(t, base, jwt, "stays").data()["leadId"].(string),
		captureAs(t, base, jwt, "part").data()["leadId"].(string)
	mustCall(t, "POST", leads+"/"+surviving+"/join", jwt, `{"from":"`+source+`"}`).is(t, 200)
	log, keys := filepath.Join(t.TempDir(), "log.dump"), filepath.Join(t.TempDir(), "keys.dump")
	tool(t, "pg_dump", "-Fc", "--schema=log", "--schema=delivery", "--schema=secret", "--schema=quota", "--file="+log,
		settings["LEADLOG_DATABASE_URL"])
	mustCall(t, "DELETE", leads+"/"+surviving, jwt, "").is(t, 200)
	tool(t, "pg_dump", "-Fc", "--schema=person", "--file="+keys, settings["LEADLOG_DATABASE_URL"])
	p.stop(t)

	settings["LEADLOG_DATABASE_URL"] = pgtest.Database(t)
	for _, dump := range []string{log, keys} {
		tool(t, "pg_restore", "--exit-on-error", "--dbname="+settings["LEADLOG_DATABASE_URL"], dump)
	}
	launch(t, settings, "migrate").exits(t, 0)
	launch(t, settings, "replay", "all").exits(t, 0)
	printed := launch(t, settings, "verify", "--heal").exits(t, 1)
	require.Contains(t, printed.out.String(), "lead "+surviving+" of account acme cannot be read")
	// the source lead of a join cannot be erased alone
	launch(t, settings, "forget", source, "--account", "acme", "--yes").exits(t, 1)
	launch(t, settings, "forget", surviving, "--account", "other", "--yes").exits(t, 1)
	launch(t, settings, "forget", surviving, "--account", "acme", "--yes").exits(t, 0)
	printed = launch(t, settings, "verify").exits(t, 0)
	require.NotContains(t, printed.out.String(), "note:", "the claims of the erased lead are treated as free")
	printed = launch(t, settings, "forget", surviving, "--account", "acme", "--yes").exits(t, 0)
	require.Contains(t, printed.out.String(), "was erased before")

	_, base = serve(t, settings)
	seenBy(t, base, jwt, captureAs(t, base, jwt, "part"))
	launch(t, settings, "verify").exits(t, 0)
}
