package export

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/deploy/pgdev/npmtest"
	"github.com/leadlog/leadlog/query"
)

// compared is the result of DuckDB's comparison of a Parquet file and a CSV file of the same items.
type compared struct {
	Parquet, CSV, Differing int
	Types                   []string
}

// inDuckDB writes items as Parquet and as CSV, reads both in DuckDB and compares them.
func inDuckDB[T any](t *testing.T, sheet Sheet[T], items ...T) (c compared) {
	t.Helper()
	files := t.TempDir()
	for _, format := range []Format{Parquet, CSV} {
		var out bytes.Buffer
		_, err := sheet.Write(&out, format, all(items...), func() {})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(files, sheet.Name+"."+string(format)), out.Bytes(), 0o600))
	}
	compare := exec.CommandContext(t.Context(), "node",
		filepath.Join(npmtest.Install(t, "testdata/duckdb"), "compare.js"), files, sheet.Name)
	output, err := compare.CombinedOutput()
	require.NoError(t, err, "%s", output)
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &c, json.MatchCaseInsensitiveNames(true)),
		"%s", output)
	require.Zero(t, c.Differing, "%s", output)
	require.Equal(t, []int{len(items), len(items)}, []int{c.Parquet, c.CSV})
	return c
}

func TestParquet_DuckDBReadsLeads(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 1, 9, 30, 0, 120_000_000, time.UTC)
	var leads []query.Lead
	for i := range 3000 { // several pages
		l := query.Lead{CreatedAt: query.Timestamp(at.Add(time.Duration(i) * time.Hour))}
		l.Record = lead.Record{
			LeadID: fmt.Sprint("lead", i), Name: "Zoë \"李\", Łukasz\nRao", Status: "new",
			OpportunityValue: jsontext.Value("null"),
		}
		if i%3 == 0 {
			id := fmt.Sprint("opportunity", i)
			l.OpportunityID, l.OpportunityValue, l.UpdatedAt = &id,
				jsontext.Value([]string{"120000", "0", "12.5", "99999999999.9999"}[i/3%4]), l.CreatedAt
			l.CustomFields = map[string]jsontext.Value{"city": jsontext.Value(`"Pune"`), "n": jsontext.Value("1.50")}
		}
		leads = append(leads, l)
	}
	require.Equal(t, []string{
		"leadId VARCHAR", "contactUID VARCHAR", "name VARCHAR", "phone VARCHAR", "email VARCHAR", "status VARCHAR",
		"leadTemperature VARCHAR", "opportunityValue DECIMAL(38,4)", "opportunityId VARCHAR", "source VARCHAR",
		"createdAt TIMESTAMP WITH TIME ZONE", "updatedAt TIMESTAMP WITH TIME ZONE", "customFields JSON",
		"consents JSON",
	}, inDuckDB(t, Leads(), leads...).Types)
}

func TestParquet_DuckDBReadsLists(t *testing.T) {
	t.Parallel()
	none := jsontext.Value("{}")
	entries := []query.SourceEntry{
		{LeadID: "a", Metadata: none, Arrivals: 1}, {LeadID: "b", Metadata: none, Changed: []string{"name"}},
		{LeadID: "c", Metadata: jsontext.Value(`{"utm_term":"gold"}`), Changed: []string{"name", "phone"}},
	}
	types := inDuckDB(t, Sources(), entries...).Types
	require.Contains(t, types, "arrivals BIGINT")
	require.Contains(t, types, "changed VARCHAR[]")
	rows := []query.AttributionRow{
		{Key: "(none)"},
		{
			Key: "website", Touches: 2, Conversions: "0.333333", Value: "40000.5",
			AttributionCost: query.AttributionCost{Cost: "12.5"},
		},
	}
	require.Equal(t, []string{
		"key VARCHAR", "touches BIGINT", "conversions DECIMAL(38,6)", "value DECIMAL(38,4)", "cost DECIMAL(38,4)",
		"costPerConversion DECIMAL(38,4)", "returnOnCost DECIMAL(38,4)",
	}, inDuckDB(t, Attribution(), rows...).Types)
}

func TestParquet_DuckDBReadsEvents(t *testing.T) {
	t.Parallel()
	events := []query.FeedEvent{
		{ID: "a", Type: "lead.created", Revision: 0, Position: 1, Data: jsontext.Value(`{"name":"Asha"}`)},
		{ID: "b", Type: "lead.merged", Revision: 1, Position: 1 << 60, Data: jsontext.Value(`{}`), Erased: true},
	}
	types := inDuckDB(t, Events(), events...).Types
	require.Contains(t, types, "position BIGINT")
	require.Contains(t, types, "erased BOOLEAN")
	require.Contains(t, types, "data JSON")
}
