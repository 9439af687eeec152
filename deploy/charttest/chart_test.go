// Package charttest tests the Helm chart with Helm itself, and with the types of the Kubernetes API. It is a module of
// its own, so that the service has none of their dependencies. Compiling them takes minutes, so make system runs it.
package charttest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = "../helm"
	oldest   = "1.27.0" // the chart's kubeVersion
)

// required are the values without which the chart renders nothing.
const required = `secret: leadlog-keys`

// options are values that a user may add, in any combination.
var options = []string{
	`
replicas: 1
podDisruptionBudget: { maxUnavailable: 50% }
`, `
image: { tag: 1.2.3, pullPolicy: Always }
imagePullSecrets: [{ name: registry }]
ownerSecret: leadlog-owner
`, `
settings: { LEADLOG_BASE_PATH: /crm/ }
`, `
settings:
  LEADLOG_EVENTSTORE_URL: esdb://eventstore:2113?tls=false
  LEADLOG_RATE_BURST: 1000000
  LEADLOG_RATE_LIMIT: 0.5
  LEADLOG_WEBHOOK_ALLOW_PRIVATE: true
service: { port: 8443, annotations: { example.com/a: "b" } }
`, `
settings: { LEADLOG_TRUSTED_PROXIES: 10.0.0.0/8 }
ingress: { enabled: true, host: crm.example.com }
`, `
ingress: { className: nginx, tlsSecret: leadlog-tls, annotations: { example.com/body-size: 40m } }
`, `
monitoring: { enabled: true }
`, `
monitoring: { labels: { release: prometheus } }
`, `
resources: { requests: { cpu: "1", memory: 1Gi }, limits: { memory: 2Gi } }
nodeSelector: { kubernetes.io/arch: amd64 }
tolerations: [{ key: dedicated, operator: Equal, value: crm, effect: NoSchedule }]
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: topology.kubernetes.io/zone
        labelSelector: { matchLabels: { app.kubernetes.io/name: leadlog } }
`,
}

// values merges the required values with those options whose bit is set.
func values(t *testing.T, chosen int) map[string]any {
	t.Helper()
	all := map[string]any{}
	for i, text := range append([]string{required}, options...) {
		if i > 0 && chosen&(1<<(i-1)) == 0 {
			continue
		}
		some, err := loader.LoadValues(strings.NewReader(text))
		require.NoError(t, err)
		all = loader.MergeMaps(all, some)
	}
	return all
}

func kubeVersions(t *testing.T) []*common.KubeVersion {
	t.Helper()
	first, err := common.ParseKubeVersion(oldest)
	require.NoError(t, err)
	return []*common.KubeVersion{first, &common.DefaultCapabilities.KubeVersion}
}

// As helm lint --strict: warnings fail too.
func TestChart_Lint(t *testing.T) {
	t.Parallel()
	for _, chosen := range []int{0, 1<<len(options) - 1} {
		for _, version := range kubeVersions(t) {
			linted := lint.RunAll(chartDir, values(t, chosen), "crm", lint.WithKubeVersion(version))
			for _, message := range linted.Messages {
				require.Less(t, message.Severity, support.WarningSev, "Kubernetes %s: %s", version, message)
			}
		}
	}
}

// objects are what a release consists of.
type objects struct {
	deployment *appsv1.Deployment
	budget     *policyv1.PodDisruptionBudget
	migration  *batchv1.Job
	service    *corev1.Service
	ingress    *networkingv1.Ingress // nil without
	monitor    *serviceMonitor       // nil without
}

// serviceMonitor is the part of the Prometheus Operator's type that the chart uses. The Kubernetes API does not have
// it.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel  string               `json:"jobLabel"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// template is helm template. It returns the documents of each file.
func template(t *testing.T, values map[string]any, version *common.KubeVersion) (map[string]string, error) {
	t.Helper()
	chart, err := loader.LoadDir(chartDir)
	require.NoError(t, err)
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	all, err := util.ToRenderValues(chart, values,
		common.ReleaseOptions{Name: "crm", Namespace: "sales", Revision: 1, IsInstall: true}, capabilities)
	require.NoError(t, err)
	return engine.Render(chart, all)
}

