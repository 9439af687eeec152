package console

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChips_LeadToFirstPage(t *testing.T) {
	p := &params{values: url.Values{"status": {"new"}, "q": {" asha "}, "cursor": {"x"}, "compare": {"previous"}}}
	require.Equal(t, []chip{
		{"status", "Status", "new", "?compare=previous&q=+asha+", "?compare=previous"},
		{"q", "Search", "asha", "?compare=previous&status=new", "?compare=previous"},
	}, p.chips("status", "source", "q"))
	require.Equal(t, "x", p.text("cursor"), "the parameters of the current page are unchanged")
	p = &params{values: url.Values{"q": {"asha"}, "cursor": {"x"}}}
	require.Equal(t, []chip{{"q", "Search", "asha", "?", "?"}}, p.chips("q"))
}
