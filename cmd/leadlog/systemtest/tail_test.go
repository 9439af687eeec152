package systemtest

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTail_From(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	capture := func(email string) string {
		t.Helper()
		return mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"email":"`+email+`"}`).is(t,
			http.StatusCreated).data()["leadId"].(string)
	}
	early := capture("early@example.com")
	time.Sleep(2 * time.Millisecond) // times have whole milliseconds
	since := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	late := capture("late@example.com")

	for from, first := range map[string]string{"0": early, since: late} {
		tail := launch(t, settings, "tail", "--type", "lead.created", "--from", from)
		tail.waitFor(t, tail.out, `(`+late+`)`)
		require.Equal(t, first == early, tail.waitFor(t, tail.out, `lead-(\w+)`) == early, from)
	}
	for _, from := range []string{"999999999", "-1", "x", "9223372036854775808", "2026-13-01T00:00:00Z"} {
		refused := launch(t, settings, "tail", "--from="+from).exits(t, 2)
		require.Contains(t, refused.err.String(), "--from", from)
	}
	refused := launch(t, settings, "replay", "lead", "--into", "later", "--until", "999999999").exits(t, 2)
	require.Contains(t, refused.err.String(), "--until")
}