// render decodes what helm template prints. Unknown and repeated fields, and unknown types, fail.
func render(t *testing.T, chosen int, version *common.KubeVersion) (made objects) {
	t.Helper()
	files, err := template(t, values(t, chosen), version)
	require.NoError(t, err)
	for file, content := range files {
		documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(content)))
		for {
			document, err := documents.Read()
			if err == io.EOF {
				break
			}
			require.NoError(t, err, file)
			made.add(t, document)
		}
	}
	require.NotNil(t, made.deployment)
	require.NotNil(t, made.budget)
	require.NotNil(t, made.migration)
	require.NotNil(t, made.service)
	return made
}

var decoder = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

func (o *objects) add(t *testing.T, document []byte) {
	t.Helper()
	var kind metav1.TypeMeta
	require.NoError(t, yaml.Unmarshal(document, &kind), "%s", document)
	switch kind.Kind {
	case "": // comments alone
		require.Empty(t, bytes.TrimSpace(regexp.MustCompile(`(?m)^(#.*|---)$`).ReplaceAll(document, nil)))
		return
	case "ServiceMonitor":
		require.Equal(t, "monitoring.coreos.com/v1", kind.APIVersion)
		require.Nil(t, o.monitor)
		o.monitor = &serviceMonitor{}
		require.NoError(t, yaml.UnmarshalStrict(document, o.monitor), "%s", document)
		return
	}
	object, _, err := decoder.Decode(document, nil, nil)
	require.NoError(t, err, "%s", document)
	switch object := object.(type) {
	case *appsv1.Deployment:
		require.Nil(t, o.deployment)
		o.deployment = object
	case *policyv1.PodDisruptionBudget:
		require.Nil(t, o.budget)
		o.budget = object
	case *batchv1.Job:
		require.Nil(t, o.migration)
		o.migration = object
	case *corev1.Service:
		require.Nil(t, o.service)
		o.service = object
	case *networkingv1.Ingress:
		require.Nil(t, o.ingress)
		o.ingress = object
	default:
		t.Fatalf("%T: no test checks what it relates to", object)
	}
}

// A decoder that is not strict would let every chart pass.
func TestDecoder_RejectsUnknownAndRepeatedFields(t *testing.T) {
	t.Parallel()
	const service = "apiVersion: v1\nkind: Service\nmetadata: { name: crm }\nspec:\n"
	for _, wrong := range []string{
		"  prots: []\n", "  type: ClusterIP\n  type: NodePort\n", "  ports: [{ port: http }]\n",
	} {
		_, _, err := decoder.Decode([]byte(service+wrong), nil, nil)
		require.Error(t, err, wrong)
	}
	_, _, err := decoder.Decode([]byte(service+"  type: ClusterIP\n"), nil, nil)
	require.NoError(t, err)
	require.Error(t, yaml.UnmarshalStrict([]byte("spec: { endpoint: [] }\n"), &serviceMonitor{}))
}

// Values with which the chart would install something else than was meant.
func TestChart_RefusedValues(t *testing.T) {
	t.Parallel()
	for given, message := range map[string]string{
		`{}`: "secret: the name of the Secret",
		// All clients behind the ingress would share the limits of one address.
		`{ secret: keys, ingress: { enabled: true, host: crm.example.com } }`: "settings.LEADLOG_TRUSTED_PROXIES",
		`{ secret: keys, settings: { LEADLOG_ADDR: "127.0.0.1:80" } }`:        "settings.LEADLOG_ADDR",
	} {
		values, err := loader.LoadValues(strings.NewReader(given))
		require.NoError(t, err)
		_, err = template(t, values, &common.DefaultCapabilities.KubeVersion)
		require.ErrorContains(t, err, message)
	}
}

