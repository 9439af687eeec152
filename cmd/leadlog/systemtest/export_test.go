package systemtest

import (
	"crypto/rand"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// The difference in memory between a small and a large export must be much less than the difference in size.
func TestExport_ConstantMemory(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	// Each lead has two rows of 30 kB, which Parquet compresses by less than half.
	random := make([]byte, 15_000)
	_, _ = rand.Read(random)
	note := jsontext.Value(`"` + hex.EncodeToString(random) + `"`)
	fillLog(t, settings, 0, 20, map[string]jsontext.Value{"note": note})
	launch(t, settings, "replay", "touch").exits(t, 0)
	small := map[string]int64{}
	for _, format := range []string{"csv", "ndjson", "parquet"} {
		_, small[format] = runExport(t, settings, format)
	}
	const many = 800
	const exported = 2 * many * 30_000
	fillLog(t, settings, 20, many, map[string]jsontext.Value{"note": note})
	launch(t, settings, "replay", "all").exits(t, 0)
	for _, format := range []string{"csv", "ndjson", "parquet"} {
		written, large := runExport(t, settings, format)
		if format != "parquet" { // Parquet is compressed
			require.Greater(t, written, int64(exported))
		}
		require.Less(t, large-small[format], int64(exported/2), format)
	}
	settings["GOGC"] = "10"       // little garbage, so that the memory is what the export holds
	_, base := serve(t, settings) // the views are up to date
	for _, accept := range []string{"text/csv", "application/x-ndjson", "application/vnd.apache.parquet"} {
		half := fetch(t, base+"/api/v1/crm/sources/history?source=website", jwt, accept)
		before := mapped(t, base)
		full := fetch(t, base+"/api/v1/crm/sources/history", jwt, accept)
		require.Greater(t, full, half)
		require.Less(t, mapped(t, base)-before, int64(exported/4), accept)
	}
}

// runExport returns the number of bytes that an export wrote, and the maximum of memory that was measured.
func runExport(t *testing.T, settings map[string]string, format string) (written, memory int64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), executable, "export", "sources", "--account", "acme", "--format", format)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "GOGC=10", "LEADLOG_DATABASE_URL=" + settings["LEADLOG_DATABASE_URL"],
	}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for {
		n, err := io.CopyN(io.Discard, out, 64<<10)
		written += n
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		memory = max(memory, resident(t, cmd.Process.Pid))
	}
	require.NoError(t, cmd.Wait())
	require.Positive(t, memory)
	return written, memory
}

// resident returns the memory of a process in bytes; on Linux its peak. The rusage of the ended process is not usable,
// because on Linux it starts with the memory of the parent.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	kib := "0" // the process has ended
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		for line := range strings.Lines(string(status)) {
			if peak, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				kib = strings.TrimSuffix(strings.TrimSpace(peak), " kB")
			}
		}
	} else {
		out, err := exec.CommandContext(t.Context(), "ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
		require.NoError(t, err)
		kib = strings.TrimSpace(string(out))
	}
	n, err := strconv.ParseInt(kib, 10, 64)
	require.NoError(t, err)
	return n << 10
}

// fetch reads an export over HTTP and returns its size.
func fetch(t *testing.T, url, jwt, accept string) int64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+jwt)
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, 200, response.StatusCode)
	written, err := io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	return written
}

