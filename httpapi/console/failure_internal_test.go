package console

import (
	"net/http"
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
		page, err := pages.whole("failure", layout{Data: c.page})
		require.NoError(t, err, name)
		require.Contains(t, string(page), "<p>"+c.says+`<a href="/console">`, name)
	}
}
