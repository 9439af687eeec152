package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConsoleConsents_RecordAndWithdraw(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	captured := b.capture(`{"phone":"9876500001","metadata":{"source":"website","consent":
		{"purpose":"whatsapp","text":"Send me offers","url":"https://example.com/form"}}}`)
	id := captured.at("data", "leadId").(string)
	at := "/console/leads/" + id
	page := b.get(at).body
	require.Contains(t, page, `<th scope="row">whatsapp</th><td><span class="state active">granted</span></td>`)
	require.NotContains(t, page, "Send me offers", "the words are masked")
	revealed := b.post(at + "/reveal").body
	require.Contains(t, revealed, "Send me offers")
	require.Contains(t, revealed, "https://example.com/form")

	withdraw := []string{"purpose", "whatsapp", "granted", "false", "method", "console"}
	require.Equal(t, at+"#consents", b.post(at+"/consents", withdraw...).goTo)
	page = b.get(at).body
	require.Contains(t, page, `<th scope="row">whatsapp</th><td><span class="state">withdrawn</span></td>`)
	require.Contains(t, page, "Earlier consents")
	require.Contains(t, page, "Consent withdrawn: whatsapp")
	require.Equal(t, at+"#consents", b.post(at+"/consents", "purpose", "call", "granted", "true", "text", "Call me").goTo)
	require.Contains(t, b.get(at).body, "Consent recorded: call")
	require.Equal(t, http.StatusBadRequest, b.post(at+"/consents", "purpose", " ").status)
	consents := b.as(http.MethodGet, leads+"/"+id+"/consents?current=true", "").is(http.StatusOK).at("data").([]any)
	require.Len(t, consents, 2)
	require.Equal(t, "Call me", consents[1].(map[string]any)["text"])
}
