package systemtest

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	settings["LEADLOG_RATE_LIMIT"], settings["LEADLOG_RATE_BURST"] = "0.001", "1"
	unreachable := newWitness(t, "away.example.com")
	unreachable.Close()
	settings["LEADLOG_WITNESSES"] = unreachable.key() + "=" + unreachable.URL
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	require.Equal(t, 201, mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210"}`).status)
	require.Equal(t, 429, mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210"}`).status)
	var reported string
	for _, line := range []string{
		`leadlog_http_requests_total\{method="POST",route="/api/v1/crm/leads",status="201"\} 1`,
		`leadlog_rate_limited_total\{limit="capture"\} 1`, `leadlog_rate_limited_total\{limit="credentials"\} 0`,
		`leadlog_append_seconds_count\{outcome="stored"\} [1-9]`,
		`leadlog_append_seconds_count\{outcome="conflict"\} 0`,
		`leadlog_pool_connections_max\{pool="views"\} [1-9]`,
		`leadlog_projection_lag_positions\{projector="lead"\} 0`,
		`leadlog_projection_lag_seconds\{projector="lead"\} 0`,
		`leadlog_witness_refuses\{witness="away.example.com"\} 1`, `leadlog_log_tree_size\{of="checkpoint"\} 0`,
		`leadlog_build_info\{commit="[^"]+",go="go1\.`,
	} {
		require.Eventually(t, func() bool {
			reported = scrape(t, base)
			return regexp.MustCompile(`(?m)^` + line).MatchString(reported)
		}, soon, 20*time.Millisecond, "no line %s", line)
	}

	// Every metric of the alerts and of the dashboard exists.
	asked := regexp.MustCompile(`\bleadlog_[a-z_]+`)
	names := map[string]bool{}
	for _, file := range []string{
		"../../../deploy/prometheus/alerts.yaml", "../../../deploy/grafana/dashboards/leadlog.json",
	} {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range asked.FindAllString(string(raw), -1) {
			names[name] = true
		}
	}
	require.Greater(t, len(names), 15)
	for name := range names {
		require.Regexp(t, `(?m)^`+name+`[{ ]`, reported)
	}
}
