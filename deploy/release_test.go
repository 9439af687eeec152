package deploy

import (
	"os/exec"
	"path/filepath"
	"regexp"
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

func TestRelease_VersionsAgree(t *testing.T) {
	t.Parallel()
	chart := text(t, "helm/Chart.yaml")
	version := regexp.MustCompile(`appVersion: "([^"]+)"`).FindStringSubmatch(chart)
	require.NotNil(t, version)
	changes := text(t, "docs/CHANGELOG.md")
	require.Equal(t, version[1], regexp.MustCompile(`(?m)^## (\S+)$`).FindStringSubmatch(changes)[1])
	require.FileExists(t, "docs/release-"+version[1]+".md")
}
