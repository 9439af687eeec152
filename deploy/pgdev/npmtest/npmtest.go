// Package npmtest gets packages of npm for tests.
package npmtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Install returns a directory with the files of another, such as package.json and package-lock.json, and with the
// packages that these name. The lock file has the version and the hash of every file. The directory is kept between
// runs.
func Install(t testing.TB, from string) string {
	t.Helper()
	files, err := os.ReadDir(from)
	require.NoError(t, err)
	sum := sha256.New()
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(from, file.Name()))
		require.NoError(t, err)
		fmt.Fprintf(sum, "%s %d\n%s", file.Name(), len(content), content)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir() // no home: once for this run
	}
	cached := filepath.Join(cache, "leadlog", fmt.Sprintf("%s-%x", filepath.Base(from), sum.Sum(nil)[:8]))
	if _, err := os.Stat(cached); err == nil {
		return cached
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(cached), 0o755))
	made, err := os.MkdirTemp(filepath.Dir(cached), "making-")
	require.NoError(t, err)
	defer os.RemoveAll(made)
	require.NoError(t, os.CopyFS(made, os.DirFS(from)))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = made
	said, err := npm.CombinedOutput()
	require.NoError(t, err, "npm ci (make node installs npm): %s", said)
	if err := os.Rename(made, cached); err != nil { // another run was faster
		require.DirExists(t, cached)
	}
	return cached
}
