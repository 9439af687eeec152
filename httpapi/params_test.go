package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An empty list of what a misspelt name selects would say that nothing of the kind happened.
func TestParams_RejectsUnknownFilterValue(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{
		leads + "?source=", leads + "?leadTemperature=", leads + "/refused?source=", leads + "/refused?code=",
		"/api/v1/crm/sources/history?source=", "/api/v1/crm/sources/report?source=", "/api/v1/crm/sources/report?interval=",
		"/api/v1/crm/audit/tokens?type=",
	} {
		_, name, _ := strings.Cut(path, "?")
		require.Equal(t, []string{strings.TrimSuffix(name, "=")}, s.as(http.MethodGet, path+"nonesuch", "").fieldsNamed(), path)
		if name != "interval=" { // which the document does not have empty
			require.Equal(t, http.StatusOK, s.as(http.MethodGet, path, "").status, "an empty one is none")
		}
	}
	s.capture(`{"phone":"9876543210","leadTemperature":"hot","metadata":{"source":"website"}}`)
	for _, filter := range []string{"source=website", "source=Website", "leadTemperature=HOT"} {
		require.Len(t, s.as(http.MethodGet, leads+"?"+filter, "").at("data"), 1, filter)
	}
}
