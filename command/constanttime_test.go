package command_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecrets_ConstantTime finds comparisons of hashes, signatures and secrets by ==, !=, bytes.Equal and the like,
// whose duration depends on the common prefix. Comparisons of a length or with nil are allowed.
func TestSecrets_ConstantTime(t *testing.T) {
	t.Parallel()
	var wrong []string
	seen := false
	for _, root := range []string{".", "../httpapi"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.BinaryExpr:
					if (node.Op == token.EQL || node.Op == token.NEQ) && secret(node.X) && secret(node.Y) {
						wrong = append(wrong, files.Position(node.Pos()).String())
					}
				case *ast.CallExpr:
					name := calleeName(node)
					seen = seen || name == "subtle.ConstantTimeCompare"
					if (name == "bytes.Equal" || name == "bytes.Compare" || name == "slices.Equal" ||
						name == "strings.Compare") && secret(node.Args[0]) {
						wrong = append(wrong, files.Position(node.Pos()).String())
					}
				}
				return true
			})
			return nil
		}))
	}
	require.Empty(t, wrong, "compare these by crypto/subtle or crypto/hmac")
	require.True(t, seen, "no comparison of tokens found")
}

// secret reports whether an expression is named like a secret. Literals, nil and lengths are not.
func secret(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	case *ast.CallExpr:
		if name = calleeName(e); name == "len" {
			return false
		}
		name = name[strings.LastIndexByte(name, '.')+1:]
	case *ast.SliceExpr:
		return secret(e.X)
	case *ast.ParenExpr:
		return secret(e.X)
	}
	name = strings.ToLower(name)
	for _, part := range []string{"hash", "signature", "secret", "plaintoken", "reveal", "mac"} {
		if strings.HasSuffix(name, part) {
			return true
		}
	}
	return false
}

func calleeName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if of, ok := f.X.(*ast.Ident); ok {
			return of.Name + "." + f.Sel.Name
		}
		return f.Sel.Name
	}
	return ""
}
