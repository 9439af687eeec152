package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A capture, a line of a batch and a dry run warn alike.
func TestCapture_Warnings(t *testing.T) {
	t.Parallel()
	s := start(t)
	codes := func(answer map[string]any) (codes []any) {
		warnings, _ := answer["warnings"].([]any)
		for _, one := range warnings {
			require.NotEmpty(t, one.(map[string]any)["message"])
			codes = append(codes, one.(map[string]any)["field"], one.(map[string]any)["code"])
		}
		return codes
	}
	want := []any{"name", "NOT_A_NAME", "metadata.source", "UNKNOWN_SOURCE"}
	dry := s.send(call{method: http.MethodPost, path: leads + "?dryRun=true", credential: s.jwt, body: `{"phone":"9876500001","name":"{{name}}","metadata":{"source":"Website"}}`}).is(http.StatusCreated)
	require.Equal(t, want, codes(dry.body))
	single := s.send(call{method: http.MethodPost, path: leads, credential: s.jwt, body: `{"phone":"9876500001","name":"{{name}}","metadata":{"source":"Website"}}`}).is(http.StatusCreated)
	require.Equal(t, want, codes(single.body))
	lines := s.sendBatch(`{"phone":"9876500002","name":"{{name}}","metadata":{"source":"Website"}}` + "\n" + `{"phone":"9876500003","name":"Asha"}` + "\n").lines(t)
	require.Equal(t, want, codes(lines[0]))
	require.NotContains(t, lines[1], "warnings")
	quiet := s.send(call{method: http.MethodPost, path: leads, credential: s.jwt, body: `{"phone":"9876500004","name":"Asha"}`}).is(http.StatusCreated)
	require.NotContains(t, quiet.raw, "warnings")
}
