package systemtest

import (
	"encoding/csv"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExportAndTailOfARunningService(t *testing.T) {
	t.Parallel()
	settings, jwt, base := served(t)
	following := launch(t, settings, "tail")
	following.sees(t, following.err, `(following)`)
	machine := launch(t, settings, "tail", "--json", "--type", "token.*")
	machine.sees(t, machine.err, `(following)`)

	mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"name":"=Asha","phone":"9876543210","metadata":{"source":"website"}}`).is(t, 201)
	created := mustCall(t, "POST", base+"/api/v1/crm/tokens", jwt, `{"name":"CI","expiresInDays":3}`).is(t, 201)
	following.sees(t, following.out, `(?m)^(\d+) \S+Z lead.created +lead-\w+ acme user:`)
	machine.sees(t, machine.out, `("type":"token.created")`)
	require.NotContains(t, following.out.String(), "Asha")
	require.NotContains(t, following.out.String(), "9876543210")
	require.NotContains(t, machine.out.String(), "hash")
	require.NotContains(t, machine.out.String(), "lead.created")
	for _, p := range []*program{following, machine} {
		p.signal(t, syscall.SIGINT)
		require.Zero(t, p.finish(t), p.err)
	}

	mustCall(t, "GET", base+"/api/v1/crm/sources/history?minPosition="+created.header.Get("X-Log-Position"), jwt, "")
	mustCall(t, "GET", base+"/api/v1/crm/leads?minPosition="+created.header.Get("X-Log-Position"), jwt, "")
	mustCall(t, "GET", base+"/api/v1/crm/audit/tokens?minPosition="+created.header.Get("X-Log-Position"), jwt, "")
	for what, column := range map[string]string{"sources": "leadId", "leads": "leadId", "tokens": "id"} {
		p := launch(t, settings, "export", what, "--account", "acme").ends(t, 0)
		rows, err := csv.NewReader(strings.NewReader(p.out.String())).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2, what)
		require.Equal(t, column, rows[0][0])
		require.Contains(t, p.err.String(), "1 rows")
	}
	leads := launch(t, settings, "export", "leads", "--account", "acme").ends(t, 0)
	require.Contains(t, leads.out.String(), ",'=Asha,", "no formula")
	lines := launch(t, settings, "export", "leads", "--account", "acme", "--format", "ndjson", "--until", "2000-01-01T00:00:00Z").ends(t, 0)
	require.Empty(t, lines.out.String())

	for _, args := range [][]string{
		{"export", "leads", "--account", "acme", "--since", "yesterday"}, {"export", "secrets", "--account", "acme"},
		{"export", "leads"}, {"export", "leads", "--account", "acmee"}, {"tail", "--type", "["}, {"tail", "--type", "lead.create"},
	} {
		launch(t, settings, args...).ends(t, 2)
	}
}

// TestWhatIsNotInTheViewsYetIsNotLeftOutOfAnExport captures beside no service, as an import does.
func TestWhatIsNotInTheViewsYetIsNotLeftOutOfAnExport(t *testing.T) {
	t.Parallel()
	settings := production(t)
	provisioned(t, settings)
	path := written(t, "leads.csv", "phone\n9876543210\n")
	launch(t, settings, "import", path, "--account", "acme").ends(t, 0)
	for what, rows := range map[string]int{"sources": 2, "leads": 2, "tokens": 1} {
		out, _ := outputOf(t, 0, settings, "export", what, "--account", "acme")
		require.Equal(t, rows, strings.Count(out, "\n"), what)
	}

	execute(t, settings["LEADLOG_DATABASE_URL"], `UPDATE views.checkpoint SET version = 99, position = 0 WHERE projector = 'source_history'`)
	out, said := outputOf(t, 1, settings, "export", "sources", "--account", "acme")
	require.Empty(t, out)
	require.Contains(t, said, "was built by another version")
	require.Contains(t, said, "Try: leadlog replay all first")
}

func TestReplayWhileTheServiceGoesOn(t *testing.T) {
	t.Parallel()
	settings, jwt, base := served(t)
	var last answer
	capture := func(n int) {
		last = mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, fmt.Sprintf(`{"phone":"98765%05d","metadata":{"source":"website"}}`, n)).is(t, 201)
	}
	for n := range 30 {
		capture(n)
	}
	p := launch(t, settings, "replay", "all")
	for n := 30; ; n++ {
		capture(n)
		select {
		case <-p.ended:
		default:
			continue
		}
		break
	}
	require.Zero(t, p.finish(t), p.err)
	require.Contains(t, p.err.String(), "replay lead: replaced, from the log up to position")
	capture(99999)
	mustCall(t, "GET", base+"/api/v1/crm/sources/report?interval=month&minPosition="+last.header.Get("X-Log-Position"), jwt, "").is(t, 200)

	launch(t, settings, "verify").ends(t, 0)

	copied := launch(t, settings, "replay", "lead", "--into", "as_of", "--until", "2000-01-01T00:00:00Z").ends(t, 0)
	require.Contains(t, copied.err.String(), "as_of is as of 2000-01-01T00:00:00Z")
	for _, args := range [][]string{
		{"replay", "nothing"}, {"replay", "lead", "--until", "5"}, {"replay", "lead", "--into", "x", "--until", "soon"}, {"replay", "lead", "--into", `a"b`},
		{"replay", "lead", "--into", ""}, {"replay", "lead", "--into", "x", "--until", ""},
		{"replay", "lead", "--into", "replay_lead"}, {"replay", "lead", "--into", "verify_lead"},
	} {
		launch(t, settings, args...).ends(t, 2)
	}
	launch(t, settings, "replay", "lead", "--into", "views").ends(t, 1)
}
