package systemtest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// personalTraces are personal data of a request, and of an endpoint that echoes it.
var personalTraces = []string{
	"Asha", "9876543210", "asha@", "203.0.113", "browser-of", "pune-city", "visitor-of", "diwali",
}

const personalBody = `{"name":"Asha Rao","phone":"9876543210","email":"asha@example.com",` +
	`"visitorId":"visitor-of-asha",` +
	`"metadata":{"source":"website","ip":"203.0.113.7","userAgent":"browser-of-asha","utm_content":"diwali",` +
	`"utm_source":"news\u001b[2J","utm_medium":"asha@example.com"},"customFields":{"city":"pune-city"}}`

// dump returns the database as pg_dump writes it, with bytea also as text.
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

func requireNoTraces(t *testing.T, where, text string) {
	t.Helper()
	for _, trace := range personalTraces {
		require.NotContains(t, text, trace, where)
		require.NotContains(t, text, hex.EncodeToString([]byte(trace)), where)
	}
}

// Two services run with warm caches, an endpoint echoes its requests, and an as-of copy of the views exists. Then
// leadlog forget erases the person.
func TestForget_LeavesNoPersonalData(t *testing.T) {
	t.Parallel()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		body := new(bytes.Buffer)
		_, _ = body.ReadFrom(r.Body)
		_, _ = w.Write(body.Bytes())
	}))
	t.Cleanup(echo.Close)
	settings := serveSettings(t)
	jwt := provision(t, settings)
	first, base := serve(t, settings)
	second, other := serve(t, settings)
	mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+echo.URL+`"}`).is(t, 201)
	require.Equal(t, 202,
		mustCall(t, "POST", base+"/api/v1/crm/visitors/visitor-of-asha/activity", jwt,
			`{"type":"page_view","url":"https://example.com/diwali"}`).status)
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, personalBody).is(t, 201)
	id := captured.data()["leadId"].(string)
	_, form := createIntake(t, base, jwt, "form", `{"source":"webhook"}`)
	filled := post{"application/x-www-form-urlencoded", "name=Asha+Rao&phone=9876543210&city=pune-city", nil}
	for range 2 { // the second post is refused, because the lead has this source
		arrived, err := filled.send(t.Context(), base, form)
		require.NoError(t, err)
		arrived.is(t, 200)
	}
	merged := mustCall(t, "POST", other+"/api/v1/crm/leads", jwt,
		`{"phone":"9876543210","name":"Asha R.","metadata":{"source":"whatsapp","utm_campaign":"monsoon"}}`).is(t, 200)
	for _, at := range []string{base, other} {
		mustCall(t, "GET", at+"/api/v1/crm/leads/"+id+"?minPosition="+merged.header.Get("X-Log-Position"), jwt, "").
			is(t, 200)
		require.Equal(t, 200, mustCall(t, "GET", at+"/api/v1/crm/leads/"+id+"/events", jwt, "").status)
	}
	pool := pgtest.Pool(t, settings["LEADLOG_DATABASE_URL"])
	require.Eventually(t, func() bool {
		var echoed int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM delivery.attempt WHERE response LIKE '%Asha%'`).
			Scan(&echoed)
		return err == nil && echoed == 3
	}, soon, 10*time.Millisecond, "not all deliveries have been echoed")
	launch(t, settings, "replay", "lead", "--into", "as_of").exits(t, 0)
	require.Contains(t, dump(t, settings["LEADLOG_DATABASE_URL"]), "Asha")

	pgtest.Exec(t, pool, `CREATE TABLE person.backup AS TABLE person.key`)
	pgtest.Exec(t, pool, `CREATE TABLE person.content_backup AS TABLE person.content`)

	unconfirmed := launch(t, settings, "forget", id, "--account", "acme").exits(t, 2)
	require.Contains(t, unconfirmed.err.String(), "--yes")
	launch(t, settings, "forget", id, "--account", "globex", "--yes").exits(t, 1)
	erasure := launch(t, settings, "forget", id, "--account", "acme", "--yes").exits(t, 0)
	require.Contains(t, erasure.out.String(), "lead "+id+" erased")
	require.Contains(t, erasure.out.String(), `in plain text:
             utm_campaign "monsoon"
             utm_source "news\x1b[2J"
`)
	require.NotContains(t, erasure.out.String(), "utm_medium", "sealed values are not listed")
	requireNoTraces(t, "the output of forget", erasure.out.String()+erasure.err.String())

	requireNoTraces(t, "the database", dump(t, settings["LEADLOG_DATABASE_URL"]))
	for _, at := range []string{base, other} {
		for _, path := range []string{"", "/events", "/sources", "?asOf=2999-01-01T00:00:00Z"} {
			require.Equal(t, 404, mustCall(t, "GET", at+"/api/v1/crm/leads/"+id+path, jwt, "").status, path)
		}
	}
	for _, what := range []string{"leads", "sources"} {
		exported := launch(t, settings, "export", what, "--account", "acme").exits(t, 0)
		requireNoTraces(t, "an export of "+what, exported.out.String())
	}
	again := launch(t, settings, "forget", id, "--account", "acme", "--yes").exits(t, 0)
	require.Contains(t, again.out.String(), "was erased before")
	verified := launch(t, settings, "verify").exits(t, 0)
	require.NotContains(t, verified.out.String(), "note:")
	for _, p := range []*program{first, second} {
		p.stop(t)
		requireNoTraces(t, "the log of a service", p.err.String())
	}

	// Restored keys of the lead, of the visitor and of the arrival make the erasure look unfinished. No service runs.
	launch(t, settings, "replay", "all").exits(t, 0)
	requireNoTraces(t, "rebuilt views", dump(t, settings["LEADLOG_DATABASE_URL"]))
	for of, note := range map[string]string{ // EventStoreDB keeps unused keys of leads whose creation was refused
		"lead-" + id: "lead-" + id + " was erased, but its key or rows derived from it remain",
		"visitor-":   "lead-" + id + " was erased, but its key or rows derived from it remain",
		"arrival-":   " was deleted, but its key was restored",
	} {
		restored, err := pool.Exec(t.Context(),
			`INSERT INTO person.key SELECT * FROM person.backup WHERE stream ^@ $1`, of)
		require.NoError(t, err)
		require.Positive(t, restored.RowsAffected())
		pgtest.Exec(t, pool, `INSERT INTO person.content SELECT * FROM person.content_backup WHERE stream ^@ $1`, of)
		noted := launch(t, settings, "verify")
		noted.wait(t)
		require.Contains(t, noted.out.String(), note)
		healed := launch(t, settings, "verify", "--heal").exits(t, 0)
		require.Contains(t, healed.out.String(), "its erasure is finished")
		require.Empty(t,
			pgtest.Rows[string](t, pool, `SELECT stream FROM person.key WHERE starts_with(stream, $1)`, of))
	}
}

// A process was killed after the log recorded that a visitor is forgotten, and before as-of copies were cleared. The
// browser with the same visitor id then returned.
func TestForget_HealsVisitorInCopy(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings, jwt, base := startService(t)
	run := func(args ...string) string {
		t.Helper()
		p := launch(t, settings, args...).exits(t, 0)
		return p.out.String()
	}
	recordActivity := func() {
		t.Helper()
		mustCall(t, "POST", base+"/api/v1/crm/visitors/v/activity", jwt, `{"type":"click"}`).is(t, 202)
	}
	recordActivity()
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210","visitorId":"v"}`).is(t, 201)
	run("replay", "visitor_activity", "--into", "as_of")
	tool(t, "psql", "-qc", `CREATE TABLE public.kept AS SELECT * FROM as_of.visitor_activity`,
		settings["LEADLOG_DATABASE_URL"])
	require.Equal(t, 1, queryInt(t, settings, `SELECT count(*) FROM public.kept`))
	run("forget", captured.data()["leadId"].(string), "--account", "acme", "--yes")
	require.Zero(t, queryInt(t, settings, `SELECT count(*) FROM as_of.visitor_activity`))
	require.NotContains(t, run("verify"), "note:")

	recordActivity()
	run("replay", "visitor_activity", "--into", "later")
	tool(t, "psql", "-qc", `INSERT INTO as_of.visitor_activity SELECT * FROM public.kept`,
		settings["LEADLOG_DATABASE_URL"])
	noted := run("verify")
	require.Contains(t, noted, "but its key or rows derived from it remain")
	require.Contains(t, noted, "leadlog verify --heal finishes those left by killed processes")
	require.Contains(t, run("verify", "--heal"), "its erasure is finished")
	require.NotContains(t, run("verify"), "note:")
	require.Zero(t, queryInt(t, settings, `SELECT count(*) FROM as_of.visitor_activity`))
	require.Equal(t, 1, queryInt(t, settings, `SELECT count(*) FROM later.visitor_activity`),
		"activity after the erasure is kept")
}