func TestChart_Defaults(t *testing.T) {
	t.Parallel()
	made := render(t, 0, &common.DefaultCapabilities.KubeVersion)
	require.Nil(t, made.ingress)
	require.Nil(t, made.monitor)
	var chart struct{ AppVersion string }
	described, err := os.ReadFile(chartDir + "/Chart.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(described, &chart))
	for _, pod := range []corev1.PodSpec{made.deployment.Spec.Template.Spec, made.migration.Spec.Template.Spec} {
		require.False(t, *pod.AutomountServiceAccountToken)
		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		require.True(t, *pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
		require.False(t, *pod.Containers[0].SecurityContext.AllowPrivilegeEscalation)
		require.Equal(t, "ghcr.io/leadlog/leadlog:"+chart.AppVersion, pod.Containers[0].Image)
		require.Equal(t, "leadlog-keys", pod.Containers[0].EnvFrom[0].SecretRef.Name)
	}
	require.EqualValues(t, 2, *made.deployment.Spec.Replicas)
	require.EqualValues(t, 1, made.budget.Spec.MaxUnavailable.IntVal)
	require.Equal(t, []string{"serve"}, made.container().Args)
	startup := made.container().StartupProbe
	require.Greater(t, *made.deployment.Spec.ProgressDeadlineSeconds, startup.PeriodSeconds*startup.FailureThreshold,
		"a long startup is not a failed rollout")
	require.EqualValues(t, 60, *made.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds)
	require.Equal(t, "10s", made.env()["LEADLOG_DRAIN"])
	require.Equal(t, []string{"migrate"}, made.migration.Spec.Template.Spec.Containers[0].Args)
	require.Equal(t, "pre-install,pre-upgrade", made.migration.Annotations["helm.sh/hook"])
}

func TestChart_OwnerSecretAndNumbers(t *testing.T) {
	t.Parallel()
	made := render(t, 1<<len(options)-1, &common.DefaultCapabilities.KubeVersion)
	secrets := made.migration.Spec.Template.Spec.Containers[0].EnvFrom
	require.Len(t, secrets, 2, "the migration needs the address of a separate log too")
	require.Equal(t, "leadlog-owner", secrets[1].SecretRef.Name, "the last of two values counts")
	for name, value := range map[string]string{
		"LEADLOG_RATE_BURST": "1000000", "LEADLOG_RATE_LIMIT": "0.5", "LEADLOG_WEBHOOK_ALLOW_PRIVATE": "true",
	} {
		require.Equal(t, value, made.env()[name])
	}
}

func TestRunbook_ForwardsPublicRoutes(t *testing.T) {
	t.Parallel()
	runbook, err := os.ReadFile("../docs/runbook.md")
	require.NoError(t, err)
	_, forwarded, _ := strings.Cut(string(runbook), "Forward ")
	forwarded, _, _ = strings.Cut(forwarded, ". ")
	for _, route := range publicRoutes(t) {
		first, _, _ := strings.Cut(strings.TrimPrefix(route.path, "/"), "/")
		require.Equal(t, !route.inside, strings.Contains(forwarded, "`/"+first+"`"), route.path)
	}
}

func TestChart_AnyValues(t *testing.T) {
	t.Parallel()
	routes := publicRoutes(t)
	for _, version := range kubeVersions(t) {
		for chosen := range 1 << len(options) {
			ok := t.Run(fmt.Sprintf("%s options %b", version, chosen), func(t *testing.T) {
				made := render(t, chosen, version)
				made.requirePods(t)
				made.requireService(t)
				made.requireIngress(t, routes)
				made.requireMonitor(t)
			})
			if !ok { // others would fail for the same reason
				return
			}
		}
	}
}

// route is a path of the API's description, with an example in place of each parameter.
type route struct {
	path   string
	inside bool // for the cluster only
}

func publicRoutes(t *testing.T) (routes []route) {
	t.Helper()
	raw, err := os.ReadFile("../../httpapi/openapi/openapi.json")
	require.NoError(t, err)
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(raw, &document))
	inside := map[string]bool{"/metrics": true, "/healthz": true, "/readyz": true}
	for path := range document.Paths {
		routes = append(routes, route{regexp.MustCompile(`\{[^}]+\}`).ReplaceAllString(path, "x"), inside[path]})
	}
	require.Greater(t, len(routes), len(inside)+40)
	// pages, which the description does not have
	return append(routes, route{path: "/console"}, route{path: "/console/leads"})
}

// base is the prefix of every path.
func (o *objects) base() string { return strings.TrimSuffix(o.env()["LEADLOG_BASE_PATH"], "/") }

func (o *objects) container() corev1.Container { return o.deployment.Spec.Template.Spec.Containers[0] }

func (o *objects) env() map[string]string {
	env := map[string]string{}
	for _, variable := range o.container().Env {
		env[variable.Name] = variable.Value
	}
	return env
}

// port returns the number of a port of the container, by name or number; 0 for none.
func (o *objects) port(named intstr.IntOrString) int32 {
	for _, port := range o.container().Ports {
		if named.Type == intstr.String && port.Name == named.StrVal || port.ContainerPort == named.IntVal {
			return port.ContainerPort
		}
	}
	return 0
}

// selects reports whether a selector that is not empty selects these labels.
func selects(t *testing.T, selector *metav1.LabelSelector, has map[string]string) bool {
	t.Helper()
	of, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	require.False(t, of.Empty())
	return of.Matches(labels.Set(has))
}

// requirePods requires that the selectors select the pods that serve, and not the migration's, and that the probes ask
// for routes that exist.
func (o *objects) requirePods(t *testing.T) {
	t.Helper()
	serving, migrating := o.deployment.Spec.Template.Labels, o.migration.Spec.Template.Labels
	selectors := []*metav1.LabelSelector{
		o.deployment.Spec.Selector, o.budget.Spec.Selector, {MatchLabels: o.service.Spec.Selector},
	}
	for _, constraint := range o.deployment.Spec.Template.Spec.TopologySpreadConstraints {
		selectors = append(selectors, constraint.LabelSelector)
	}
	for _, selector := range selectors {
		require.True(t, selects(t, selector, serving))
		require.False(t, selects(t, selector, migrating))
	}
	for _, pod := range []corev1.PodSpec{o.deployment.Spec.Template.Spec, o.migration.Spec.Template.Spec} {
		require.Len(t, pod.Containers, 1)
		require.NotContains(t, pod.Containers[0].Image, " ")
		require.NotEmpty(t, pod.Containers[0].EnvFrom)
		for _, from := range pod.Containers[0].EnvFrom {
			require.NotEmpty(t, from.SecretRef.Name)
		}
		require.NotEmpty(t, pod.Containers[0].Resources.Requests)
	}
	require.Len(t, o.env(), len(o.container().Env), "each setting once")
	_, listens, _ := strings.Cut(o.env()["LEADLOG_ADDR"], ":")
	require.Equal(t, listens, fmt.Sprint(o.port(intstr.FromString("http"))))
	for probe, path := range map[*corev1.Probe]string{
		o.container().StartupProbe: "/readyz", o.container().LivenessProbe: "/healthz",
		o.container().ReadinessProbe: "/healthz",
	} {
		require.NotNil(t, probe)
		require.Equal(t, o.base()+path, probe.HTTPGet.Path)
		require.NotZero(t, o.port(probe.HTTPGet.Port))
	}
}

// requireService requires that each port of the service is one of the container.
func (o *objects) requireService(t *testing.T) {
	t.Helper()
	require.NotEmpty(t, o.service.Spec.Ports)
	for _, port := range o.service.Spec.Ports {
		require.NotZero(t, o.port(port.TargetPort), port.Name)
	}
}

func (o *objects) servicePort(name string) bool {
	for _, port := range o.service.Spec.Ports {
		if port.Name == name {
			return true
		}
	}
	return false
}

// requireIngress requires that the ingress lets public routes through to the service, and no others.
func (o *objects) requireIngress(t *testing.T, routes []route) {
	t.Helper()
	if o.ingress == nil {
		return
	}
	require.Len(t, o.ingress.Spec.Rules, 1)
	rule := o.ingress.Spec.Rules[0]
	for _, path := range rule.HTTP.Paths {
		require.Equal(t, networkingv1.PathTypePrefix, *path.PathType)
		require.Equal(t, o.service.Name, path.Backend.Service.Name)
		require.True(t, o.servicePort(path.Backend.Service.Port.Name))
	}
	for _, route := range routes {
		through := false
		for _, path := range rule.HTTP.Paths { // Prefix compares whole elements of the path
			through = through || strings.HasPrefix(o.base()+route.path+"/", path.Path+"/")
		}
		require.Equal(t, !route.inside, through, route.path)
	}
	for _, tls := range o.ingress.Spec.TLS {
		require.Equal(t, []string{rule.Host}, tls.Hosts)
		require.NotEmpty(t, tls.SecretName)
	}
}

// requireMonitor requires that the monitor scrapes the service.
func (o *objects) requireMonitor(t *testing.T) {
	t.Helper()
	if o.monitor == nil {
		return
	}
	require.True(t, selects(t, &o.monitor.Spec.Selector, o.service.Labels))
	require.Contains(t, o.service.Labels, o.monitor.Spec.JobLabel)
	require.Len(t, o.monitor.Spec.Endpoints, 1)
	require.True(t, o.servicePort(o.monitor.Spec.Endpoints[0].Port))
	require.Equal(t, o.base()+"/metrics", o.monitor.Spec.Endpoints[0].Path)
}
