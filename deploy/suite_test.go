package deploy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// background names helpers that tests start a service with. The goroutines that they start do the service's own work, which has tests of
// its own with the race detector.
var background = map[string]bool{"project": true, "sampling": true, "keepTree": true, "asDescribed": true, "fanOut": true}

// TestSuite_RacesGoroutines reads the tests of the packages that the Makefile does not run with the race detector as a whole.
func TestSuite_RacesGoroutines(t *testing.T) {
	t.Parallel()
	variable := func(name string) string {
		makefile := strings.ReplaceAll(text(t, "../Makefile"), "\\\n", " ")
		found := regexp.MustCompile(`(?m)^` + name + ` *:= (.+)$`).FindStringSubmatch(makefile)
		require.NotNil(t, found, name)
		return found[1]
	}
	concurrent := regexp.MustCompile(variable("CONCURRENT"))
	raced := 0
	for _, list := range []string{"SEQUENTIAL", "MIXED"} {
		for _, directory := range strings.Fields(variable(list)) {
			sources, err := filepath.Glob("../" + directory + "/*_test.go")
			require.NoError(t, err)
			require.NotEmpty(t, sources, directory)
			for _, test := range testsWithGoroutines(t, sources) {
				assert.Equal(t, "MIXED", list, "%s in %s starts goroutines: it must run with the race detector", test, directory)
				assert.Regexp(t, concurrent, test, "a test in %s that starts goroutines: CONCURRENT in the Makefile must match it", directory)
				raced++
			}
		}
	}
	require.Greater(t, raced, 10, "goroutines are found at all")
}

// testsWithGoroutines returns the tests of one package that start goroutines, themselves or by a helper of the package.
func testsWithGoroutines(t *testing.T, sources []string) (tests []string) {
	t.Helper()
	calls := map[string][]string{} // of each function, by name
	starts := map[string]bool{}
	for _, source := range sources {
		parsed, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declared := range parsed.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok || background[function.Name.Name] {
				continue
			}
			name := function.Name.Name
			ast.Inspect(function, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					starts[name] = true
				case *ast.CallExpr:
					switch called := n.Fun.(type) {
					case *ast.Ident:
						calls[name] = append(calls[name], called.Name)
					case *ast.SelectorExpr: // a method, of a WaitGroup or an errgroup too
						calls[name] = append(calls[name], called.Sel.Name)
						if called.Sel.Name == "Go" {
							starts[name] = true
						}
					}
				}
				return true
			})
		}
	}
	for more := true; more; {
		more = false
		for name, called := range calls {
			for _, other := range called {
				if starts[other] && !starts[name] && !background[other] {
					starts[name], more = true, true
				}
			}
		}
	}
	for name := range starts {
		if strings.HasPrefix(name, "Test") && name != "TestMain" {
			tests = append(tests, name)
		}
	}
	return tests
}
