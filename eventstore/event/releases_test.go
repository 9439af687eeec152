package event

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReleases_EventsStayReadable requires that every event that a release could write is decoded, and encoded again as
// it was: members may be added, with omitzero. Logs have events of these forms. make release-data writes those of the
// version that is about to be released.
func TestReleases_EventsStayReadable(t *testing.T) {
	t.Parallel()
	const file = "events.txt"
	if release := os.Getenv("LEADLOG_TEST_RELEASE"); release != "" {
		var list bytes.Buffer
		for _, name := range Catalogue() {
			fmt.Fprintf(&list, "%s %s\n", name, golden(t, name))
		}
		require.NoError(t, os.WriteFile(filepath.Join(release, file), list.Bytes(), 0o644))
	}
	lists, err := filepath.Glob("../../deploy/releases/*/" + file)
	require.NoError(t, err)
	require.NotEmpty(t, lists)
	for _, list := range lists {
		content, err := os.ReadFile(list)
		require.NoError(t, err)
		for line := range strings.Lines(string(content)) {
			name, encoded, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			advice := fmt.Sprintf("logs have events of %s as in %s, which may only gain members with omitzero. Any other "+
				"change is a new version of the type, and Decode makes it of the old one. If the release is not tagged "+
				"yet: make release-data", name, list)
			fact, err := Decode(name, []byte(encoded))
			require.NoError(t, err, advice)
			again, err := AppendJSON(nil, fact)
			require.NoError(t, err)
			require.Equal(t, encoded, string(again), advice)
		}
	}
}

// An absent member is the zero value. A default would change the meaning of stored events.
func TestDecode_NoDefaults(t *testing.T) {
	t.Parallel()
	for _, sample := range samples() {
		decoded, err := Decode(sample.EventType(), []byte(`{}`))
		require.NoError(t, err)
		require.True(t, reflect.ValueOf(decoded).IsZero(), sample.EventType())
	}
}

// Logs have metadata of this form.
func TestMetadata_Golden(t *testing.T) {
	t.Parallel()
	given := Metadata{
		Account: "acme", Actor: "user:ada", Credential: "jwt:ada", RequestID: "r-1",
		Causation: "01KAHQ5V8M3N6R9T2W4Y7Z0B1C", Correlation: "01KAHQ5V8M3N6R9T2W4Y7Z0B1D",
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", IP: "192.0.2.1",
		UserAgent: "curl/8 <ü>", Line: "7", Commitment: "4644687593af192a",
	}
	const golden = `{"account":"acme","actor":"user:ada","credential":"jwt:ada","requestId":"r-1",` +
		`"causation":"01KAHQ5V8M3N6R9T2W4Y7Z0B1C","correlation":"01KAHQ5V8M3N6R9T2W4Y7Z0B1D",` +
		`"traceParent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","ip":"192.0.2.1",` +
		`"userAgent":"curl/8 <ü>","line":"7","commitment":"4644687593af192a"}`
	encoded, err := given.Encode()
	require.NoError(t, err)
	require.Equal(t, golden, string(encoded))
	decoded, err := DecodeMetadata([]byte(golden))
	require.NoError(t, err)
	require.Equal(t, given, decoded)
}
