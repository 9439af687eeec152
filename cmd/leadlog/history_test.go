package main

import (
	"encoding/csv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExportAndTailOfARunningService(t *testing.T) {
	t.Parallel()
	settings := production(t)
	jwt := provisioned(t, settings)
	_, base := serve(t, settings)
	following := launch(t, settings, "tail")
	following.sees(t, following.err, `(following)`)
	machine := launch(t, settings, "tail", "--json", "--type", "token.*")
	machine.sees(t, machine.err, `(following)`)

	lead := mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"name":"=Asha","phone":"9876543210","metadata":{"source":"website"}}`)
	require.Equal(t, 201, lead.status)
	created := mustCall(t, "POST", base+"/api/v1/crm/tokens", jwt, `{"name":"CI","expiresInDays":3}`)
	require.Equal(t, 201, created.status)
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
		p := launch(t, settings, "export", what, "--account", "acme")
		require.Zero(t, p.finish(t), p.err)
		rows, err := csv.NewReader(strings.NewReader(p.out.String())).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2, what)
		require.Equal(t, column, rows[0][0])
		require.Contains(t, p.err.String(), "1 rows")
	}
	leads := launch(t, settings, "export", "leads", "--account", "acme")
	require.Zero(t, leads.finish(t))
	require.Contains(t, leads.out.String(), ",'=Asha,", "no formula")
	lines := launch(t, settings, "export", "leads", "--account", "acme", "--format", "ndjson", "--until", "2000-01-01T00:00:00Z")
	require.Zero(t, lines.finish(t))
	require.Empty(t, lines.out.String())

	for _, args := range [][]string{
		{"export", "leads", "--account", "acme", "--since", "yesterday"}, {"export", "secrets", "--account", "acme"},
		{"export", "leads"}, {"tail", "--type", "["},
	} {
		p := launch(t, settings, args...)
		require.Equal(t, 2, p.finish(t), args)
	}
}
