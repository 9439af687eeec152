package systemtest

import (
	"cmp"
	"encoding/base64"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// text polls for a text until it exists.
func text(t *testing.T, url, bearer string) (body string) {
	t.Helper()
	require.Eventually(t, func() bool {
		ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		ask.Header.Set("Authorization", "Bearer "+bearer)
		got, err := http.DefaultClient.Do(ask)
		if err != nil {
			return false
		}
		defer got.Body.Close()
		read, err := io.ReadAll(got.Body)
		body = string(read)
		return err == nil && got.StatusCode == http.StatusOK
	}, soon, 50*time.Millisecond, url)
	return body
}

// logKey returns the verifier key of a receipt's log.
func logKey(t *testing.T, settings map[string]string, receipt string) string {
	t.Helper()
	seed, err := base64.StdEncoding.DecodeString(settings["LEADLOG_TREE_KEY"])
	require.NoError(t, err)
	_, checkpoint, _ := strings.Cut(receipt, "\n\n")
	origin, _, _ := strings.Cut(checkpoint, "\n")
	signer, err := merkle.NewSigner(origin, seed)
	require.NoError(t, err)
	return signer.PublicKey()
}

// auditorsProgram builds the program that the documents offer to auditors.
func auditorsProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "check")
	printed, err := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"../../../eventstore/audit/checkreceipt").CombinedOutput()
	require.NoError(t, err, string(printed))
	return program
}

// evidencePrograms returns the commands of the programs that the documents print for auditors.
func evidencePrograms(t *testing.T) [][]string {
	t.Helper()
	const sources = "../../../eventstore/audit/checkevidence"
	document, err := os.ReadFile("../../../deploy/docs/audit.md")
	require.NoError(t, err)
	for _, name := range []string{"main.go", "checkevidence.py"} {
		source, err := os.ReadFile(filepath.Join(sources, name))
		require.NoError(t, err)
		require.Contains(t, string(document), string(source), "the document prints %s as it is", name)
		require.LessOrEqual(t, strings.Count(string(source), "\n"), 80, name)
	}
	program := filepath.Join(t.TempDir(), "checkevidence")
	printed, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, sources).CombinedOutput()
	require.NoError(t, err, string(printed))
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("python3 is not installed: its program is not run")
		return [][]string{{program}}
	}
	return [][]string{{program}, {python, filepath.Join(sources, "checkevidence.py")}}
}

