package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/npmtest"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// The test runs every export and every query of the analysts' manual in DuckDB and in PostgreSQL.
func TestManual_AnalystExamples(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	jwt := newAccount(t, settings, "demo")
	_, base := serve(t, settings)
	api := base + "/api/v1/crm"
	asha := mustCall(t, "POST", api+"/leads", jwt,
		`{"phone":"9876543210","visitorId":"v","city":"Pune","opportunityValue":"100.5",
		"metadata":{"source":"website","utm_medium":"cpc","utm_campaign":"diwali","utm_term":"flat"}}`).is(t, 201)
	mustCall(t, "POST", api+"/leads", jwt, `{"phone":"9876543210","metadata":{"source":"whatsapp"}}`).is(t, 200)
	ravi := mustCall(t, "POST", api+"/leads", jwt,
		`{"phone":"9876543211","city":"Pune","metadata":{"source":"website","utm_campaign":"diwali"}}`).is(t, 201)
	erased := mustCall(t, "POST", api+"/leads", jwt,
		`{"phone":"9876543212","metadata":{"source":"website","utm_campaign":"diwali"}}`).is(t, 201)
	id := asha.data()["leadId"].(string)
	mustCall(t, "POST", api+"/visitors/v/activity", jwt,
		`{"type":"page_view","url":"https://example.com/?utm_source=news&utm_campaign=again"}`).is(t, 202)
	mustCall(t, "PATCH", api+"/leads/"+ravi.data()["leadId"].(string), jwt, `{"status":"won"}`).is(t, 200)
	mustCall(t, "PUT", api+"/spend", jwt,
		`{"rows":[{"day":"2026-01-31","key":{"utmCampaign":"diwali"},"amount":"12.5"}]}`).is(t, 200)
	last := mustCall(t, "DELETE", api+"/leads/"+erased.data()["leadId"].(string), jwt, "").is(t, 200)
	for _, list := range []string{"/leads", "/touches", "/events"} {
		mustCall(t, "GET", api+list+"?minPosition="+last.header.Get("X-Log-Position"), jwt, "").is(t, 200)
	}

	text, err := os.ReadFile("../../../deploy/docs/analysts.md")
	require.NoError(t, err)
	manual := strings.ReplaceAll(string(text), "01M7YGZVZWE6S8RYN49QGMF6BH", id)
	files := t.TempDir()
	exports := regexp.MustCompile(`(?m)^\$ leadlog (export .*) > (\S+)$`).FindAllStringSubmatch(manual, -1)
	require.Len(t, exports, 3)
	for _, export := range exports {
		args := strings.Fields(strings.ReplaceAll(export[1], "'", ""))
		out := launch(t, settings, args...).exits(t, 0).out.String()
		require.NoError(t, os.WriteFile(filepath.Join(files, export[2]), []byte(out), 0o600))
	}
	inDuckDB, inPostgreSQL, found := strings.Cut(manual, "\n## SQL\n")
	require.True(t, found)
	queries := func(chapter string) (found []string) {
		for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(chapter, -1) {
			found = append(found, block[1])
		}
		return found
	}

	statements, err := json.Marshal(queries(inDuckDB))
	require.NoError(t, err)
	run := exec.CommandContext(t.Context(), "node",
		filepath.Join(npmtest.Install(t, "../../../query/export/testdata/duckdb"), "run.js"), files)
	run.Stdin = bytes.NewReader(statements)
	printed, err := run.CombinedOutput()
	require.NoError(t, err, "%s", printed)
	var results [][][]any
	require.NoError(t, json.Unmarshal(printed, &results), "%s", printed)
	require.Len(t, results, 5)
	require.Equal(t, "[[new website 1 100.5000]]", fmt.Sprint(results[0]))
	require.Equal(t, "[[Pune 2]]", fmt.Sprint(results[1]))
	require.Regexp(t, `^\[\[new 1 [0-9.e-]+\] \[won 0 <nil>\]\]$`, fmt.Sprint(results[2]))
	require.Regexp(t, `^\[\[\S+ \S+ diwali 3 1\] \[\S+ \S+ <nil> 1 0\]\]$`, fmt.Sprint(results[3]))
	require.ElementsMatch(t, []any{[]any{"website > whatsapp > visit", "diwali", "1"}, []any{"website", "diwali", "1"}},
		results[4])

	prefix, script := scripted(t, settings["LEADLOG_DATABASE_URL"], "analyst")
	script("analyst.sql")
	inSQL := queries(inPostgreSQL)
	require.Len(t, inSQL, 5)
	rows := func(i int) string {
		return tool(t, "psql", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", inSQL[i],
			asRole(t, settings["LEADLOG_DATABASE_URL"], prefix+"analyst"))
	}
	require.ElementsMatch(t, []string{"|diwali|2|0", "cpc|diwali|1|0", "||0|1"},
		strings.Split(strings.TrimSpace(rows(0)), "\n"))
	require.Regexp(t, `^\S+ \S+\|created\|website\|diwali\|flat\n\S+ \S+\|merged\|whatsapp\|\|\n$`, rows(1))
	won := `^` + ravi.data()["leadId"].(string) + `\|\S+ \S+\|0.0000\|`
	for i, want := range []string{
		won + `website\n$`, won + `\S+ \S+\|created\|website\|\|diwali\n$`, `^2026-01-31\|\|diwali\|12\.50*\n$`,
	} {
		row := regexp.MustCompile(want)
		require.Eventually(t, func() bool { return row.MatchString(rows(2 + i)) }, time.Minute, 100*time.Millisecond, want)
	}
}
