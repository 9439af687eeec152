package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An append whose answer is lost may stand on the log.
func TestFailurePage_StatesOutcome(t *testing.T) {
	t.Parallel()
	pages := newTemplates("/console", newAssets("/console"))
	for name, c := range map[string]struct {
		page failurePage
		says string
	}{
		"a refused form":         {failurePage{Failure{Status: http.StatusNotFound}, false}, "Nothing was changed. "},
		"a form, and no answer":  {failurePage{Failure{Status: http.StatusServiceUnavailable}, false}, "The action may have succeeded: check before you retry. "},
		"nothing there":          {failurePage{Failure{Status: http.StatusNotFound}, true}, ""},
		"nothing to be read now": {failurePage{Failure{Status: http.StatusServiceUnavailable}, true}, "Try again shortly. "},
	} {
		var page strings.Builder
		require.NoError(t, pages.byName["failure"].ExecuteTemplate(&page, "layout", layout{Data: c.page}), name)
		require.Contains(t, page.String(), "<p>"+c.says+`<a href="/console">`, name)
	}
}
