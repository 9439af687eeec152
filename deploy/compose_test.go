// Package deploy tests what is in this directory as far as that goes without a container engine.
package deploy

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type composition struct {
	Services map[string]service
	Networks map[string]any
	Volumes  map[string]any
}

type service struct {
	Image       string
	Profiles    []string
	Environment map[string]string
	Entrypoint  []string
	Command     []string
	Volumes     []string
	Networks    any
	Healthcheck struct{ Test []string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

func compose(t *testing.T) composition {
	t.Helper()
	var c composition
	require.NoError(t, yaml.Unmarshal([]byte(text(t, "compose.yaml")), &c))
	return c
}

func TestTheServicesOfEveryProfileHaveWhatTheyNeed(t *testing.T) {
	t.Parallel()
	c := compose(t)
	for profile, want := range map[string][]string{
		"":        {"grants", "leadlog", "migrate", "postgres", "roles"},
		"node":    {"certificates", "grants", "leadlog", "migrate", "node0", "postgres", "roles"},
		"watch":   {"grafana", "grants", "leadlog", "migrate", "postgres", "prometheus", "roles"},
		"cluster": {"certificates", "grants", "leadlog", "migrate", "node1", "node2", "node3", "postgres", "roles"},
	} {
		started := func(name string) bool {
			s := c.Services[name]
			return len(s.Profiles) == 0 || slices.Contains(s.Profiles, profile)
		}
		var got []string
		for name, s := range c.Services {
			if !started(name) {
				continue
			}
			got = append(got, name)
			require.NotEmpty(t, s.Image, name)
			for other := range s.DependsOn {
				require.True(t, started(other), "profile %q: %s needs %s", profile, name, other)
			}
			for _, mount := range s.Volumes {
				volume, _, _ := strings.Cut(mount, ":")
				if strings.HasPrefix(volume, "./") {
					_, err := os.Stat(volume)
					require.NoError(t, err, name)
					continue
				}
				require.Contains(t, c.Volumes, volume, name)
			}
		}
		slices.Sort(got)
		require.Equal(t, want, got, "profile %q", profile)
	}
}

// The service's role is made by roles.sql, before the migration, and gets its rights after it.
func TestCompose_ServiceIsNoSuperuser(t *testing.T) {
	t.Parallel()
	services := compose(t).Services
	for name, role := range map[string]string{"leadlog": "leadlog_writer", "migrate": "leadlog_owner"} {
		require.Regexp(t, `^postgres://`+role+`:`, services[name].Environment["LEADLOG_DATABASE_URL"], name)
		require.Contains(t, text(t, "roles.sql"), "'"+role+"'")
	}
	require.NotContains(t, services["postgres"].Environment, "POSTGRES_USER", "the superuser's name is the image's")
	for name, after := range map[string]string{"migrate": "roles", "grants": "migrate", "leadlog": "grants"} {
		require.Equal(t, "service_completed_successfully", services[name].DependsOn[after].Condition, name)
	}
	require.Equal(t, services["roles"].Command, services["grants"].Command)
}

// How much memory there is differs. What the log of a long past costs was measured with the rest.
func TestPostgreSQLIsSetUpAsTheRunbookAsks(t *testing.T) {
	t.Parallel()
	runbook := text(t, "docs/runbook.md")
	measured := text(t, "../cmd/leadbench/growth.go")
	var names []string
	for _, argument := range compose(t).Services["postgres"].Command {
		name, value, is := strings.Cut(argument, "=")
		if !is {
			continue
		}
		names = append(names, name)
		if name == "shared_buffers" {
			continue
		}
		require.Contains(t, runbook, "   "+name+" = "+value)
		if strings.HasSuffix(name, "wal_size") || strings.HasPrefix(name, "checkpoint") {
			require.Contains(t, measured, `"`+argument+`"`)
		}
	}
	want := []string{"shared_buffers", "max_wal_size", "min_wal_size", "checkpoint_timeout", "shared_preload_libraries"}
	require.Equal(t, want, names)
}

// While a container of postgres makes its database, its server listens at the socket alone, and is stopped after that. A
// migration that begins then fails, and with it the first start of all.
func TestPostgreSQLIsHealthyWhenOthersReachIt(t *testing.T) {
	t.Parallel()
	check := compose(t).Services["postgres"].Healthcheck.Test
	require.Len(t, check, 2)
	require.Regexp(t, `^pg_isready -h 127\.0\.0\.1 `, check[1])
	require.Equal(t, "service_healthy", compose(t).Services["roles"].DependsOn["postgres"].Condition)
}

// A server that is given an empty password takes one that everybody knows. Compose can demand a variable only of all
// profiles alike, so the guards are in the containers.
func TestNothingStartsWithoutItsPassword(t *testing.T) {
	t.Parallel()
	c := compose(t)
	for guard, variable := range map[string]string{"grafana": "GF_SECURITY_ADMIN_PASSWORD", "certificates": "KURRENTDB_PASSWORD"} {
		require.Contains(t, c.Services[guard].Environment, variable)
		run := strings.Split(strings.ReplaceAll(strings.Join(append(c.Services[guard].Entrypoint, c.Services[guard].Command...), "\x00"), "$$", "$"), "\x00")
		for password, refused := range map[string]bool{"": true, "a password": false} {
			start := exec.CommandContext(t.Context(), run[0], run[1:]...)
			start.Env = []string{"PATH=", variable + "=" + password} // so it gets no further than the guard
			said, err := start.CombinedOutput()
			require.Error(t, err, "what it would start is not on this machine")
			require.Equal(t, refused, strings.HasPrefix(string(said), "set "), "%s: %s", guard, said)
		}
	}
	for name, s := range c.Services {
		if strings.HasPrefix(name, "node") {
			require.Contains(t, s.DependsOn, "certificates", name)
		}
	}
}

func TestEveryNodeOfTheClusterKnowsTheOthers(t *testing.T) {
	t.Parallel()
	c := compose(t)
	at := map[string]string{"node1": "172.30.240.11", "node2": "172.30.240.12", "node3": "172.30.240.13"}
	for name, address := range at {
		environment := c.Services[name].Environment
		require.Equal(t, "3", environment["KURRENTDB_CLUSTER_SIZE"])
		require.Equal(t, name, environment["KURRENTDB_ADVERTISE_HOST_TO_CLIENT_AS"])
		require.Equal(t, address, environment["KURRENTDB_REPLICATION_IP"])
		require.Equal(t, "/certs/"+name+"/node.crt", environment["KURRENTDB_CERTIFICATE_FILE"])
		require.Equal(t, "/certs/ca", environment["KURRENTDB_TRUSTED_ROOT_CERTIFICATES_PATH"])
		for other, seed := range at {
			require.Equal(t, other != name, strings.Contains(environment["KURRENTDB_GOSSIP_SEED"], seed+":2113"), "%s of %s", other, name)
		}
	}
}

// Where docker compose is, it has the last word.
func TestDockerComposeUnderstandsTheFile(t *testing.T) {
	t.Parallel()
	if exec.Command("docker", "compose", "version").Run() != nil {
		t.Log("no docker compose on this machine: the file was only parsed")
		return
	}
	for _, profile := range []string{"node", "cluster", "watch"} {
		config := exec.CommandContext(t.Context(), "docker", "compose", "-f", "compose.yaml", "--profile", profile, "config", "--quiet")
		config.Env = append(os.Environ(), "POSTGRES_PASSWORD=p", "OWNER_PASSWORD=o", "WRITER_PASSWORD=w", "LEADLOG_JWT_SECRET=j", "LEADLOG_CLAIM_KEY=c", "LEADLOG_SEAL_KEY=s", "LEADLOG_TREE_KEY=t")
		output, err := config.CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
}