func TestReceipts_CheckedOffline(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	inbox := newInbox(t)
	mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+inbox.URL+`"}`).is(t, 201)
	token := mustCall(t, "POST", base+"/api/v1/crm/tokens", jwt, `{"name":"CI","expiresInDays":3}`).is(t,
		201).data()["plainToken"].(string)
	captured := mustCall(t, "POST", base+"/api/v1/crm/leads", token, personalBody).is(t, 201)
	lead, eventID := captured.data()["leadId"].(string), captured.header.Get("X-Event-Id")
	mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210","metadata":{"source":"whatsapp"}}`).
		is(t, 200)
	route := "/api/v1/crm/leads/" + lead + "/events/" + eventID + "/receipt"

	dir := t.TempDir()
	receipt := text(t, base+route, token)
	requireNoTraces(t, "receipt", receipt)
	key := logKey(t, settings, receipt)
	receiptFile := file(t, dir, "receipt.txt", receipt)
	var eventFiles []string
	for _, e := range mustCall(t, "GET", base+"/api/v1/crm/leads/"+lead+"/events", jwt, "").is(t,
		200).body["data"].([]any) {
		shown, err := json.Marshal(e)
		require.NoError(t, err)
		eventFiles = append(eventFiles, file(t, dir, "event-"+string(rune('a'+len(eventFiles))), string(shown)))
	}
	offline := map[string]string{"LEADLOG_DATA_DIR": filepath.Join(dir, "none")} // no database, no keys
	out, _ := outputOf(t, 0, offline, "verify", "--receipt", receiptFile, "--event", eventFiles[0], "--public-key", key)
	require.Contains(t, out, "event "+eventID+" of stream lead-"+lead+" at revision 0 is number ")
	tampered := file(t, dir, "tampered.txt", strings.Replace(receipt, "\nindex ", "\nindex 1", 1))
	other := logKey(t, map[string]string{
		"LEADLOG_TREE_KEY": base64.StdEncoding.EncodeToString(make([]byte, 32)),
	}, receipt)
	for _, c := range []struct {
		code  int
		flags []string
		want  string
	}{
		{1, []string{"--receipt", receiptFile, "--event", eventFiles[1], "--public-key", key}, "id is "},
		{1, []string{"--receipt", tampered, "--event", eventFiles[0], "--public-key", key}, "does not have the event"},
		{1, []string{"--receipt", receiptFile, "--event", tampered, "--public-key", key}, tampered + ": not an event"},
		{1, []string{"--receipt", eventFiles[0], "--event", eventFiles[0], "--public-key", key}, "not a receipt"},
		{
			1, []string{"--receipt", receiptFile, "--event", eventFiles[0], "--public-key", other},
			"not signed by this key",
		},
		{2, []string{"--receipt", receiptFile, "--event", eventFiles[0], "--public-key", "key"}, "--public-key"},
		{2, []string{"--receipt", receiptFile, "--event", eventFiles[0]}, "--public-key"},
		{2, []string{"--receipt", receiptFile, "--public-key", key}, "--event"},
		{2, []string{"--receipt", receiptFile, "--certificate", receiptFile, "--public-key", key}, "--certificate"},
	} {
		out, problem := outputOf(t, c.code, offline, append([]string{"verify"}, c.flags...)...)
		require.Contains(t, out+problem, c.want)
	}
	printed, _ := outputOf(t, 0, map[string]string{"LEADLOG_TREE_KEY": settings["LEADLOG_TREE_KEY"]}, "verify",
		"--receipt", receiptFile, "--event", eventFiles[0])
	require.Equal(t, out, printed, "the tree key on the service's machine replaces --public-key")

	program := auditorsProgram(t)
	output, err := exec.CommandContext(t.Context(), program, receiptFile, eventFiles[0], key).CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), "event "+eventID+" is on the log ")
	for _, wrong := range [][]string{
		{tampered, eventFiles[0], key}, {receiptFile, eventFiles[1], key}, {receiptFile, eventFiles[0], other},
	} {
		require.Error(t, exec.CommandContext(t.Context(), program, wrong...).Run())
	}

	evidence := text(t, base+"/api/v1/crm/leads/"+lead+"/events/"+eventID+"/evidence", token)
	evidenceFile := file(t, dir, "evidence.json", evidence)
	out, _ = outputOf(t, 0, offline, "verify", "--evidence", evidenceFile, "--public-key", key)
	require.Contains(t, out, "its content is what the log committed to")
	require.Contains(t, evidence, "+919876543210")
	programs := evidencePrograms(t)
	checked := func(file, key string) (failed int) {
		for _, program := range programs {
			output, err := exec.CommandContext(t.Context(), program[0],
				append(program[1:], file, key)...).CombinedOutput()
			if err != nil {
				failed++
			} else {
				require.Contains(t, string(output), eventID)
			}
		}
		return failed
	}
	require.Zero(t, checked(evidenceFile, key))
	require.Equal(t, len(programs), checked(evidenceFile, other))
	for i, change := range [][2]string{
		{"+919876543210", "+919876543211"}, {`"type":"lead.created"`, `"type":"lead.merged"`},
		{`"revision":0`, `"revision":00`}, {`"actor":"`, `"actor":"x`},
		{`"data":{"contactUID"`, `"data":{"a":1,"contactUID"`}, {`"event":{`, `"event":{"stream":"lead-1",`},
		{`"event":{`, `"event":{"actor":"user:ann",`},
		{`"nonce":"`, `"nonce":"00`}, {`"stored":"`, `"stored":"AAAA`}, {`index `, `index 1`},
	} {
		require.Contains(t, evidence, change[0])
		changed := file(t, dir, "changed-"+string(rune('a'+i)), strings.Replace(evidence, change[0], change[1], 1))
		out, problem := outputOf(t, 1, offline, "verify", "--evidence", changed, "--public-key", key)
		require.NotEmpty(t, out+problem)
		require.Equal(t, len(programs), checked(changed, key), change[1])
	}
	outputOf(t, 2, offline, "verify", "--evidence", evidenceFile, "--receipt", receiptFile, "--public-key", key)

	certificate := filepath.Join(dir, "certificate.json")
	forgotten, _ := outputOf(t, 0, settings, "forget", lead, "--account", "acme", "--yes", "--certificate", certificate)
	require.Contains(t, forgotten, "erased")
	out, _ = outputOf(t, 0, offline, "verify", "--certificate", certificate, "--public-key", key)
	require.Contains(t, out, "lead "+lead+" was erased at ")
	require.Regexp(t, "destroyed: the key of lead "+lead+" with the hash [0-9a-f]{64}\n", out)
	require.Regexp(t, `endpoint \w+ \(127.0.0.1:\d+\): (acknowledged at|pending)`, out)
	require.Contains(t, out, "not proven: That no copy of the key was kept")
	content, err := os.ReadFile(certificate)
	require.NoError(t, err)
	requireNoTraces(t, "certificate", string(content))
	changed := file(t, dir, "changed.json", strings.Replace(string(content), `"system:forget"`, `"user:ann"`, 1))
	out, _ = outputOf(t, 1, offline, "verify", "--certificate", changed, "--public-key", key)
	require.Contains(t, out, "erasure.actor is not what the proof says")
	unproven := file(t, dir, "unproven.json",
		strings.Replace(string(content), "127.0.0.1:", `changed.example\u001b[2K:`, 1))
	out, _ = outputOf(t, 0, offline, "verify", "--certificate", unproven, "--public-key", key)
	require.Regexp(t, `stated in the file, and not proven by the log:\n  endpoint \w+ \(changed.example`, out)
	require.NotContains(t, out, "\x1b", "what anyone could have written there does not control the terminal")

	// The log is copied and restored, and its views are rebuilt. The event has the same leaf, in an extension of the
	// first receipt's tree.
	trust := merkle.Trust{PublicKey: key}
	first, err := audit.OpenReceipt([]byte(receipt), trust)
	require.NoError(t, err)
	requireSameLeaf := func(base string) {
		t.Helper()
		again, err := audit.OpenReceipt([]byte(text(t, base+route, token)), trust)
		require.NoError(t, err)
		require.Equal(t, []any{first.Leaf, first.Index}, []any{again.Leaf, again.Index})
		require.Greater(t, again.Checkpoint.N, first.Checkpoint.N)
	}
	requireSameLeaf(base)
	p.stop(t)
	dump := filepath.Join(dir, "leadlog.dump")
	tool(t, "pg_dump", "--format=custom", "--file="+dump, settings["LEADLOG_DATABASE_URL"])
	copied := pgtest.Database(t)
	launch(t, settings, "copy-log", "--from",
		cmp.Or(settings["LEADLOG_EVENTSTORE_URL"], settings["LEADLOG_DATABASE_URL"]), "--to", copied).exits(t, 0)
	moved := withLog(settings, copied)
	launch(t, moved, "replay", "all").exits(t, 0)
	p, base = serve(t, moved)
	requireSameLeaf(base)
	p.stop(t)

	restored := maps.Clone(settings)
	restored["LEADLOG_DATABASE_URL"] = pgtest.Database(t)
	tool(t, "pg_restore", "--exit-on-error", "--dbname="+restored["LEADLOG_DATABASE_URL"], dump)
	_, base = serve(t, restored)
	requireSameLeaf(base)
}
