package httpapi_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// printedCall is a call of the API that a page of the console offers to copy.
type printedCall struct{ about, scope, path string }

var (
	printedCalls = regexp.MustCompile(`(?s)<h2 id="call-\d+-about">([^<]+)(?: <code>([^<]+)</code>)?</h2>.*?<pre ` +
		`id="call-\d+">([^<]+)</pre>`)
	curlCall = regexp.MustCompile(`^curl (-H "Authorization: Bearer \$TOKEN" )?'(http[^']+)'$`)
	rowKeys  = regexp.MustCompile(`<tr data-key="([^"]+)"`)
)

// printed returns the API calls and the commands that a page prints.
func (b *browser) printed(page string) (calls []printedCall, commands []string) {
	b.t.Helper()
	r := b.get("/console" + page)
	require.Equal(b.t, http.StatusOK, r.status, page)
	for _, found := range printedCalls.FindAllStringSubmatch(r.body, -1) {
		text := html.UnescapeString(found[3])
		if !strings.HasPrefix(text, "curl ") {
			commands = append(commands, text)
			continue
		}
		curl := curlCall.FindStringSubmatch(text)
		require.NotNil(b.t, curl, text)
		require.Equal(b.t, found[2] != "", curl[1] != "", text)
		path, isLocal := strings.CutPrefix(curl[2], b.server.URL)
		require.True(b.t, isLocal, text)
		calls = append(calls, printedCall{found[1], found[2], path})
	}
	return calls, commands
}

