package deploy

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type release struct {
	Version int
	Builds  []struct {
		Main   string
		Env    []string
		Goos   []string
		Goarch []string
	}
	Archives []struct{ Files []string }
	Sboms    []struct{ Artifacts string }
}

func TestRelease_FilesAndSBOM(t *testing.T) {
	t.Parallel()
	var r release
	require.NoError(t, yaml.Unmarshal([]byte(text(t, "goreleaser.yaml")), &r))
	require.Equal(t, 2, r.Version)
	require.Len(t, r.Builds, 1)
	require.DirExists(t, filepath.Join("..", r.Builds[0].Main))
	require.Contains(t, r.Builds[0].Env, "CGO_ENABLED=0", "the Dockerfile needs a static binary")
	require.Equal(t, "archive", r.Sboms[0].Artifacts)
	for _, pattern := range r.Archives[0].Files {
		found, err := filepath.Glob(filepath.Join("..", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
	}
}

// goreleaser, where it is installed, checks the file too.
func TestRelease_GoreleaserAcceptsFile(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("goreleaser"); err != nil {
		t.Log("goreleaser is not installed: the file was only parsed")
		return
	}
	check := exec.CommandContext(t.Context(), "goreleaser", "check", "goreleaser.yaml")
	output, err := check.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// Everything that names a version names that of the newest changes, and the workflow builds only such a tag.
func TestRelease_VersionsAgree(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)$`).FindStringSubmatch(text(t, "docs/CHANGELOG.md"))[1]
	require.FileExists(t, "docs/release-"+version+".md")
	const image = "ghcr.io/leadlog/leadlog"
	for file, names := range map[string][]string{
		"helm/Chart.yaml":         {"version: " + version, `appVersion: "` + version + `"`},
		"helm/values.yaml":        {"repository: " + image},
		"compose.yaml":            {"image: " + image + ":" + version},
		"systemd/leadlog.service": {"/v" + version + "/"},
		"docs/release-" + version + ".md": {
			"# leadlog " + version, image + ":" + version, "leadlog_" + version + "_linux_amd64.tar.gz",
		},
		"../README.md": {image + ":" + version, "leadlog_" + version + "_linux_amd64.tar.gz"},
	} {
		content := text(t, file)
		for _, name := range names {
			require.Contains(t, content, name, file)
		}
		for _, other := range regexp.MustCompile(regexp.QuoteMeta(image)+`:([\w.]+)|leadlog_(\d[\d.]*)_`).
			FindAllStringSubmatch(content, -1) {
			require.Equal(t, version, other[1]+other[2], file)
		}
	}
	workflow := text(t, "../.github/workflows/release.yml")
	require.Contains(t, workflow, `deploy/docs/release-${GITHUB_REF_NAME#v}.md`)
	require.Contains(t, workflow, `bin/leadlog --version | grep --fixed-strings "leadlog $GITHUB_REF_NAME commit `)
	require.Contains(t, workflow, `test -d "deploy/releases/${GITHUB_REF_NAME#v}"`)
	require.Contains(t, text(t, "goreleaser.yaml"), `"leadlog_{{ .Version }}_{{ .Os }}_{{ .Arch }}"`)
}

// TestReleases_MigrationsUnchanged requires that every migration of a release is as it was, because databases have been
// migrated by it. make release-data writes the list of the version that is about to be released.
func TestReleases_MigrationsUnchanged(t *testing.T) {
	t.Parallel()
	const file = "migrations.txt"
	if release := os.Getenv("LEADLOG_TEST_RELEASE"); release != "" {
		migrations, err := filepath.Glob("../*/*/migrations/*.sql")
		require.NoError(t, err)
		require.NotEmpty(t, migrations)
		var list bytes.Buffer
		for _, migration := range migrations {
			fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256([]byte(text(t, migration))), strings.TrimPrefix(migration, "../"))
		}
		require.NoError(t, os.WriteFile(filepath.Join(release, file), list.Bytes(), 0o644))
	}
	lists, err := filepath.Glob("releases/*/" + file)
	require.NoError(t, err)
	require.NotEmpty(t, lists)
	for _, list := range lists {
		for line := range strings.Lines(text(t, list)) {
			hash, migration, _ := strings.Cut(strings.TrimSpace(line), "  ")
			require.Equal(t, hash, fmt.Sprintf("%x", sha256.Sum256([]byte(text(t, filepath.Join("..", migration))))),
				"databases have been migrated by %s as in %s: leave it as it was, and add a new file with the next number. "+
					"If the release is not tagged yet: make release-data", migration, list)
		}
	}
}
