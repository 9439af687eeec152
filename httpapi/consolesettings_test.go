package httpapi_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

var previewRows = regexp.MustCompile(
	`<tr><th scope="row">([^<]+)</th><td>(added|removed|kept)</td>(?:<td>([^<]+)</td>)?</tr>`,
)

func TestConsoleSettings_PreviewsAndSaves(t *testing.T) {
	t.Parallel()
	b := browse(t)
	b.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, SharedAfter: new(2), Region: "DE",
		IgnoredContacts: []string{"test@test.com", "x@gone.example"},
	})
	for _, body := range []string{
		`{"phone":"+919876500001","email":"a@calls.example","metadata":{"source":"website"}}`,
		`{"phone":"+919876500002","email":"b@calls.example","metadata":{"source":"website"}}`,
		`{"phone":"+919876500003","email":"c@calls.example.com","metadata":{"source":"website"}}`,
		`{"phone":"+919876500004","email":"a@calls.example","metadata":{"source":"website"}}`,
	} {
		b.capture(body)
	}
	b.caughtUp()
	b.signIn(b.mint(ownAccount, "admin leads:read"))
	page := b.get("/console/settings")
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.body, ">test@test.com\nx@gone.example</textarea>")
	require.Contains(t, page.body, `name="sharedAfter" type="number" min="0" max="1000" required value="2"`)
	require.Contains(t, page.body, `href="/console/settings" data-go="e" class="begins" aria-current="page">Settings`)

	list := "test@test.com\n *@CALLS.example\n\n+91 98765 00003\na@calls.example"
	shown := b.post("/console/settings/preview", "ignoredContacts", list, "sharedAfter", "2")
	require.Equal(t, http.StatusOK, shown.status, shown.body)
	var rows [][]string
	for _, row := range previewRows.FindAllStringSubmatch(shown.body, -1) {
		rows = append(rows, row[1:])
	}
	require.Equal(t, [][]string{
		{"*@calls.example", "added", "2 leads"}, {"&#43;919876500003", "added", "1 lead"},
		{"a@calls.example", "added", "1 lead"},
		{"x@gone.example", "removed", "0 leads"}, {"test@test.com", "kept", "0 leads"},
	}, rows)
	require.Contains(t, shown.body, "With contacts shared after 2, 1 lead would be listed")
	require.Contains(t, shown.body, ">test@test.com\n *@CALLS.example", "the form keeps what was posted")
	require.Contains(t, b.get("/console/settings").body, "x@gone.example", "a preview saves nothing")
	require.Contains(t, b.post("/console/settings/preview", "ignoredContacts", "", "sharedAfter", "0").body,
		"Contacts would never be shared")

	for _, action := range []string{"", "/preview"} {
		for field, form := range map[string][]string{
			"entry 2 must be a phone": {"ignoredContacts", "test@test.com\nnobody", "sharedAfter", "2"},
			"must be between 0 and":   {"ignoredContacts", "", "sharedAfter", "many"},
		} {
			r := b.post("/console/settings"+action, form...)
			require.Equal(t, http.StatusBadRequest, r.status)
			require.Contains(t, r.body, field)
			require.Contains(t, r.body, `aria-invalid="true"`)
		}
	}
	require.Equal(t, "/console/settings", b.post("/console/settings", "ignoredContacts", list, "sharedAfter", "7").goTo)
	saved := b.send(call{
		method: http.MethodGet, path: accounts + b.account, credential: b.mint(ownAccount, "admin"),
	}).is(http.StatusOK)
	require.Equal(t, []any{"test@test.com", "*@calls.example", "+919876500003", "a@calls.example"},
		saved.at("data", "ignoredContacts"))
	require.EqualValues(t, 7, saved.at("data", "sharedAfter"))
	require.Equal(t, "DE", saved.at("data", "region"), "other settings stay")
	calls, _ := b.printed("/settings")
	require.Equal(t, accounts+b.account, calls[0].path)
}

func TestConsoleSettings_Rights(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	require.NotContains(t, b.get("/console/").body, "/console/settings")
	for _, r := range []pageReply{
		b.get("/console/settings"), b.post("/console/settings", "ignoredContacts", "", "sharedAfter", "1"),
		b.post("/console/settings/preview"),
	} {
		require.Equal(t, http.StatusForbidden, r.status)
		require.Contains(t, r.body, "Scope admin required")
	}
	b.capture(`{"email":"asha@rao.example","metadata":{"source":"website"}}`)
	b.caughtUp()
	blind := b.service.browser().signIn(b.mint(ownAccount, "admin"))
	shown := blind.post("/console/settings/preview", "ignoredContacts", "asha@rao.example", "sharedAfter", "5")
	require.Equal(t, http.StatusOK, shown.status)
	require.Equal(t, []string{"asha@rao.example", "added", ""}, previewRows.FindStringSubmatch(shown.body)[1:],
		"counts need leads:read")
}