// Each printed call succeeds with the scope that the page names. The first call of a list returns the rows that the
// list shows.
func TestConsole_PrintedCallsWork(t *testing.T) {
	t.Parallel()
	b := unlimited(t).browser()
	b.fanOut()
	b.signIn(b.jwt)
	won := b.capture(
		`{"name":"Asha O'Neil","phone":"9876543210","status":"won","opportunityValue":10,`+
			`"metadata":{"source":"website"}}`,
	).at("data", "leadId").(string)
	b.capture(`{"name":"Bela","email":"bela+x@example.com","metadata":{"source":"whatsapp"}}`)
	token := b.as(http.MethodPost, "/api/v1/crm/tokens", `{"name":"one","expiresInDays":30}`).is(http.StatusCreated).
		at("data", "tokenId").(string)
	b.as(http.MethodPost, "/api/v1/crm/tokens", `{"name":"two","expiresInDays":30}`).is(http.StatusCreated)
	intake := b.as(http.MethodPost, "/api/v1/crm/intakes", `{"name":"Form","kind":"form"}`).is(http.StatusCreated).
		at("data", "intakeId").(string)
	b.send(call{
		method: http.MethodPost, path: "/in/" + intake, body: `{"name":"Cara","email":"cara@example.com"}`,
	}).is(http.StatusOK)
	endpoint := b.as(http.MethodPost, "/webhooks/endpoints",
		`{"url":"https://example.com/hook"}`).is(http.StatusCreated).at("data", "webhookId").(string)
	tested := b.as(http.MethodPost, "/webhooks/endpoints/"+endpoint+"/test", "").is(http.StatusAccepted)
	delivery := tested.at("data", "deliveryId").(string)
	b.caughtUp()
	arrival := b.as(http.MethodGet, "/api/v1/crm/arrivals",
		"").body["data"].([]any)[0].(map[string]any)["arrivalId"].(string)

	today := time.Now().UTC().Format("2006-01-02")
	for _, c := range []struct {
		page string
		rows int    // number of rows in the answer to the first call and on the page; -1: not a list
		id   string // of a row
	}{
		{"/", -1, ""},
		{"/leads", 3, "leadId"}, {"/leads?status=won&source=website&leadTemperature=warm", 1, "leadId"},
		{"/leads?q=asha+o%27neil", 1, "leadId"},
		{"/leads?phone=98765+43210", 1, "leadId"}, {"/leads?email=BELA%2Bx@example.com", 1, "leadId"},
		{"/leads?createdSince=" + today + "&createdUntil=" + today, 3, "leadId"},
		{"/leads?createdUntil=2020-01-01", 0, "leadId"},
		{"/leads/" + won, -1, ""},
		{"/pipeline", -1, ""}, {"/pipeline?interval=week&asOf=1", -1, ""}, {"/sources", -1, ""}, {"/sources?interval=week&source=website&since=2026-01-01&compare=previous", -1, ""},
		{"/sources/attribution", -1, ""}, {"/sources/attribution?model=linear&by=campaign&asOf=1", -1, ""},
		{"/tokens", 2, "tokenId"},
		{"/audit", 2, "id"}, {"/audit?type=token.created&tokenId=" + token, 1, "id"},
		{"/audit?until=2020-01-01", 0, "id"},
		{"/audit/trail?type=token.created&since=" + today, 2, "id"},
		{"/audit/trail?actor=user:ann&subject=" + endpoint, 2, "id"},
		{"/intakes", 1, "intakeId"}, {"/intakes/" + intake, -1, ""},
		{"/arrivals", 1, "arrivalId"}, {"/arrivals?state=quarantined&reason=email&since=" + today, 0, "arrivalId"},
		{"/arrivals?intakeId=" + intake, 1, "arrivalId"},
		{"/arrivals/" + arrival, -1, ""},
		{"/webhooks", 1, "webhookId"}, {"/webhooks/" + endpoint, -1, ""},
		{"/webhooks/" + endpoint + "?state=queued&type=webhook.test", -1, ""},
		{"/webhooks/" + endpoint + "/deliveries/" + delivery, -1, ""},
		{"/projections", -1, ""}, {"/usage", -1, ""},
	} {
		calls, _ := b.printed(c.page)
		require.NotEmpty(t, calls, c.page)
		var first reply
		for i, one := range calls {
			credential := ""
			if one.scope != "" {
				credential = b.mint(ownAccount, one.scope)
			}
			answer := b.send(call{method: http.MethodGet, path: one.path, credential: credential})
			require.Equal(t, http.StatusOK, answer.status, "%s: %s: %s", c.page, one.path, answer.raw)
			if i == 0 {
				first = answer
			}
		}
		if c.rows < 0 {
			continue
		}
		var shown, listed []string
		for _, key := range rowKeys.FindAllStringSubmatch(b.get("/console"+c.page).body, -1) {
			shown = append(shown, key[1])
		}
		for _, item := range first.body["data"].([]any) {
			listed = append(listed, item.(map[string]any)[c.id].(string))
		}
		require.Len(t, listed, c.rows, c.page)
		require.ElementsMatch(t, shown, listed, c.page)
	}

	require.Empty(t, printedCalls.FindAllString(b.get("/console/leads?phone=12").body, -1),
		"a page with an invalid filter prints no call")
	for page, want := range map[string]string{
		"/leads?createdSince=2026-01-02": "leadlog export leads --account ACCOUNT --since " +
			"2026-01-02T00:00:00Z",
		"/leads?createdUntil=2026-01-02": "leadlog export leads --account ACCOUNT --until " +
			"2026-01-03T00:00:00Z",
		"/leads?status=won": "",
		"/audit?since=2026-01-02": "leadlog export tokens --account ACCOUNT --since " +
			"2026-01-02T00:00:00Z",
		"/audit?tokenId=" + token: "",
		"/sources?since=2026-01-02&until=2026-01-02": "leadlog export touches --account ACCOUNT --since " +
			"2026-01-02T00:00:00Z --until 2026-01-03T00:00:00Z",
		"/sources?source=website": "",
		"/sources/attribution?since=2026-01-02&until=2026-01-02": "leadlog report attribution --account ACCOUNT " +
			"--model last --by source --since 2026-01-02T00:00:00Z --until 2026-01-03T00:00:00Z --out report.json",
	} {
		_, commands := b.printed(page)
		require.Equal(t, strings.ReplaceAll(want, "ACCOUNT", b.account), strings.Join(commands, "\n"), page)
	}

	// Values of filters are quoted for the shell.
	calls, _ := b.printed("/leads?q=" + url.QueryEscape(`'; rm -rf "$HOME" #`))
	require.Equal(t, "/api/v1/crm/leads?q=%27%3B+rm+-rf+%22%24HOME%22+%23", calls[0].path)

	blind := b.service.browser().signIn(b.mint(ownAccount, "webhooks:read"))
	calls, _ = blind.printed("/")
	require.Equal(t, []string{"/webhooks/endpoints"}, []string{calls[0].path})
	require.Len(t, calls, 1, fmt.Sprint("a page prints only calls that the session's scopes allow: ", calls))
}
