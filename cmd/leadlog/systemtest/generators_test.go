package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/npmtest"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi/openapi"
)

// Generators refused the document, or wrote clients that did not compile.
func TestGenerators_ClientsCompile(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	document := filepath.Join(t.TempDir(), "openapi.json")
	require.NoError(t, os.WriteFile(document, openapi.Document(""), 0o600))
	t.Run("TypeScript", func(t *testing.T) { compileTypeScript(t, document) })
	t.Run("Go", func(t *testing.T) { compileGo(t, document) })
}

func compileTypeScript(t *testing.T, document string) {
	t.Helper()
	packages := npmtest.Install(t, "testdata/generators")
	dir := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")))
	for _, args := range [][]string{
		{"openapi-typescript", document, "-o", "schema/schema.d.ts"},
		{
			"openapi-ts", "-i", document, "-o", "hey", "-p", "@hey-api/typescript", "@hey-api/sdk",
			"@hey-api/client-fetch", "zod",
		},
		{"openapi", "--input", document, "--output", "codegen"},
		{
			"tsc", "--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--target", "es2022",
			"--moduleResolution", "bundler", "--types", "node", "schema/schema.d.ts", "hey/index.ts", "hey/zod.gen.ts",
			"codegen/index.ts",
		},
	} {
		tool := exec.CommandContext(t.Context(), filepath.Join(packages, "node_modules", ".bin", args[0]), args[1:]...)
		runIn(t, dir, tool)
	}
}

func compileGo(t *testing.T, document string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "client"), 0o700))
	for _, args := range [][]string{
		{"mod", "init", "example.com/generated"},
		{
			"run", "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2", "-generate", "types,client",
			"-package", "client", "-o", "client/client.go", document,
		},
		{"run", "github.com/ogen-go/ogen/cmd/ogen@v1.25.0", "--target", "ogen", "--clean", document},
		{"get", "github.com/oapi-codegen/runtime@v1.4.0", "github.com/ogen-go/ogen@v1.25.0"},
		{"mod", "tidy"},
		{"build", "./..."},
	} {
		runIn(t, dir, exec.CommandContext(t.Context(), "go", args...))
	}
}

func runIn(t *testing.T, dir string, program *exec.Cmd) {
	t.Helper()
	program.Dir = dir
	said, err := program.CombinedOutput()
	require.NoError(t, err, "%s: %s", program, said)
}
