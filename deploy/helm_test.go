package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// object is the part of a Kubernetes object that the tests read.
type object struct {
	Kind     string
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct {
		Replicas    int
		Unavailable int `yaml:"maxUnavailable"`
		Deadline    int `yaml:"progressDeadlineSeconds"`
		Selector    any
		Ports       []any
		Endpoints   []struct{ Path string }
		Rules       []struct {
			HTTP struct{ Paths []struct{ Path string } }
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
	}
}

type pod struct {
	AutomountServiceAccountToken  *bool          `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds int            `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               map[string]any `yaml:"securityContext"`
	Containers                    []struct {
		Image   string
		Args    []string
		Env     []struct{ Name, Value string }
		EnvFrom []struct {
			SecretRef struct{ Name string } `yaml:"secretRef"`
		} `yaml:"envFrom"`
		SecurityContext map[string]any `yaml:"securityContext"`
		StartupProbe    probe          `yaml:"startupProbe"`
		ReadinessProbe  probe          `yaml:"readinessProbe"`
	}
}

type probe struct {
	HTTPGet          struct{ Path string } `yaml:"httpGet"`
	PeriodSeconds    int                   `yaml:"periodSeconds"`
	FailureThreshold int                   `yaml:"failureThreshold"`
}

// render is helm template, with the functions that the chart uses. The tests in charttest use Helm itself, which takes
// minutes to compile.
func render(t *testing.T, change func(values map[string]any)) (map[string]object, error) {
	t.Helper()
	read := func(name string) (content map[string]any) {
		require.NoError(t, yaml.Unmarshal([]byte(text(t, filepath.Join("helm", name))), &content))
		return content
	}
	values, chart := read("values.yaml"), read("Chart.yaml")
	change(values)
	var chartTemplates *template.Template
	chartTemplates = template.New("chart").Option("missingkey=zero").Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out bytes.Buffer
			err := chartTemplates.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"required": func(message string, value any) (any, error) {
			if value == nil || value == "" {
				return nil, errors.New(message)
			}
			return value, nil
		},
		"default": func(otherwise, value any) any {
			if value == nil || reflect.ValueOf(value).IsZero() {
				return otherwise
			}
			return value
		},
		"toYaml": func(value any) (string, error) {
			out, err := yaml.Marshal(value)
			return strings.TrimRight(string(out), "\n"), err
		},
		"nindent": func(n int, text string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"toJson": func(value any) (string, error) {
			out, err := json.Marshal(value)
			return string(out), err
		},
		"kindIs":     func(kind string, value any) bool { return reflect.ValueOf(value).Kind().String() == kind },
		"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
		"quote":      func(value any) string { return strconv.Quote(fmt.Sprint(value)) },
		"list":       func(items ...any) []any { return items },
	})
	_, err := chartTemplates.ParseGlob("helm/templates/*")
	require.NoError(t, err)
	data := map[string]any{
		"Values": values, "Release": map[string]any{"Name": "crm"},
		"Chart": map[string]any{"AppVersion": chart["appVersion"]},
	}
	objects := map[string]object{}
	for _, file := range []string{"deployment.yaml", "migrate.yaml", "service.yaml", "monitoring.yaml"} {
		var out bytes.Buffer
		if err := chartTemplates.ExecuteTemplate(&out, file, data); err != nil {
			return nil, err
		}
		text := strings.ReplaceAll(out.String(), "<no value>", "")
		for _, document := range strings.Split(text, "\n---\n") {
			var o object
			require.NoError(t, yaml.Unmarshal([]byte(document), &o), "%s", document)
			if o.Kind != "" {
				objects[o.Kind] = o
			}
		}
	}
	return objects, nil
}

func TestChart_RollingUpdate(t *testing.T) {
	t.Parallel()
	objects, err := render(t, func(values map[string]any) { values["secret"] = "leadlog-keys" })
	require.NoError(t, err)
	require.Len(t, objects, 4)
	for _, kind := range []string{"Deployment", "Job"} {
		spec := objects[kind].Spec.Template.Spec
		require.False(t, *spec.AutomountServiceAccountToken, kind)
		require.Equal(t, true, spec.SecurityContext["runAsNonRoot"], kind)
		require.Len(t, spec.Containers, 1)
		container := spec.Containers[0]
		require.Equal(t, "ghcr.io/leadlog/leadlog:0.1.0", strings.TrimSpace(container.Image))
		require.Equal(t, "leadlog-keys", container.EnvFrom[0].SecretRef.Name)
		require.Equal(t, true, container.SecurityContext["readOnlyRootFilesystem"], kind)
		require.Equal(t, false, container.SecurityContext["allowPrivilegeEscalation"], kind)
	}
	deployment := objects["Deployment"].Spec
	require.Equal(t, 2, deployment.Replicas)
	require.Equal(t, []string{"serve"}, deployment.Template.Spec.Containers[0].Args)
	startup := deployment.Template.Spec.Containers[0].StartupProbe
	require.Equal(t, "/readyz", startup.HTTPGet.Path, "an upgrade waits for the views")
	require.Greater(t, deployment.Deadline, startup.PeriodSeconds*startup.FailureThreshold,
		"a long startup is not a failed rollout")
	require.Equal(t, "/healthz", deployment.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path,
		"a stopped view must not stop captures")
	require.Equal(t, 60, deployment.Template.Spec.TerminationGracePeriodSeconds)
	require.Contains(t, deployment.Template.Spec.Containers[0].Env,
		struct{ Name, Value string }{"LEADLOG_DRAIN", "10s"})
	require.Equal(t, 1, objects["PodDisruptionBudget"].Spec.Unavailable)
	labels := map[string]any{"matchLabels": map[string]any{}}
	for name, value := range deployment.Template.Metadata.Labels {
		labels["matchLabels"].(map[string]any)[name] = value
	}
	require.Equal(t, labels, deployment.Selector)
	require.Equal(t, labels, objects["PodDisruptionBudget"].Spec.Selector)
	require.Equal(t, labels["matchLabels"], objects["Service"].Spec.Selector)
	require.NotEqual(t, deployment.Template.Metadata.Labels, objects["Job"].Spec.Template.Metadata.Labels,
		"the migration gets no requests")
	require.Equal(t, []string{"migrate"}, objects["Job"].Spec.Template.Spec.Containers[0].Args)
	require.Equal(t, "pre-install,pre-upgrade", objects["Job"].Metadata.Annotations["helm.sh/hook"])
}

