package service

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

func TestSettings_OriginsAndBasePath(t *testing.T) {
	t.Parallel()
	var c cli.Checker
	origins := []string{"https://example.com", "http://localhost:3000", "https://xn--mnchen-3ya.de:8443", "http://[::1]:8080", "http://127.0.0.1", "https://a_b.example"}
	require.Equal(t, origins, parseOrigins(&c, "LEADLOG_CORS_ORIGINS", strings.Join(origins, ", ")))
	for given, prefix := range map[string]string{"": "", "/": "", "/crm": "/crm", "/crm/": "/crm", "/a-b/c_d~e.f": "/a-b/c_d~e.f"} {
		require.Equal(t, prefix, parseBasePath(&c, given), given)
	}
	require.NoError(t, c.Err())
}
