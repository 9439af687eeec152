package openapi_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/leadlog/leadlog/httpapi/openapi"
)

func TestPage_CompleteAndSelfContained(t *testing.T) {
	t.Parallel()
	page, policy := openapi.Page("/crm")
	if to := os.Getenv("LEADLOG_TEST_PAGE"); to != "" {
		require.NoError(t, os.WriteFile(to, page, 0o600))
	}
	text := string(page)
	ids, links := map[string]int{}, map[string]bool{}
	root, err := html.Parse(strings.NewReader(text))
	require.NoError(t, err)
	for node := range root.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		require.NotContains(t, []string{"script", "link", "img", "iframe", "object", "form", "base"}, node.Data)
		for _, a := range node.Attr {
			switch {
			case a.Key == "id":
				ids[a.Val]++
			case a.Key == "href":
				links[a.Val] = true
			default:
				require.NotEqual(t, "style", a.Key, "the policy allows only the stylesheet")
				require.False(t, strings.HasPrefix(a.Key, "on"), a.Key)
			}
		}
	}
	for id, times := range ids {
		require.Equal(t, 1, times, "the anchor %s is unique", id)
	}
	for link := range links {
		anchor, inside := strings.CutPrefix(link, "#")
		require.True(t, inside && ids[anchor] == 1 || link == "/crm/openapi.json", "the link %s has a target", link)
	}
	document := load(t)
	for path, item := range document.Paths.Map() {
		for _, operation := range item.Operations() {
			require.Contains(t, ids, operation.OperationID, path)
		}
	}
	for name := range document.Components.Schemas {
		require.Contains(t, ids, "schema-"+name)
	}
	require.Contains(t, policy, "default-src 'none'; style-src 'sha256-")
	require.NotContains(t, policy, "unsafe")
	for _, call := range []string{
		"--data-binary '{\"name\":\"Asha Rao\"", `curl -sS "$URL/api/v1/crm/audit/proof?position=5"`,
		`curl -sS -X DELETE "$URL/webhooks/endpoints/01M7YH5C3ZB8F0Y2K7D9WQ4R6S"`,
	} {
		require.Contains(t, html.UnescapeString(text), call)
	}
	require.NotContains(t, text, "ZgotmplZ", "html/template has rejected no value")
}
