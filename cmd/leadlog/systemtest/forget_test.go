package systemtest

import (
	"bytes"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// toldTraces is what a person told, and what an endpoint echoes of it.
var toldTraces = []string{"Asha", "9876543210", "asha@", "203.0.113", "browser-of", "pune-city", "visitor-of", "diwali"}

const toldBody = `{"name":"Asha Rao","phone":"9876543210","email":"asha@example.com","visitorId":"visitor-of-asha",` +
	`"metadata":{"source":"website","ip":"203.0.113.7","userAgent":"browser-of-asha","utm_campaign":"diwali"},"customFields":{"city":"pune-city"}}`

// dump is the whole database as pg_dump writes it, with what is in bytes too.
func dump(t *testing.T, url string) string {
	t.Helper()
	binaries, err := pgdev.FindBinaries()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries.Dir, "pg_dump"), "--dbname="+url)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &problems, os.Environ()
	require.NoError(t, cmd.Run(), problems.String())
	require.Contains(t, out.String(), "COPY person.key")
	return out.String()
}

func requireUntold(t *testing.T, where, text string) {
	t.Helper()
	for _, trace := range toldTraces {
		require.NotContains(t, text, trace, where)
		require.NotContains(t, text, hex.EncodeToString([]byte(trace)), where)
	}
}

