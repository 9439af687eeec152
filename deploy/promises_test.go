package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEachTestThatIsNamedIsThere: what is promised names the tests that hold it.
func TestEachTestThatIsNamedIsThere(t *testing.T) {
	t.Parallel()
	there := testsOf(t, "..")
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z0-9]\w+`)
	for _, file := range []string{"../README.md", "../.github/SECURITY.md", "docs/threat-model.md"} {
		read := text(t, file)
		for _, name := range named.FindAllString(read, -1) {
			require.True(t, there[name], "%s names %s, and there is no such test", file, name)
		}
	}
	readme := text(t, "../README.md")
	_, section, found := strings.Cut(readme, "\n## What is promised\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| promise") {
			rows++
			require.Regexp(t, named, line, "a promise that no test holds")
		}
	}
	require.Greater(t, rows, 10)
}

// testsOf are the names of all tests and fuzz targets in a tree.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	names := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
			names[match[1]] = true
		}
		return err
	}))
	return names
}