func TestExport_WhileServing(t *testing.T) {
	t.Parallel()
	settings, jwt, base := startService(t)
	following := launch(t, settings, "tail")
	following.waitFor(t, following.err, `(following)`)
	machine := launch(t, settings, "tail", "--json", "--type", "token.*")
	machine.waitFor(t, machine.err, `(following)`)

	mustCall(t, "POST", base+"/api/v1/crm/leads", jwt,
		`{"name":"=Asha","phone":"9876543210","metadata":{"source":"website"}}`).is(t, 201)
	created := mustCall(t, "POST", base+"/api/v1/crm/tokens", jwt, `{"name":"CI","expiresInDays":3}`).is(t, 201)
	following.waitFor(t, following.out, `(?m)^(\d+) \S+Z lead.created +lead-\w+ acme user:`)
	machine.waitFor(t, machine.out, `("type":"token.created")`)
	require.NotContains(t, following.out.String(), "Asha")
	require.NotContains(t, following.out.String(), "9876543210")
	require.NotContains(t, machine.out.String(), "hash")
	require.NotContains(t, machine.out.String(), "lead.created")
	for _, p := range []*program{following, machine} {
		p.signal(t, syscall.SIGINT)
		require.Zero(t, p.wait(t), p.err)
	}

	mustCall(t, "GET", base+"/api/v1/crm/sources/history?minPosition="+created.header.Get("X-Log-Position"), jwt, "")
	mustCall(t, "GET", base+"/api/v1/crm/leads?minPosition="+created.header.Get("X-Log-Position"), jwt, "")
	mustCall(t, "GET", base+"/api/v1/crm/audit/tokens?minPosition="+created.header.Get("X-Log-Position"), jwt, "")
	events := launch(t, settings, "export", "events", "--account", "acme", "--types", "lead.*,token.created",
		"--format", "ndjson").exits(t, 0)
	require.Regexp(t, `^{"id":"\w+","type":"lead.created",.*\n{"id":"\w+","type":"token.created",.*\n$`,
		events.out.String())
	launch(t, settings, "export", "leads", "--account", "acme", "--types", "lead.*").exits(t, 2)
	launch(t, settings, "export", "events", "--account", "acme", "--types", "claim.*").exits(t, 2)
	for _, what := range []string{"sources", "leads", "tokens", "events"} {
		file := launch(t, settings, "export", what, "--account", "acme", "--format", "parquet").exits(t, 0).out.String()
		require.True(t, strings.HasPrefix(file, "PAR1") && strings.HasSuffix(file, "PAR1"), what)
	}
	for what, column := range map[string]string{"sources": "leadId", "leads": "leadId", "tokens": "id"} {
		p := launch(t, settings, "export", what, "--account", "acme").exits(t, 0)
		rows, err := csv.NewReader(strings.NewReader(p.out.String())).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2, what)
		require.Equal(t, column, rows[0][0])
		require.Contains(t, p.err.String(), "1 rows")
	}
	leads := launch(t, settings, "export", "leads", "--account", "acme").exits(t, 0)
	require.Contains(t, leads.out.String(), ",'=Asha,", "no formula")
	lines := launch(t, settings, "export", "leads", "--account", "acme", "--format", "ndjson", "--until",
		"2000-01-01T00:00:00Z").exits(t, 0)
	require.Empty(t, lines.out.String())

	for _, args := range [][]string{
		{"export", "leads", "--account", "acme", "--since", "yesterday"}, {"export", "secrets", "--account", "acme"},
		{"export", "leads"}, {"export", "leads", "--account", "acmee"}, {"tail", "--type", "["},
		{"tail", "--type", "lead.create"},
	} {
		launch(t, settings, args...).exits(t, 2)
	}
}

// The captures are appended without a service, as by an import.
func TestExport_WaitsForViews(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	path := writeFile(t, "leads.csv", "phone\n9876543210\n")
	launch(t, settings, "import", path, "--account", "acme").exits(t, 0)
	for what, rows := range map[string]int{"sources": 2, "leads": 2, "tokens": 1} {
		out, _ := outputOf(t, 0, settings, "export", what, "--account", "acme")
		require.Equal(t, rows, strings.Count(out, "\n"), what)
	}

	execute(t, settings["LEADLOG_DATABASE_URL"],
		`UPDATE views.checkpoint SET version = 99, position = 0 WHERE projector = 'touch'`)
	out, printed := outputOf(t, 1, settings, "export", "sources", "--account", "acme")
	require.Empty(t, out)
	require.Contains(t, printed, "was built by another version")
	require.Contains(t, printed, "Try: leadlog replay all first")
}