// site sends the activity of visitors of a web site.
type site struct {
	t         *testing.T
	base, jwt string
}

func (s site) recordActivity(visitor, title string) (position string) {
	s.t.Helper()
	got := mustCall(s.t, "POST", s.base+"/api/v1/crm/visitors/"+visitor+"/activity", s.jwt,
		`{"type":"page_view","title":"`+title+`"}`).is(s.t, 202)
	return got.header.Get("X-Log-Position")
}

// activity returns the titles of a lead's activity, at a position of the log.
func (s site) activity(lead, position string) (titles []string) {
	s.t.Helper()
	got := mustCall(s.t, "GET", s.base+"/api/v1/crm/leads/"+lead+"/activity?minPosition="+position,
		s.jwt, "").is(s.t, 200)
	for _, of := range got.body["data"].([]any) {
		titles = append(titles, of.(map[string]any)["title"].(string))
	}
	return titles
}

var lostVisitor = regexp.MustCompile(`(visitor-acme-[0-9a-f]+) of account acme cannot be read: its key is missing`)

// A log is restored with keys that lack those of three visitors. Two of the visitors return before verify runs.
func TestForget_VisitorWithLostKey(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	web := site{t, base, jwt}
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt,
		`{"phone":"9876543210","visitorId":"linked"}`).is(t, 201)
	lead := captured.data()["leadId"].(string)
	keys := filepath.Join(t.TempDir(), "keys.dump")
	tool(t, "pg_dump", "-Fc", "--schema=person", "--file="+keys, settings["LEADLOG_DATABASE_URL"])
	web.recordActivity("linked", "early")
	web.recordActivity("linked", "early")
	web.recordActivity("returning", "early")
	require.Equal(t, []string{"early", "early"}, web.activity(lead, web.recordActivity("anonymous", "never again")))
	p.stop(t)
	found := filepath.Join(t.TempDir(), "found.dump")
	tool(t, "pg_dump", "-Fc", "--schema=person", "--file="+found, settings["LEADLOG_DATABASE_URL"])
	restore := func(dump string) {
		t.Helper()
		tool(t, "psql", "-qc", `DROP SCHEMA person CASCADE`, settings["LEADLOG_DATABASE_URL"])
		tool(t, "pg_restore", "--exit-on-error", "--dbname="+settings["LEADLOG_DATABASE_URL"], dump)
	}
	run := func(code int, args ...string) string {
		t.Helper()
		p := launch(t, settings, args...).exits(t, code)
		return p.out.String() + p.err.String()
	}
	lost := func() (streams []string) {
		t.Helper()
		for _, match := range lostVisitor.FindAllStringSubmatch(run(1, "verify"), -1) {
			streams = append(streams, match[1])
		}
		return streams
	}

	restore(keys)
	run(0, "replay", "all")
	streams := lost()
	require.Len(t, streams, 3)
	p, base = serve(t, settings)
	web.base = base
	web.recordActivity("returning", "late")
	require.Equal(t, []string{"late"}, web.activity(lead, web.recordActivity("linked", "late")))
	require.ElementsMatch(t, streams, lost())
	require.Contains(t, run(2, "forget", streams[0], "--account", "acme"), "--yes")
	require.Contains(t, run(1, "forget", streams[0], "--account", "globex", "--yes"),
		"account globex has no visitor "+streams[0])
	for _, stream := range streams {
		require.Contains(t, run(0, "forget", stream, "--account", "acme", "--yes"), stream+" forgotten")
		require.Contains(t, run(0, "forget", stream, "--account", "acme", "--yes"), "was forgotten before")
	}
	require.NotContains(t, run(0, "verify"), "note:")
	run(0, "replay", "visitor_activity", "--into", "as_of")
	require.Equal(t, 2, queryInt(t, settings, `SELECT count(*) FROM as_of.visitor_activity WHERE title = 'late'`))
	require.Equal(t, []string{"late", "later"}, web.activity(lead, web.recordActivity("linked", "later")))
	web.recordActivity("anonymous", "again")
	p.stop(t)

	// A backup with the lost keys, but without newer keys, is restored later. The lost keys are destroyed again, and
	// newer activity is kept after its keys are added.
	tool(t, "psql", "-qc", `CREATE TABLE public.kept AS TABLE person.key`, settings["LEADLOG_DATABASE_URL"])
	restore(found)
	run(0, "replay", "all")
	run(0, "replay", "visitor_activity", "--into", "returned")
	early := func() int {
		return queryInt(t, settings,
			`SELECT count(*) FROM (TABLE views.visitor_activity UNION ALL TABLE returned.visitor_activity) AS a
				WHERE title = 'early'`)
	}
	require.Zero(t, early(), "forgotten activity is not shown although its keys are back")
	noted := run(1, "verify", "--heal")
	for _, stream := range streams {
		require.Contains(t, noted, "note: "+stream+" was forgotten, but its key or rows derived from it remain")
		require.Contains(t, noted, "healed: "+stream+": its erasure is finished")
	}
	require.ElementsMatch(t, streams, lost(), "later activity has no key in the backup")
	tool(t, "psql", "-qc", `INSERT INTO person.key TABLE public.kept ON CONFLICT DO NOTHING; DROP TABLE public.kept`,
		settings["LEADLOG_DATABASE_URL"])
	run(0, "replay", "all")
	require.NotContains(t, run(0, "verify"), "note:")
	_, base = serve(t, settings)
	web.base = base
	require.Equal(t, []string{"late", "later", "last"}, web.activity(lead, web.recordActivity("linked", "last")))
	for _, stream := range streams {
		require.Contains(t, run(0, "forget", stream, "--account", "acme", "--yes"), "was forgotten before")
	}
	require.Contains(t, run(1, "forget", "visitor-acme-00", "--account", "acme", "--yes"), "has no visitor")
	require.Contains(t, run(0, "forget", lead, "--account", "acme", "--yes"), "the activity of 1 visitors")
	require.NotContains(t, run(0, "verify"), "note:")
	require.Equal(t, 2, queryInt(t, settings, `SELECT count(*) FROM person.key WHERE stream ^@ 'visitor-'`),
		"keys of later activity are kept")
}

