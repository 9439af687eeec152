package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// promtool runs promtool in deploy/prometheus. make test installs it when it is missing.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		path, err = filepath.Abs("../bin/promtool")
		require.NoError(t, err)
		require.FileExists(t, path, "promtool is missing: run make promtool")
	}
	command := exec.CommandContext(t.Context(), path, args...)
	command.Dir = "prometheus"
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

func TestPrometheus_ConfigIsValid(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", "prometheus.yaml")
}

func TestAlerts_Fire(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", "alerts_test.yaml")
}

type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr string
			Labels      map[string]string
		}
	}
}

func alerts(t *testing.T) (all alertRules) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text(t, "prometheus/alerts.yaml")), &all))
	require.NotEmpty(t, all.Groups)
	return all
}

func TestAlerts_HaveSeverity(t *testing.T) {
	t.Parallel()
	for _, group := range alerts(t).Groups {
		for _, rule := range group.Rules {
			require.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"], rule.Alert)
		}
	}
}

func TestAlerts_MatchRunbook(t *testing.T) {
	t.Parallel()
	raw := text(t, "docs/runbook.md")
	var listed, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Leadlog[A-Za-z]+)` \\|").FindAllStringSubmatch(raw, -1) {
		listed = append(listed, row[1])
	}
	for _, group := range alerts(t).Groups {
		for _, rule := range group.Rules {
			want = append(want, rule.Alert)
		}
	}
	require.Equal(t, want, listed)
}

// dashboard is the part of Grafana's dashboard format that the test reads.
type dashboard struct {
	Panels []struct {
		ID          int
		Type, Title string
		Description string
		Targets     []struct{ Expr string }
	}
}

func TestDashboard_PanelsAreValid(t *testing.T) {
	t.Parallel()
	var d dashboard
	require.NoError(t,
		json.Unmarshal([]byte(text(t, "grafana/dashboards/leadlog.json")), &d, json.MatchCaseInsensitiveNames(true)))
	variables := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")
	seen := map[int]bool{}
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: panels\n    rules:\n")
	for _, panel := range d.Panels {
		require.False(t, seen[panel.ID], "two panels have one id: %s", panel.Title)
		seen[panel.ID] = true
		if panel.Type == "row" {
			continue
		}
		require.NotEmpty(t, panel.Description, panel.Title)
		require.NotEmpty(t, panel.Targets, panel.Title)
		for i, target := range panel.Targets {
			fmt.Fprintf(&rules, "      - record: panel_%d_%d\n        expr: %q\n", panel.ID, i,
				variables.Replace(target.Expr))
		}
	}
	require.NotRegexp(t, regexp.MustCompile(`\$`), rules.String(), "unknown dashboard variable")
	file := filepath.Join(t.TempDir(), "panels.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o644))
	promtool(t, "check", "rules", file)
}
