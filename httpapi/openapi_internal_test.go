package httpapi

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/openapi"
	"github.com/leadlog/leadlog/httpapi/quota"
)

func TestOpenAPI_HasEveryRoute(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths map[string]map[string]jsontext.Value `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(openapi.Document(""), &document))
	var described, served []string
	name := regexp.MustCompile(`\{[^}]*\}|\*`) // OpenAPI cannot describe a parameter with slashes
	for path, item := range document.Paths {
		for method := range item {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+name.ReplaceAllString(path, "{}"))
			}
		}
	}
	a := &api{Options: Options{Metrics: prometheus.NewRegistry()}}
	for _, route := range a.routes() {
		if route.method == http.MethodOptions {
			continue // CORS preflight
		}
		served = append(served, route.method+" "+name.ReplaceAllString(route.pattern, "{}"))
	}
	require.ElementsMatch(t, served, described, "openapi/openapi.yaml describes what routes.go serves")
}

func TestOpenAPI_HasEveryFailure(t *testing.T) {
	t.Parallel()
	type failure struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	}
	described := make(map[failure]bool)
	decoder := jsontext.NewDecoder(bytes.NewReader(openapi.Document("")))
	for {
		token, err := decoder.ReadToken()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if token.Kind() != '"' || token.String() != "value" || decoder.PeekKind() != '{' {
			continue
		}
		value, err := decoder.ReadValue()
		require.NoError(t, err)
		var f failure
		require.NoError(t, json.Unmarshal(value, &f))
		described[f] = true
	}
	for _, row := range failures {
		require.True(t, described[failure{row.message, row.code}],
			"the document has no example with message %q and code %q", row.message, row.code)
	}
}

// Every route has a quota, which must fit its method and access.
func TestRoutes_DeclareQuota(t *testing.T) {
	t.Parallel()
	a := &api{Options: Options{Metrics: prometheus.NewRegistry()}}
	for _, route := range a.routes() {
		name := route.method + " " + route.pattern
		require.NotZero(t, route.kind, name)
		// preflights and challenges of an intake count as posts
		if route.kind != quota.Free && route.kind != quota.Arrival {
			require.Equal(t, route.method == http.MethodGet, route.kind.Reads(), name)
		}
	}
}
