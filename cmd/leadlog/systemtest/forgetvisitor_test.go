package systemtest

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// site is what visitors do on a web site, as the service is told.
type site struct {
	t         *testing.T
	base, jwt string
}

func (s site) act(visitor, title string) (position string) {
	s.t.Helper()
	got := mustCall(s.t, "POST", s.base+"/api/v1/crm/visitors/"+visitor+"/activity", s.jwt, `{"type":"page_view","title":"`+title+`"}`).is(s.t, 202)
	return got.header.Get("X-Log-Position")
}

// seen are the titles in a lead's activity, at a position of the log.
func (s site) seen(lead, position string) (titles []string) {
	s.t.Helper()
	got := mustCall(s.t, "GET", s.base+"/api/v1/crm/leads/"+lead+"/activity?minPosition="+position, s.jwt, "").is(s.t, 200)
	for _, of := range got.body["data"].([]any) {
		titles = append(titles, of.(map[string]any)["title"].(string))
	}
	return titles
}

var lostVisitor = regexp.MustCompile(`(visitor-acme-[0-9a-f]+) of account acme cannot be read: its key is not there`)

// TestAVisitorWhoseKeyIsInNoBackupIsForgotten restores a log, and keys from before three of its visitors came. Two of them come
// again before anybody looks.
func TestAVisitorWhoseKeyIsInNoBackupIsForgotten(t *testing.T) {
	t.Parallel()
	settings := production(t)
	jwt := provisioned(t, settings)
	p, base := serve(t, settings)
	web := site{t, base, jwt}
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210","visitorId":"linked"}`).is(t, 201)
	lead := captured.data()["leadId"].(string)
	keys := filepath.Join(t.TempDir(), "keys.dump")
	tool(t, "pg_dump", "-Fc", "--schema=person", "--file="+keys, settings["LEADLOG_DATABASE_URL"])
	web.act("linked", "early")
	web.act("linked", "early")
	web.act("returning", "early")
	require.Equal(t, []string{"early", "early"}, web.seen(lead, web.act("anonymous", "never again")))
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
		p := launch(t, settings, args...).ends(t, code)
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
	web.act("returning", "late")
	require.Equal(t, []string{"late"}, web.seen(lead, web.act("linked", "late")))
	require.ElementsMatch(t, streams, lost())
	require.Contains(t, run(2, "forget", streams[0], "--account", "acme"), "--yes")
	require.Contains(t, run(1, "forget", streams[0], "--account", "globex", "--yes"), "account globex has no visitor "+streams[0])
	for _, stream := range streams {
		require.Contains(t, run(0, "forget", stream, "--account", "acme", "--yes"), stream+" forgotten")
		require.Contains(t, run(0, "forget", stream, "--account", "acme", "--yes"), "was forgotten before")
	}
	require.NotContains(t, run(0, "verify"), "note:")
	run(0, "replay", "visitor_activity", "--into", "as_of")
	require.Equal(t, 2, ask(t, settings, `SELECT count(*) FROM as_of.visitor_activity WHERE title = 'late'`))
	require.Equal(t, []string{"late", "later"}, web.seen(lead, web.act("linked", "later")))
	web.act("anonymous", "again")
	p.stop(t)

	// A backup that has the keys turns up after all, and it lacks the later ones. What was said stays so, and no more is.
	tool(t, "psql", "-qc", `CREATE TABLE public.kept AS TABLE person.key`, settings["LEADLOG_DATABASE_URL"])
	restore(found)
	run(0, "replay", "all")
	run(0, "replay", "visitor_activity", "--into", "returned")
	early := func() int {
		return ask(t, settings, `SELECT count(*) FROM (TABLE views.visitor_activity UNION ALL TABLE returned.visitor_activity) AS a WHERE title = 'early'`)
	}
	require.Equal(t, 6, early(), "of two who came again")
	noted := run(1, "verify", "--heal")
	for _, stream := range streams {
		require.Contains(t, noted, "note: "+stream+" was forgotten, and not everything that was made of it is gone")
		require.Contains(t, noted, "healed: "+stream+": its erasure is finished")
	}
	require.Zero(t, early())
	require.ElementsMatch(t, streams, lost(), "what was done since")
	tool(t, "psql", "-qc", `INSERT INTO person.key TABLE public.kept ON CONFLICT DO NOTHING; DROP TABLE public.kept`, settings["LEADLOG_DATABASE_URL"])
	run(0, "replay", "all")
	require.NotContains(t, run(0, "verify"), "note:")
	_, base = serve(t, settings)
	web.base = base
	require.Equal(t, []string{"late", "later", "last"}, web.seen(lead, web.act("linked", "last")))
	for _, stream := range streams {
		require.Contains(t, run(0, "forget", stream, "--account", "acme", "--yes"), "was forgotten before")
	}
	require.Contains(t, run(1, "forget", "visitor-acme-00", "--account", "acme", "--yes"), "has no visitor")
	require.Contains(t, run(0, "forget", lead, "--account", "acme", "--yes"), "the activity of 1 visitors")
	require.NotContains(t, run(0, "verify"), "note:")
	require.Equal(t, 2, ask(t, settings, `SELECT count(*) FROM person.key WHERE stream ^@ 'visitor-'`), "of what was done since")
}