func TestChart_RequiresSecretAndHidesMetrics(t *testing.T) {
	t.Parallel()
	_, err := render(t, func(map[string]any) {})
	require.ErrorContains(t, err, "secret: the name of the Secret")
	objects, err := render(t, func(values map[string]any) {
		values["secret"], values["ownerSecret"] = "leadlog-keys", "leadlog-owner"
		values["settings"].(map[string]any)["LEADLOG_BASE_PATH"] = "/crm/"
		values["monitoring"].(map[string]any)["enabled"] = true
		ingress := values["ingress"].(map[string]any)
		ingress["enabled"], ingress["host"] = true, "crm.example.com"
		values["settings"].(map[string]any)["LEADLOG_TRUSTED_PROXIES"] = "10.0.0.0/8"
	})
	require.NoError(t, err)
	secrets := objects["Job"].Spec.Template.Spec.Containers[0].EnvFrom
	require.Len(t, secrets, 2, "the migration needs the address of a separate log too")
	require.Equal(t, "leadlog-owner", secrets[1].SecretRef.Name, "the last of two values counts")
	require.Equal(t, "/crm/readyz", objects["Deployment"].Spec.Template.Spec.Containers[0].StartupProbe.HTTPGet.Path)
	require.Equal(t, "/crm/metrics", objects["ServiceMonitor"].Spec.Endpoints[0].Path)
	var document struct{ Paths map[string]any }
	require.NoError(t, json.Unmarshal([]byte(text(t, "../httpapi/openapi/openapi.json")), &document))
	require.Contains(t, document.Paths, "/in/{intakeId}")
	_, forwarded, _ := strings.Cut(text(t, "docs/runbook.md"), "Forward ")
	forwarded, _, _ = strings.Cut(forwarded, ". ")
	for route := range document.Paths {
		inside := slices.Contains([]string{"/metrics", "/healthz", "/readyz"}, route)
		require.Equal(t, !inside,
			slices.ContainsFunc(objects["Ingress"].Spec.Rules[0].HTTP.Paths, func(p struct{ Path string }) bool {
				return strings.HasPrefix("/crm"+route+"/", p.Path+"/")
			}), route)
		first, _, _ := strings.Cut(strings.TrimPrefix(route, "/"), "/")
		require.Equal(t, !inside, strings.Contains(forwarded, "`/"+first+"`"), "the runbook forwards %s", route)
	}
}

// Without LEADLOG_TRUSTED_PROXIES, all clients behind the ingress would share the limits of one address.
func TestChart_IngressNeedsTrustedProxies(t *testing.T) {
	t.Parallel()
	_, err := render(t, func(values map[string]any) {
		values["secret"] = "leadlog-keys"
		ingress := values["ingress"].(map[string]any)
		ingress["enabled"], ingress["host"] = true, "crm.example.com"
	})
	require.ErrorContains(t, err, "settings.LEADLOG_TRUSTED_PROXIES")
}

// Helm reads numbers in values files as floats.
func TestChart_NumericSettings(t *testing.T) {
	t.Parallel()
	objects, err := render(t, func(values map[string]any) {
		values["secret"] = "leadlog-keys"
		settings := values["settings"].(map[string]any)
		settings["LEADLOG_RATE_BURST"], settings["LEADLOG_RATE_LIMIT"] = float64(1_000_000), 0.5
		settings["LEADLOG_WEBHOOK_ALLOW_PRIVATE"] = true
	})
	require.NoError(t, err)
	env := map[string]string{}
	for _, setting := range objects["Deployment"].Spec.Template.Spec.Containers[0].Env {
		env[setting.Name] = setting.Value
	}
	require.Equal(t, "1000000", env["LEADLOG_RATE_BURST"])
	require.Equal(t, "0.5", env["LEADLOG_RATE_LIMIT"])
	require.Equal(t, "true", env["LEADLOG_WEBHOOK_ALLOW_PRIVATE"])
}