// manualShell returns a function that runs a manual's scripts, with leadlog and PostgreSQL's programs in PATH.
func manualShell(t *testing.T, settings map[string]string) func(script string) string {
	t.Helper()
	programs, err := pgdev.FindBinaries()
	require.NoError(t, err)
	dir := t.TempDir()
	leadlog := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", executable)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "leadlog"), []byte(leadlog), 0o755))
	variables := []string{
		"PATH=" + strings.Join([]string{dir, programs.Dir, os.Getenv("PATH")}, string(os.PathListSeparator)),
	}
	for name, value := range settings {
		variables = append(variables, name+"="+value)
	}
	return func(script string) string {
		t.Helper()
		return shell(t, script, variables...)
	}
}

// The test runs the scripts of forgetting.md, first with a backup of the lost keys and then without.
func TestForget_LostKeysManual(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	scripts := codeBlocks(t, "deploy/docs/forgetting.md", "sh")
	require.Len(t, scripts, 2)
	settings, jwt, base := startService(t)
	url := "'" + settings["LEADLOG_DATABASE_URL"] + "'"
	run := manualShell(t, settings)
	capture := func(body string) string {
		t.Helper()
		return mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, body).is(t, 201).data()["leadId"].(string)
	}
	web := site{t, base, jwt}
	loseKeys := func() {
		t.Helper()
		run(`psql -qc 'DELETE FROM person.key' ` +
			`-c 'INSERT INTO person.destroyed (stream) SELECT stream FROM log.event' ` +
			`-c 'NOTIFY leadlog_forgotten' ` + url + ` >/dev/null`)
	}

	web.recordActivity("v", "early")
	first := capture(`{"phone":"9876543210","name":"Asha","visitorId":"v"}`)
	erased := capture(`{"phone":"9876543211"}`)
	intake := mustCall(t, "POST", base+"/api/v1/crm/intakes", jwt, `{"name":"Form","kind":"form"}`).is(t,
		201).data()["intakeId"].(string)
	mustCall(t, "POST", base+"/in/"+intake, "", `{"email":"posted@example.com"}`).is(t, 200)
	keys := filepath.Join(t.TempDir(), "keys.dump")
	run("pg_dump -Fc --schema=person --file=" + keys + " " + url)
	mustCall(t, "DELETE", base+"/api/v1/crm/leads/"+erased, jwt, "").is(t, 200)
	loseKeys()
	_, base = serve(t, settings) // without cached keys
	web.base = base
	second := capture(`{"phone":"9876543210"}`)
	web.recordActivity("v", "late")
	require.Contains(t, launch(t, settings, "verify").exits(t, 1).out.String(),
		"lead "+first+" of account acme cannot be read")

	run(strings.NewReplacer("-d leadlog", "-d "+url, "keys-OTHER.dump", keys).Replace(scripts[0]))
	found := launch(t, settings, "verify", "--heal").exits(t, 1).out.String()
	require.Contains(t, found, "have the same phone")
	require.Contains(t, found, "healed: lead-"+erased+": its erasure is finished")
	require.NotContains(t, found, "cannot be read")
	joined := mustCall(t, "POST", base+"/api/v1/crm/leads/"+second+"/join", jwt, `{"from":"`+first+`"}`).is(t, 200)
	seenBy(t, base, jwt, joined)
	launch(t, settings, "verify").exits(t, 0)
	require.Equal(t, []string{"early", "late", "again"}, web.activity(second, web.recordActivity("v", "again")))

	loseKeys()
	printed := run(scripts[1])
	require.Contains(t, printed, "lead "+second+" erased")
	require.Regexp(t, regexp.MustCompile(`visitor-acme-\w+ forgotten`), printed)
	require.Regexp(t, regexp.MustCompile(`arrival-\w+ discarded`), printed)
	require.Contains(t, printed, "the log and the views agree")
	launch(t, settings, "replay", "all").exits(t, 0)
	require.NotContains(t, launch(t, settings, "verify").exits(t, 0).out.String(), "note:")
	capture(`{"phone":"9876543210"}`)
}
