package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What an endpoint answers, or a form gives as metadata, is on pages that are kept up to date.
func TestNobodysTextEndsOrRulesAnEvent(t *testing.T) {
	t.Parallel()
	require.Equal(t, "data: <td>ok\ndata: event: end\ndata: \ndata: retry: 1</td>\n\n", string(sse([]byte("<td>ok\revent: end\r\n\rretry: 1</td>"))))
	require.Equal(t, "data: a\ndata: b\n\n", string(sse([]byte("a\r\nb\n"))))
}
