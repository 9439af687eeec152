package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// An append without an answer may have succeeded.
func TestFailurePage_StatesOutcome(t *testing.T) {
	t.Parallel()
	pages := newTemplates("/console", newAssets("/console"))
	for name, c := range map[string]struct {
		page    failurePage
		outcome string
	}{
		"a refused form": {failurePage{Failure{Status: http.StatusNotFound}, false}, "Nothing was changed. "},
		"a form without an answer": {
			failurePage{Failure{Status: http.StatusServiceUnavailable}, false},
			"The action may have succeeded: check before you retry. ",
		},
		"page not found": {failurePage{Failure{Status: http.StatusNotFound}, true}, ""},
		"page unavailable": {
			failurePage{Failure{Status: http.StatusServiceUnavailable}, true}, "Try again shortly. ",
		},
	} {
		page, err := pages.render("failure", layout{Data: c.page})
		require.NoError(t, err, name)
		require.Contains(t, string(page), "<p>"+c.outcome+`<a href="/console">`, name)
	}
}
