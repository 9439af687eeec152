// Package deploy tests the documents and deployment files of this directory, without a container engine.
package deploy

import (
	"os"
	"os/exec"
	"regexp"
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

func TestCompose_ProfilesAreComplete(t *testing.T) {
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

// roles.sql runs before the migration, to create the roles, and again after it, to grant them rights.
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

// compose.yaml has the runbook's settings, with which the costs of a long log were measured. shared_buffers depends on
// the machine.
func TestCompose_PostgresSettings(t *testing.T) {
	t.Parallel()
	runbook := text(t, "docs/runbook.md")
	measured := text(t, "docs/scale.md")
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
			require.Regexp(t, `--cluster\s+`+regexp.QuoteMeta(argument)+`\b`, measured)
		}
	}
	want := []string{"shared_buffers", "max_wal_size", "min_wal_size", "checkpoint_timeout", "shared_preload_libraries"}
	require.Equal(t, want, names)
}

// While the postgres image initializes its database, the server listens on its socket only, and restarts afterwards. A
// health check over the socket would let the migration start too early and fail.
func TestCompose_PostgresHealthcheck(t *testing.T) {
	t.Parallel()
	check := compose(t).Services["postgres"].Healthcheck.Test
	require.Len(t, check, 2)
	require.Regexp(t, `^pg_isready -h 127\.0\.0\.1 `, check[1])
	require.Equal(t, "service_healthy", compose(t).Services["roles"].DependsOn["postgres"].Condition)
}

// With an empty password these servers use a well-known default. Compose can require a variable only in all profiles at
// once, so the containers check it.
func TestCompose_RequiresPasswords(t *testing.T) {
	t.Parallel()
	c := compose(t)
	for name, variable := range map[string]string{
		"grafana": "GF_SECURITY_ADMIN_PASSWORD", "certificates": "KURRENTDB_PASSWORD",
	} {
		require.Contains(t, c.Services[name].Environment, variable)
		run := strings.Split(
			strings.ReplaceAll(strings.Join(append(c.Services[name].Entrypoint, c.Services[name].Command...), "\x00"),
				"$$", "$"), "\x00",
		)
		for password, refused := range map[string]bool{"": true, "a password": false} {
			start := exec.CommandContext(t.Context(), run[0], run[1:]...)
			start.Env = []string{"PATH=", variable + "=" + password} // so that the start fails after the check
			output, err := start.CombinedOutput()
			require.Error(t, err, "the server is not installed here")
			require.Equal(t, refused, strings.HasPrefix(string(output), "set "), "%s: %s", name, output)
		}
	}
	for name, s := range c.Services {
		if strings.HasPrefix(name, "node") {
			require.Contains(t, s.DependsOn, "certificates", name)
		}
	}
}

func TestCompose_ClusterGossipSeeds(t *testing.T) {
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
			require.Equal(t, other != name, strings.Contains(environment["KURRENTDB_GOSSIP_SEED"], seed+":2113"),
				"%s of %s", other, name)
		}
	}
}

// Docker Compose, where it is installed, checks the file too.
func TestCompose_DockerAcceptsFile(t *testing.T) {
	t.Parallel()
	if exec.Command("docker", "compose", "version").Run() != nil {
		t.Log("docker compose is not installed: the file was only parsed")
		return
	}
	for _, profile := range []string{"node", "cluster", "watch"} {
		config := exec.CommandContext(t.Context(), "docker", "compose", "-f", "compose.yaml", "--profile",
			profile, "config", "--quiet")
		config.Env = append(os.Environ(), "POSTGRES_PASSWORD=p", "OWNER_PASSWORD=o", "WRITER_PASSWORD=w",
			"LEADLOG_JWT_SECRET=j", "LEADLOG_CLAIM_KEY=c", "LEADLOG_SEAL_KEY=s", "LEADLOG_TREE_KEY=t")
		output, err := config.CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
}
