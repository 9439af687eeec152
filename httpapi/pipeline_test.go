package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPipeline_AsOfPosition(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	report := func(name, query string) map[string]any {
		t.Helper()
		b.caughtUp()
		return b.as(http.MethodGet, "/api/v1/crm/pipeline/"+name+query, "").is(http.StatusOK).at("data").(map[string]any)
	}
	funnel := func(query string) map[string]float64 {
		t.Helper()
		counts := map[string]float64{}
		for _, row := range report("funnel", query)["rows"].([]any) {
			row := row.(map[string]any)
			counts[row["stage"].(string)+" "+row["source"].(string)] = row["leads"].(float64)
		}
		return counts
	}
	require.Empty(t, funnel(""))
	require.Nil(t, report("time-to-won", "")["medianSeconds"])

	created := b.capture(`{"phone":"9876543210","status":"contacted","metadata":{"source":"website"}}`)
	won := created.at("data", "leadId").(string)
	b.capture(`{"phone":"9876543210","metadata":{"source":"chatbot"}}`).is(http.StatusOK)
	other := b.capture(`{"phone":"9876543211","email":"a@example.com"}`).at("data", "leadId").(string)
	gone := b.capture(`{"phone":"9876543212"}`).at("data", "leadId").(string)
	require.Equal(t, map[string]float64{"contacted website": 1, "new api": 2}, funnel(""))
	asOf := fmt.Sprintf("?asOf=%.0f", report("funnel", "")["asOf"])

	b.as(http.MethodPatch, "/api/v1/crm/leads/"+won, `{"status":"Won"}`).is(http.StatusOK)
	b.as(http.MethodDelete, "/api/v1/crm/leads/"+gone, "").is(http.StatusOK)
	require.Equal(t, map[string]float64{"won website": 1, "new api": 2}, funnel(""), "an erased lead stays counted")
	took := report("time-to-won", "")
	require.EqualValues(t, 1, took["leads"])
	require.NotNil(t, took["medianSeconds"])
	require.EqualValues(t, 1, took["rows"].([]any)[0].(map[string]any)["leads"])
	require.Equal(t, "website", took["sources"].([]any)[0].(map[string]any)["source"])

	b.join(won, other).is(http.StatusOK)
	require.Equal(t, map[string]float64{"won website": 1, "new api": 1}, funnel(""), "a joined lead is part of another")
	b.as(http.MethodPost, "/api/v1/crm/leads/"+won+"/split", `{"phone":"+919876543211"}`).is(http.StatusCreated)
	split := funnel("")
	total := 0.0
	for _, n := range split {
		total += n
	}
	require.EqualValues(t, 3, total, "a split makes a lead: %v", split)

	require.Equal(t, map[string]float64{"contacted website": 1, "new api": 2}, funnel(asOf))
	require.EqualValues(t, 0, report("time-to-won", asOf)["leads"])
	rows := report("arrivals", asOf)["rows"].([]any)
	require.Len(t, rows, 1)
	require.Equal(t, []any{3.0, 1.0}, []any{rows[0].(map[string]any)["created"], rows[0].(map[string]any)["merged"]})

	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format(time.RFC3339)
	require.Empty(t, funnel("?since="+tomorrow))
	require.Empty(t, report("arrivals", "?interval=month&since="+tomorrow)["rows"])
	for query, field := range map[string]string{
		"?asOf=x": "asOf", "?asOf=99999999999": "asOf", "?since=x": "since", "?interval=hour": "interval",
	} {
		for _, name := range []string{"funnel", "arrivals", "time-to-won"} {
			r := b.as(http.MethodGet, "/api/v1/crm/pipeline/"+name+query, "").is(http.StatusBadRequest)
			require.Equal(t, []string{field}, r.fieldsNamed(), name)
		}
	}

	// The console draws them, each with a table and the call that gives the same answer later.
	page := b.get("/console/pipeline")
	require.Equal(t, http.StatusOK, page.status)
	for _, text := range []string{
		`<th scope="row">won</th><td class="num">1</td>`, "New leads <strong>3</strong>", "Merged <strong>1</strong>",
		"/api/v1/crm/pipeline/time-to-won?asOf=", `<th scope="row">under 1 day</th><td class="num">1</td>`,
	} {
		require.Contains(t, page.body, text)
	}
	earlier := b.get("/console/pipeline" + asOf)
	require.Contains(t, earlier.body, `<th scope="row">contacted</th><td class="num">1</td>`)
	require.Contains(t, earlier.body, "No lead was won in this period.")
	require.Equal(t, 3, strings.Count(earlier.body, "As of log position "+strings.TrimPrefix(asOf, "?asOf=")+": "))
	require.Equal(t, http.StatusBadRequest, b.get("/console/pipeline?asOf=x").status)
}
