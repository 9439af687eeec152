package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// files returns the repository's files with a suffix, relative to this directory.
func files(t *testing.T, suffix string) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() &&
			(name == ".git" || name == ".leadlog" || name == "bin" || name == "node_modules") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, suffix) {
			found = append(found, path)
		}
		return nil
	}))
	require.NotEmpty(t, found)
	return found
}

func text(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(raw)
}

// anchors returns the link anchors of a document's headings.
func anchors(text string) (all []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

func TestDocuments_LinksResolve(t *testing.T) {
	t.Parallel()
	links := 0
	for _, file := range files(t, ".md") {
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)|src="([^"]+)"`).
			FindAllStringSubmatch(text(t, file), -1) {
			path, anchor, _ := strings.Cut(link[1]+link[2], "#")
			if strings.HasPrefix(path, "https://") {
				continue
			}
			links++
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
				require.FileExists(t, target, "%s links to %s", file, path)
			}
			if anchor != "" {
				require.Contains(t, anchors(text(t, target)), anchor, "%s links to %s", file, link[0])
			}
		}
	}
	require.Greater(t, links, 30)
}

func TestDocuments_NamedFilesExist(t *testing.T) {
	t.Parallel()
	for _, file := range files(t, ".md") {
		for _, name := range regexp.MustCompile(
			`\b(?:cmd|command|projection|eventstore|query|httpapi|deploy)/[a-zA-Z_/.-]*[a-z]`,
		).FindAllString(text(t, file), -1) {
			_, err := os.Stat(filepath.Join("..", name))
			require.NoError(t, err, "%s names %s", file, name)
		}
	}
}

func TestReadme_LinksEveryDocument(t *testing.T) {
	t.Parallel()
	readme := text(t, "../README.md")
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, document := range documents {
		if !strings.HasPrefix(document, "docs/release-") {
			require.Contains(t, readme, "](deploy/"+document+")")
		}
	}
}

// Each package is in the README's tour of the tree, by its own name or its parent's, and each directory of the tour
// exists.
func TestReadme_TourCoversPackages(t *testing.T) {
	t.Parallel()
	_, tour, _ := strings.Cut(text(t, "../README.md"), "\n## A tour of the tree\n")
	tour, _, _ = strings.Cut(tour, "\n## ")
	var shown []string
	below := map[int]string{0: ""} // by indentation
	for _, line := range regexp.MustCompile(`(?m)^( *)((?:[a-z]+/)+(?: [a-z]+/)*)  `).FindAllStringSubmatch(tour, -1) {
		parent := below[len(line[1])]
		for name := range strings.FieldsSeq(line[2]) {
			shown = append(shown, parent+name)
			below[len(line[1])+2] = parent + name
		}
	}
	for _, directory := range shown {
		require.DirExists(t, filepath.Join("..", directory))
	}
	for _, file := range files(t, ".go") {
		directory := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(file), "../")) + "/"
		named := slices.ContainsFunc(shown, func(known string) bool {
			return directory == known || strings.Count(known, "/") > 1 && strings.HasPrefix(directory, known)
		})
		require.True(t, named, "the tour has no %s", directory)
	}
}

// The README and CONTRIBUTING name files by their path or, beside others of a directory, by their name.
func TestContributing_NamesFilesThatExist(t *testing.T) {
	t.Parallel()
	sources := files(t, ".go")
	named := regexp.MustCompile(`\b[a-z0-9_/]+\.go\b`)
	for _, document := range []string{"../README.md", "../.github/CONTRIBUTING.md"} {
		names := named.FindAllString(text(t, document), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			require.True(t, slices.ContainsFunc(sources, func(file string) bool {
				return strings.HasSuffix(filepath.ToSlash(file), "/"+name)
			}), "%s names %s, which does not exist", document, name)
		}
	}
}

func TestContributing_NamesEveryDependency(t *testing.T) {
	t.Parallel()
	_, list, found := strings.Cut(text(t, "../.github/CONTRIBUTING.md"), "\n## Dependencies\n")
	require.True(t, found)
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(text(t, "../go.mod"), -1)
	require.NotEmpty(t, direct)
	for _, requirement := range direct {
		path := strings.TrimPrefix(requirement[1], "github.com/")
		path = strings.TrimSuffix(strings.TrimPrefix(path, "go.opentelemetry.io/"), "/libraries")
		require.Contains(t, list, path)
	}
}

// Every promise names a test, and every test that a document names exists.
func TestDocuments_NamedTestsExist(t *testing.T) {
	t.Parallel()
	exists := tests(t)
	named := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z0-9]\w+`)
	for _, file := range files(t, ".md") {
		for _, name := range named.FindAllString(text(t, file), -1) {
			require.True(t, exists[name], "%s names %s, which does not exist", file, name)
		}
	}
	promises := strings.Split(text(t, "docs/promises.md"), "\n- ")[1:]
	require.Greater(t, len(promises), 10)
	for _, promise := range promises {
		require.Regexp(t, named, promise, "a promise without a test")
	}
}

// tests returns the names of all tests and fuzz targets.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	names := make(map[string]bool)
	for _, file := range files(t, "_test.go") {
		for _, match := range declared.FindAllStringSubmatch(text(t, file), -1) {
			names[match[1]] = true
		}
	}
	return names
}
