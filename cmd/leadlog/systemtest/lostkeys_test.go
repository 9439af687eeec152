package systemtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev"
)

// operator runs scripts that know leadlog and PostgreSQL's programs by their names, with these settings.
func operator(t *testing.T, settings map[string]string) func(script string) string {
	t.Helper()
	programs, err := pgdev.FindBinaries()
	require.NoError(t, err)
	dir := t.TempDir()
	leadlog := fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", executable())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "leadlog"), []byte(leadlog), 0o755))
	variables := []string{"PATH=" + strings.Join([]string{dir, programs.Dir, os.Getenv("PATH")}, string(os.PathListSeparator))}
	for name, value := range settings {
		variables = append(variables, name+"="+value)
	}
	return func(script string) string {
		t.Helper()
		return shell(t, script, variables...)
	}
}

// TestWhoseKeyIsInNoBackupIsMadeGoodAsTheTextSays runs what forgetting.md has for keys that are found, and then for others that
// are not.
func TestWhoseKeyIsInNoBackupIsMadeGoodAsTheTextSays(t *testing.T) {
	t.Parallel()
	scripts := blocks(t, "deploy/docs/forgetting.md", "sh")
	require.Len(t, scripts, 2)
	settings, jwt, base := served(t)
	url := "'" + settings["LEADLOG_DATABASE_URL"] + "'"
	run := operator(t, settings)
	capture := func(body string) string {
		t.Helper()
		return mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, body).is(t, 201).data()["leadId"].(string)
	}
	web := site{t, base, jwt}
	lose := func() {
		t.Helper()
		run(`psql -qc 'DELETE FROM person.key' -c 'INSERT INTO person.destroyed (stream) SELECT stream FROM log.event' -c 'NOTIFY leadlog_forgotten' ` + url + ` >/dev/null`)
	}

	web.act("v", "early")
	first := capture(`{"phone":"9876543210","name":"Asha","visitorId":"v"}`)
	gone := capture(`{"phone":"9876543211"}`)
	keys := filepath.Join(t.TempDir(), "keys.dump")
	run("pg_dump -Fc --schema=person --file=" + keys + " " + url)
	mustCall(t, "DELETE", base+"/api/v1/crm/leads/"+gone, jwt, "").is(t, 200)
	lose()
	_, base = serve(t, settings) // which remembers no key
	web.base = base
	second := capture(`{"phone":"9876543210"}`)
	web.act("v", "late")
	require.Contains(t, launch(t, settings, "verify").ends(t, 1).out.String(), "lead "+first+" of account acme cannot be read")

	run(strings.NewReplacer("-d leadlog", "-d "+url, "keys-OTHER.dump", keys).Replace(scripts[0]))
	found := launch(t, settings, "verify", "--heal").ends(t, 1).out.String()
	require.Contains(t, found, "have the same phone")
	require.Contains(t, found, "healed: lead-"+gone+": its erasure is finished")
	require.NotContains(t, found, "cannot be read")
	joined := mustCall(t, "POST", base+"/api/v1/crm/leads/"+second+"/join", jwt, `{"from":"`+first+`"}`).is(t, 200)
	seenBy(t, base, jwt, joined)
	launch(t, settings, "verify").ends(t, 0)
	require.Equal(t, []string{"early", "late", "again"}, web.seen(second, web.act("v", "again")))

	lose()
	said := run(scripts[1])
	require.Contains(t, said, "lead "+second+" erased")
	require.Regexp(t, regexp.MustCompile(`visitor-acme-\w+ forgotten`), said)
	require.Contains(t, said, "the log and the views agree")
	launch(t, settings, "replay", "all").ends(t, 0)
	require.NotContains(t, launch(t, settings, "verify").ends(t, 0).out.String(), "note:")
	capture(`{"phone":"9876543210"}`)
}
