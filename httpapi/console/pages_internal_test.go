package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/quota"
)

func TestPages_DeclareQuota(t *testing.T) {
	t.Parallel()
	for _, page := range pages() {
		name := page.method + " " + page.pattern
		require.NotZero(t, page.kind, name)
		require.Equal(t, page.scope == public, page.kind == quota.Free, name)
		require.False(t, page.method == http.MethodPost && page.kind.Reads(), name)
	}
}
