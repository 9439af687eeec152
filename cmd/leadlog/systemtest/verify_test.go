package systemtest

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// outputOf runs the program, which must exit with this code.
func outputOf(t *testing.T, code int, settings map[string]string, args ...string) (out, err string) {
	t.Helper()
	p := launch(t, settings, args...).exits(t, code)
	return p.out.String(), p.err.String()
}

func file(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestVerify_ExportOffline(t *testing.T) {
	t.Parallel()
	settings, jwt, base := startService(t)
	created := mustCall(t, "POST", base+"/api/v1/crm/tokens", jwt, `{"name":"CI","expiresInDays":3}`).is(t, 201)
	id := created.data()["tokenId"].(string)
	tree := mustCall(t, "GET", base+"/api/v1/crm/audit/tree?minPosition="+created.header.Get("X-Log-Position"), jwt, "")
	rotated := mustCall(t, "POST", base+"/api/v1/crm/tokens/"+id+"/rotate", jwt, "")
	mustCall(t, "GET", base+"/api/v1/crm/audit/tree?minPosition="+rotated.header.Get("X-Log-Position"), jwt, "")

	earlierHead, err := json.Marshal(tree.body)
	require.NoError(t, err)
	dir := t.TempDir()
	head := filepath.Join(dir, "head.txt")
	exported, _ := outputOf(t, 0, settings, "export", "tokens", "--account", "acme",
		"--format", "ndjson", "--head", head)
	logKey, _ := outputOf(t, 0, settings, "tree-key")
	logKey = strings.TrimSpace(logKey)
	export, earlier := file(t, dir, "export.ndjson", exported), file(t, dir, "earlier.json", string(earlierHead))

	// neither database nor keys
	offline := map[string]string{"LEADLOG_DATA_DIR": filepath.Join(dir, "none"), "LEADLOG_TREE_PUBLIC_KEY": logKey}
	out, printed := outputOf(t, 0, offline, "verify", "--tree", head, export)
	require.Equal(t, "account acme: all 2 token events are present, in order, as signed\n", out)
	require.NotContains(t, printed, logKey, "a given public key is not printed")
	outputOf(t, 0, offline, "verify", "--tree", head, "--tree", earlier, export)
	_, printed = outputOf(t, 0, map[string]string{"LEADLOG_TREE_KEY": settings["LEADLOG_TREE_KEY"]},
		"verify", "--tree", head, export)
	require.Contains(t, printed, "checked with the key of this machine: "+logKey)
	_, printed = outputOf(t, 2, map[string]string{"LEADLOG_DATA_DIR": filepath.Join(dir, "none")},
		"verify", "--tree", head, export)
	require.Contains(t, printed, "--public-key: give the verifier key of the log")

	lines := strings.SplitAfter(exported, "\n")
	var second audit.Entry
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &second))
	for name, c := range map[string]struct{ export, want string }{
		"one byte":  {strings.Replace(exported, `"name":"CI"`, `"name":"CJ"`, 1), `line 1, event \w+: was changed`},
		"missing":   {lines[1], `line 1, event ` + second.ID + `: is leaf 1 of the tree: leaf 0 is missing before it`},
		"the other": {lines[1] + lines[0], `line 2, event \w+: is leaf 0 of the tree: it is out of order`},
	} {
		out, printed := outputOf(t, 1, offline, "verify", "--tree", head,
			file(t, dir, strings.ReplaceAll(name, " ", "-"), c.export))
		require.Regexp(t, `(?m)^`+c.want, out, name)
		require.Contains(t, printed, "the export is not what the checkpoint was signed for")
	}

	out, _ = outputOf(t, 1, offline, "verify", "--tree", earlier, export)
	require.Contains(t, out, "the export goes on after leaf 0")
	other, err := merkle.NewSigner(logKey[:strings.Index(logKey, "+")], []byte("another seed of thirty-two bytes"))
	require.NoError(t, err)
	_, printed = outputOf(t, 2, offline, "verify", "--tree", head, "--public-key", "leadlog+zz", export)
	require.Contains(t, printed, `--public-key="leadlog+zz": not a public key`)
	_, printed = outputOf(t, 1, offline, "verify", "--tree", head, "--public-key", other.PublicKey(), export)
	require.Contains(t, printed, "not signed by this key")
	outputOf(t, 0, settings, "verify", "--tree", head, "--tree", earlier)
	for _, args := range [][]string{
		{"verify", export}, {"verify", "--tree", "nowhere", export},
		{"export", "tokens", "--account", "acme", "--head", head},
		{"export", "leads", "--account", "acme", "--format", "ndjson", "--head", head},
		{
			"export", "tokens", "--account", "acme", "--format", "ndjson", "--until", "2030-01-01T00:00:00Z", "--head",
			head,
		},
	} {
		outputOf(t, 2, settings, args...)
	}
}