// Two services run, their caches warm; an endpoint echoes what it is told; there is a copy of the views as of a day. Then
// the person is forgotten, by the command line beside the services.
func TestForgetLeavesNothingOfAPersonAnywhere(t *testing.T) {
	t.Parallel()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		body := new(bytes.Buffer)
		_, _ = body.ReadFrom(r.Body)
		_, _ = w.Write(body.Bytes())
	}))
	t.Cleanup(echo.Close)
	settings := production(t)
	jwt := provisioned(t, settings)
	first, base := serve(t, settings)
	second, other := serve(t, settings)
	mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+echo.URL+`"}`).is(t, 201)
	require.Equal(t, 202, mustCall(t, "POST", base+"/api/v1/crm/visitors/visitor-of-asha/activity", jwt, `{"type":"page_view","url":"https://example.com/diwali"}`).status)
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, toldBody).is(t, 201)
	id := captured.data()["leadId"].(string)
	merged := mustCall(t, "POST", other+"/api/v1/crm/leads", jwt, `{"phone":"9876543210","name":"Asha R.","metadata":{"source":"whatsapp"}}`).is(t, 200)
	for _, at := range []string{base, other} {
		mustCall(t, "GET", at+"/api/v1/crm/leads/"+id+"?minPosition="+merged.header.Get("X-Log-Position"), jwt, "").is(t, 200)
		require.Equal(t, 200, mustCall(t, "GET", at+"/api/v1/crm/leads/"+id+"/events", jwt, "").status)
	}
	pool := pgtest.Pool(t, settings["LEADLOG_DATABASE_URL"])
	require.Eventually(t, func() bool {
		var echoed int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt WHERE response LIKE '%Asha%'`).Scan(&echoed)
		return err == nil && echoed == 2
	}, time.Minute, 10*time.Millisecond, "both deliveries are made, and answered with what they said")
	launch(t, settings, "replay", "lead", "--into", "as_of").ends(t, 0)
	require.Contains(t, dump(t, settings["LEADLOG_DATABASE_URL"]), "Asha")

	pgtest.Exec(t, pool, `CREATE TABLE person.backup AS TABLE person.key`)

	unasked := launch(t, settings, "forget", id, "--account", "acme").ends(t, 2)
	require.Contains(t, unasked.err.String(), "--yes")
	launch(t, settings, "forget", id, "--account", "globex", "--yes").ends(t, 1)
	forgot := launch(t, settings, "forget", id, "--account", "acme", "--yes").ends(t, 0)
	require.Contains(t, forgot.out.String(), "lead "+id+" erased")
	requireUntold(t, "what forget says", forgot.out.String()+forgot.err.String())

	requireUntold(t, "the database", dump(t, settings["LEADLOG_DATABASE_URL"]))
	for _, at := range []string{base, other} {
		for _, path := range []string{"", "/events", "/sources", "?asOf=2999-01-01T00:00:00Z"} {
			require.Equal(t, 404, mustCall(t, "GET", at+"/api/v1/crm/leads/"+id+path, jwt, "").status, path)
		}
	}
	for _, what := range []string{"leads", "sources"} {
		exported := launch(t, settings, "export", what, "--account", "acme").ends(t, 0)
		requireUntold(t, "an export of "+what, exported.out.String())
	}
	again := launch(t, settings, "forget", id, "--account", "acme", "--yes").ends(t, 0)
	require.Contains(t, again.out.String(), "was erased before")
	agree := launch(t, settings, "verify").ends(t, 0)
	require.NotContains(t, agree.out.String(), "note:")
	for _, p := range []*program{first, second} {
		p.stop(t)
		requireUntold(t, "the log of a service", p.err.String())
	}

	// Without a service, and with what looks like the rest of an erasure that was stopped: the keys of the lead and of the
	// visitor came back, as from a backup.
	launch(t, settings, "replay", "all").ends(t, 0)
	requireUntold(t, "views that are built anew", dump(t, settings["LEADLOG_DATABASE_URL"]))
	for _, of := range []string{"lead-" + id, "visitor-"} { // EventStoreDB keeps unused keys of leads whose creation was refused
		back, err := pool.Exec(t.Context(), `INSERT INTO person.key SELECT * FROM person.backup WHERE stream ^@ $1`, of)
		require.NoError(t, err)
		require.EqualValues(t, 1, back.RowsAffected())
		noted := launch(t, settings, "verify")
		noted.finish(t)
		require.Contains(t, noted.out.String(), "lead-"+id+" was erased, and not everything", of)
		healed := launch(t, settings, "verify", "--heal").ends(t, 0)
		require.Contains(t, healed.out.String(), "its erasure is finished")
		require.Empty(t, pgtest.Rows[string](t, pool, `SELECT stream FROM person.key WHERE starts_with(stream, $1)`, of))
	}
}

// A process was killed when a visitor's end was on the log and copies of the views were not swept yet; and the browser, which
// keeps its id, came again.
func TestWhatIsLeftOfAVisitorInACopyIsNotedAndHealed(t *testing.T) {
	t.Parallel()
	settings, jwt, base := served(t)
	run := func(args ...string) string {
		t.Helper()
		p := launch(t, settings, args...).ends(t, 0)
		return p.out.String()
	}
	act := func() {
		t.Helper()
		mustCall(t, "POST", base+"/api/v1/crm/visitors/v/activity", jwt, `{"type":"click"}`).is(t, 202)
	}
	act()
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210","visitorId":"v"}`).is(t, 201)
	run("replay", "visitor_activity", "--into", "as_of")
	tool(t, "psql", "-qc", `CREATE TABLE public.kept AS SELECT * FROM as_of.visitor_activity`, settings["LEADLOG_DATABASE_URL"])
	require.Equal(t, 1, ask(t, settings, `SELECT count(*) FROM public.kept`))
	run("forget", captured.data()["leadId"].(string), "--account", "acme", "--yes")
	require.Zero(t, ask(t, settings, `SELECT count(*) FROM as_of.visitor_activity`))
	require.NotContains(t, run("verify"), "note:")

	act()
	run("replay", "visitor_activity", "--into", "later")
	tool(t, "psql", "-qc", `INSERT INTO as_of.visitor_activity SELECT * FROM public.kept`, settings["LEADLOG_DATABASE_URL"])
	noted := run("verify")
	require.Contains(t, noted, "not everything that was made of it is gone")
	require.Contains(t, noted, "one that a killed process left is finished by leadlog verify --heal")
	require.Contains(t, run("verify", "--heal"), "its erasure is finished")
	require.NotContains(t, run("verify"), "note:")
	require.Zero(t, ask(t, settings, `SELECT count(*) FROM as_of.visitor_activity`))
	require.Equal(t, 1, ask(t, settings, `SELECT count(*) FROM later.visitor_activity`), "what came after the erasure is not forgotten")
}
