package command_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/leadlog/leadlog"

// pure are the packages of deciders, which depend on facts but not on stores, networks or clocks.
var pure = []string{
	"command/account", "command/arrival", "command/attribution", "command/claim", "command/contact",
	"command/expression", "command/field", "command/intake", "command/lead",
	"command/spend", "command/token", "command/visitor", "command/webhook",
}

// dependency is one import of one file. Tests are not included.
type dependency struct{ file, path string }

// tree returns the imports of every package of the module by directory. It reads source files to include the imports of
// every platform, and for go test to rerun when one changes.
func tree(t *testing.T) map[string][]dependency {
	t.Helper()
	packages := map[string][]dependency{}
	walk(t, parser.ImportsOnly, func(pkg, file string, parsed *ast.File) {
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			packages[pkg] = append(packages[pkg], dependency{file, path})
		}
	})
	return packages
}

// walk parses every source file of the module except tests.
func walk(t *testing.T, mode parser.Mode, visit func(pkg, file string, parsed *ast.File)) {
	t.Helper()
	root := ".."
	files := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path == root {
				return nil
			}
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || nested == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(files, path, nil, mode)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(filepath.Dir(relative)), filepath.ToSlash(relative), parsed)
		return nil
	}))
}

// local returns the directory of an imported package of this module.
func local(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// testHelper reports whether a package is a helper of tests by its name, like pgtest and storetest. Such a package may
// import every other, and only tests may import it.
func testHelper(pkg string) bool { return strings.HasSuffix(pkg, "test") }

// standard reports whether a package is in the standard library: its first element has no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// under reports whether a package is one of the directories, or below one that ends in "/...".
func under(pkg string, directories ...string) bool {
	return slices.ContainsFunc(directories, func(d string) bool {
		if tree, ok := strings.CutSuffix(d, "/..."); ok {
			return pkg == tree || strings.HasPrefix(pkg, tree+"/")
		}
		return pkg == d
	})
}

// The layers, from the bottom: facts, deciders, the log and its readers, workers, network adapters, programs. Every
// package below the network adapters has a rule.
func TestImports_Layers(t *testing.T) {
	t.Parallel()
	facts := []string{"eventstore/event"}
	deciders := slices.Concat(facts, pure)
	readers := slices.Concat(deciders, []string{"eventstore"})
	packages, ruled := tree(t), map[string]bool{}

	for _, rule := range []struct {
		packages []string // in the order of the layers
		allowed  []string // import of this module
	}{
		{[]string{"eventstore/event"}, nil},
		{[]string{"eventstore"}, facts},
		{[]string{"eventstore/sealbox"}, nil},
		{[]string{"eventstore/..."}, []string{"eventstore/..."}},
		{pure, deciders},
		{[]string{"eventstore/merkle"}, nil},
		{[]string{"eventstore/audit"}, slices.Concat(facts, []string{"eventstore", "eventstore/merkle"})},
		{[]string{"command/leadfile", "command/turns"}, deciders},
		{[]string{"command/spendfile"}, slices.Concat(deciders, []string{"command/leadfile"})},
		{[]string{"command"}, slices.Concat(readers, []string{"command/turns", "eventstore/draft"})},
		{
			[]string{"projection/..."},
			slices.Concat(readers, []string{
				"eventstore/audit", "eventstore/merkle", "eventstore/migration", "eventstore/sealbox", "projection/...",
			}),
		},
		{
			[]string{"query/..."},
			slices.Concat(readers, []string{
				"command/leadfile", "eventstore/audit", "eventstore/merkle", "query/...", "projection/schema",
			}),
		},
		{
			[]string{"command/worker/..."},
			slices.Concat(readers, []string{
				"command", "command/leadfile", "command/worker/...", "eventstore/migration", "projection/...", "query",
			}),
		},
	} {
		found := 0
		for _, pkg := range slices.Sorted(maps.Keys(packages)) {
			if !under(pkg, rule.packages...) || testHelper(pkg) {
				continue
			}
			ruled[pkg] = true
			found++
			for _, d := range packages[pkg] {
				if to, ok := local(d.path); ok {
					require.True(t, under(to, rule.allowed...), "%s imports %s; %s may import only %v",
						d.file, to, pkg, rule.allowed)
				}
			}
		}
		require.GreaterOrEqual(t, found, len(rule.packages), "packages of the rule for %v", rule.packages)
	}
	for pkg := range packages {
		require.True(t, ruled[pkg] || testHelper(pkg) || under(pkg, "httpapi/...", "cmd/...", "deploy/..."),
			"%s has no rule", pkg)
	}
}

func TestImports_Forbidden(t *testing.T) {
	t.Parallel()
	for _, rule := range []struct {
		what      string
		importers []string // allowed importers
		matches   func(path string) bool
	}{
		{"a program", []string{"cmd/..."}, func(path string) bool {
			to, ok := local(path)
			return ok && under(to, "cmd/...")
		}},
		{"a helper of tests", nil, func(path string) bool { to, ok := local(path); return ok && testHelper(to) }},
		{"a worker", []string{"command/worker/...", "httpapi/...", "cmd/..."}, func(path string) bool {
			to, ok := local(path)
			return ok && under(to, "command/worker/...")
		}},
		{"a network adapter", []string{"httpapi/...", "cmd/..."}, func(path string) bool {
			to, ok := local(path)
			return ok && under(to, "httpapi/...")
		}},
		{
			"a store by its name", []string{"cmd/...", "eventstore/..."},
			func(path string) bool {
				to, ok := local(path)
				return ok && under(to, "eventstore/postgres/...", "eventstore/esdb/...", "eventstore/sealed/...")
			},
		},
		{
			"EventStore's client", []string{"eventstore/esdb/...", "eventstore/esdbtest/..."},
			func(path string) bool {
				return strings.HasPrefix(path, "github.com/EventStore/") ||
					strings.HasPrefix(path, "github.com/kurrent-io/")
			},
		},
	} {
		for pkg, dependencies := range tree(t) {
			if testHelper(pkg) {
				continue
			}
			for _, d := range dependencies {
				require.False(t, rule.matches(d.path) && !under(pkg, rule.importers...), "%s imports %s: %s",
					d.file, d.path, rule.what)
			}
		}
	}
}

// Deciders take and return values: no context, files, network, database, clock, randomness or logger. They import only
// third-party packages that are pure, too.
func TestDeciders_ArePure(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{
		"github.com/go-json-experiment/json": true, "github.com/go-json-experiment/json/jsontext": true,
		"github.com/oklog/ulid/v2": true, "github.com/nyaruka/phonenumbers": true,
		"golang.org/x/text/unicode/norm": true, "golang.org/x/text/currency": true, "golang.org/x/text/language": true,
		"golang.org/x/text/language/display": true, "golang.org/x/net/idna": true,
		"code.dny.dev/ssrf":              true, // for its table of addresses
		"golang.org/x/net/http/httpguts": true, "golang.org/x/text/encoding/charmap": true,
		"golang.org/x/text/encoding/htmlindex": true, "cel.dev/cel-go/cel": true, "cel.dev/cel-go/ext": true,
		"cel.dev/cel-go/interpreter": true, "cel.dev/cel-go/common/ast": true,
		"cel.dev/cel-go/common/cost": true, "cel.dev/cel-go/common/operators": true,
		"cel.dev/cel-go/common/overloads": true,
		"cel.dev/cel-go/common/functions": true,
		"cel.dev/cel-go/common/types":     true, "cel.dev/cel-go/common/types/ref": true,
		"cel.dev/cel-go/common/types/traits": true,
	}
	forbidden := []string{
		"context/...", "database/...", "net", "net/http/...", "net/smtp", "net/rpc/...", "os/...", "log", "log/syslog",
		"syscall/...", "io/ioutil", "io/fs", "path/filepath", "crypto/rand", "math/rand/...", "runtime/...", "sync/...",
		"unsafe", "C", "plugin", "testing/...", "expvar", "flag", "encoding/json/...",
	}
	packages := tree(t)
	for _, pkg := range append(slices.Clone(pure), "eventstore/event") {
		require.Contains(t, packages, pkg)
		for _, d := range packages[pkg] {
			if _, ok := local(d.path); ok {
				continue
			}
			if !standard(d.path) {
				require.True(t, allowed[d.path], "%s imports %s", d.file, d.path)
				continue
			}
			if d.path == "embed" {
				require.Equal(t, "command/contact/dictionary.go", d.file,
					"only the dictionary is a table beside the code")
				continue
			}
			require.False(t, under(d.path, forbidden...), "%s imports %s", d.file, d.path)
			if d.path == "log/slog" {
				require.Contains(t, []string{"command/token/value.go", "command/intake/intake.go"}, d.file,
					"only secrets implement slog.LogValuer")
			}
		}
	}
}

func TestDeciders_TakeTime(t *testing.T) {
	t.Parallel()
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
	seen := 0
	walk(t, parser.SkipObjectResolution, func(pkg, file string, parsed *ast.File) {
		if !under(pkg, pure...) && pkg != "eventstore/event" && pkg != "command" {
			return
		}
		seen++
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
				if name, ok := selector.X.(*ast.Ident); ok && name.Name == "time" {
					require.NotContains(t, clock, selector.Sel.Name, file)
				}
			}
			return true
		})
	})
	require.NotZero(t, seen)
}