func TestVerify_HeadOfWholeLog(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	service, base := serve(t, settings)
	captureAs(t, base, jwt, "asha")
	head := filepath.Join(t.TempDir(), "log.txt")
	out, printed := outputOf(t, 0, settings, "verify", "--head", head)
	require.Equal(t, "the log and the views agree\n", out)
	require.Regexp(t, `log\.txt: checkpoint of size 5, signed with leadlog-log/\w+\+`, printed,
		"events: the log's name, an account, two claims and a lead")
	written, err := os.ReadFile(head)
	require.NoError(t, err)
	require.Regexp(t, `^leadlog-log/\w+\n5\n`, string(written))
	published := file(t, t.TempDir(), "published.txt", text(t, base+"/api/v1/crm/audit/checkpoint", jwt))

	captureAs(t, base, jwt, "ravi")
	outputOf(t, 0, settings, "verify", "--tree", head, "--tree", published)
	service.stop(t)
	conn := pgtest.Connect(t, settings["LEADLOG_DATABASE_URL"])
	pgtest.Exec(t, conn, `ALTER TABLE log.event DISABLE TRIGGER ALL;
		UPDATE log.event SET metadata = replace(convert_from(metadata, 'UTF8'), 'jwt:', 'jws:')::bytea
		WHERE type = 'claim.taken.v1'`)
	// claims are not sealed and have no account, so only the tree of the log detects the change
	out, _ = outputOf(t, 1, settings, "verify")
	require.Contains(t, out, "the tree of the log: tile 0 of level 0 is missing or is not that of the log")
	other := filepath.Join(t.TempDir(), "other.txt")
	out, _ = outputOf(t, 1, settings, "verify", "--tree", head, "--head", other)
	require.Contains(t, out, "the log: its first 5 events are not those of the checkpoint that was signed")
	require.NoFileExists(t, other, "a checkpoint is signed only if the log agrees")

	for says, args := range map[string][]string{
		"log.txt: is a checkpoint of the whole log": {"verify", "--tree", head, head},
		"--head does not apply to an export":        {"verify", "--tree", head, "--head", other, head},
	} {
		_, printed = outputOf(t, 2, settings, args...)
		require.Contains(t, printed, says)
	}
	settings["LEADLOG_TREE_KEY"] = "short"
	_, printed = outputOf(t, 2, settings, "verify", "--head", other)
	require.Contains(t, printed, "LEADLOG_TREE_KEY")
}

// A shared server may have settings for each database that would break sessions of the service and of commands.
func TestCommands_IgnoreDatabaseSettings(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	u, err := url.Parse(settings["LEADLOG_DATABASE_URL"])
	require.NoError(t, err)
	for _, set := range []string{
		`idle_in_transaction_session_timeout = 1`, `standard_conforming_strings = off`, `client_encoding = 'LATIN1'`,
		`default_transaction_isolation = 'serializable'`, `TimeZone = 'Asia/Kolkata'`, `DateStyle = 'SQL, DMY'`,
		`search_path = 'none'`,
		// the last, because it also ends sessions of this loop
		`bytea_output = 'escape'`, `IntervalStyle = 'sql_standard'`, `idle_session_timeout = 10`,
	} {
		require.NoError(t,
			inDatabase(t.Context(), t, settings["LEADLOG_DATABASE_URL"],
				`ALTER DATABASE `+strings.TrimPrefix(u.Path, "/")+` SET `+set))
	}
	p, base := serve(t, settings)
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt,
		`{"name":"Āsha\\'s 李","phone":"9876543210"}`).is(t, 201)
	mustCall(t, "GET", base+"/api/v1/crm/leads?minPosition="+captured.header.Get("X-Log-Position"), jwt, "").is(t, 200)
	require.Equal(t, `Āsha\'s 李`,
		mustCall(t, "GET", base+"/api/v1/crm/leads", jwt, "").body["data"].([]any)[0].(map[string]any)["name"])
	for _, args := range [][]string{
		{"migrate"}, {"verify"}, {"replay", "lead"},
		{"forget", captured.data()["leadId"].(string), "--account", "acme", "--yes"}, {"verify"},
	} {
		launch(t, settings, args...).exits(t, 0)
	}
	require.NotContains(t, p.err.String(), "57P05", "no session of the service ends because it is idle")
}
