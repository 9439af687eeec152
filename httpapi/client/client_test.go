package client_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/openapi"
)

func TestClient_GeneratedFromDocument(t *testing.T) {
	t.Parallel()
	code, err := os.ReadFile("client.gen.go")
	require.NoError(t, err)
	stamp := fmt.Sprintf("// Of openapi.json with the SHA-256 %x.\n", sha256.Sum256(openapi.Document("")))
	require.Contains(t, string(code[:500]), stamp, "the client is out of date: run go generate ./httpapi/client")
}
