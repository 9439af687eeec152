package deploy

import (
	"os"
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

func TestAReleaseHasWhatItNamesAndABillOfMaterials(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("goreleaser.yaml")
	require.NoError(t, err)
	var r release
	require.NoError(t, yaml.Unmarshal(raw, &r))
	require.Equal(t, 2, r.Version)
	require.Len(t, r.Builds, 1)
	require.DirExists(t, filepath.Join("..", r.Builds[0].Main))
	require.Contains(t, r.Builds[0].Env, "CGO_ENABLED=0", "static, as the Dockerfile wants it")
	require.Equal(t, "archive", r.Sboms[0].Artifacts)
	for _, pattern := range r.Archives[0].Files {
		found, err := filepath.Glob(filepath.Join("..", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
	}
}

// Where goreleaser is, it has the last word.
func TestGoreleaserUnderstandsTheRelease(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("goreleaser"); err != nil {
		t.Log("no goreleaser on this machine: the file was only parsed")
		return
	}
	check := exec.CommandContext(t.Context(), "goreleaser", "check", "goreleaser.yaml")
	output, err := check.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

func TestTheChangelogTheChartAndTheNotesAreOfOneVersion(t *testing.T) {
	t.Parallel()
	chart, err := os.ReadFile("helm/Chart.yaml")
	require.NoError(t, err)
	version := regexp.MustCompile(`appVersion: "([^"]+)"`).FindSubmatch(chart)
	require.NotNil(t, version)
	changes, err := os.ReadFile("CHANGELOG.md")
	require.NoError(t, err)
	require.Equal(t, string(version[1]), regexp.MustCompile(`(?m)^## (\S+)$`).FindStringSubmatch(string(changes))[1])
	require.FileExists(t, "release-"+string(version[1])+".md")
}
