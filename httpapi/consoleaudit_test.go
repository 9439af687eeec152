package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

func TestReveal_RecordedBeforeShown(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id := b.capture(`{"name":"Asha Rao","phone":"9876543210","city":"Pune"}`).at("data", "leadId").(string)
	b.capture(`{"phone":"9876543299"}`)
	r := b.post("/console/leads/" + id + "/reveal?raw=0")
	require.Equal(t, http.StatusOK, r.status)
	for _, personal := range []string{"Asha Rao", "&#43;919876543210", "Pune"} {
		require.Contains(t, r.body, personal)
	}
	require.NotContains(t, b.get("/console/leads/"+id).body, "Asha")
	require.Equal(t, http.StatusBadRequest, b.get("/console/leads.csv?phone=12").status, "which shows nothing, and is not noted")
	for _, since := range []string{"x", "0001-01-01T00:30:00%2B14:00"} { // the other is before the year 1
		require.Equal(t, http.StatusBadRequest, b.get("/console/sources/history.csv?since="+since).status, since)
	}
	require.Equal(t, http.StatusOK, b.get("/console/leads.csv?q=asha").status)
	require.Equal(t, http.StatusOK, b.get("/console/sources/history.ndjson").status)

	require.Eventually(t, func() bool { return strings.Count(b.get("/console/audit/reveals").body, "user:ann") == 3 }, soon, pause)
	trail := b.get("/console/audit/reveals.ndjson").body
	require.Regexp(t, `(?s)"what":"sources","leadId":null.*"what":"leads","leadId":null.*"what":"lead","leadId":"`+id, trail)

	// No lead changed by being looked at.
	events := b.as(http.MethodGet, "/api/v1/crm/leads/"+id+"/events", "").body["data"].([]any)
	require.Len(t, events, 1)

	stranger := b.service.browser().signIn(b.stranger(""))
	require.Equal(t, http.StatusNotFound, stranger.post("/console/leads/"+id+"/reveal").status)
	require.NotContains(t, stranger.get("/console/audit/reveals").body, "user:ann")
	blind := b.service.browser().signIn(b.mint(ownAccount, "tokens:read"))
	require.Equal(t, http.StatusForbidden, blind.post("/console/leads/"+id+"/reveal").status)
	require.Equal(t, http.StatusForbidden, blind.get("/console/audit/reveals").status)
}

func TestReveal_SourceLeadOfJoin(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	into, from := b.twoLeads()
	b.join(into, from).is(http.StatusOK)
	page := "/console/leads/" + from
	require.Contains(t, b.get(page).body, "<button>Reveal</button>")
	shown := b.post(page + "/reveal")
	require.Equal(t, http.StatusOK, shown.status)
	require.Contains(t, shown.body, "asha@example.com")
	require.Eventually(t, func() bool { return strings.Contains(b.get("/console/audit/reveals").body, from) }, soon, pause)
}

func TestConsoleLead_LinksJoinedLeads(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	into, from := b.twoLeads()
	b.join(into, from).is(http.StatusOK)
	link := func(id string) string { return `href="/console/leads/` + id + `">` + id + `</a>` }
	page := b.get("/console/leads/" + into).body
	require.Contains(t, page, `<dd><a class="mono small" `+link(from))
	require.Contains(t, page, `<p><a class="mono" `+link(from)+` was joined into this lead.</p>`)
	page = b.get("/console/leads/" + from).body
	require.Contains(t, page, `<a href="/console/leads/`+into+`">Show that lead</a>`)
	require.Contains(t, page, `<p>Joined into <a class="mono" `+link(into)+`.</p>`)
}

func TestConsoleLead_MasksReleasedContact(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	holder := b.capture(`{"email":"ann@example.com"}`).at("data", "leadId").(string)
	id := b.capture(`{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`).at("data", "leadId").(string)
	b.capture(`{"phone":"9876543210","email":"ann@example.com","metadata":{"source":"website"}}`)
	b.capture(`{"phone":"9876543211","email":"asha@example.com","metadata":{"source":"website"}}`)
	for _, contact := range []string{`{"phone":"9876543210"}`, `{"email":"asha@example.com"}`} {
		b.as(http.MethodPost, "/api/v1/crm/leads/"+id+"/contacts/release", contact).is(http.StatusOK)
	}
	masked, revealed := b.get("/console/leads/"+id).body, b.post("/console/leads/"+id+"/reveal").body
	for _, page := range []string{masked, revealed} {
		require.Contains(t, page, `<p>The email stays with <a class="mono" href="/console/leads/`+holder+`">`+holder+`</a>.</p>`)
	}
	require.Contains(t, masked, "<p>The phone &#43;91•••10 was released.</p>")
	require.Contains(t, masked, "<p>The email a•••@•••.com was released.</p>")
	require.Contains(t, revealed, "<p>The phone &#43;919876543210 was released.</p>")
}

func TestConsoleLead_MasksActivity(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id := b.capture(`{"phone":"9876543210","visitorId":"v"}`).at("data", "leadId").(string)
	acted := b.act("v", `{"type":"page_view","url":"https://shop.example/people/asha-rao?q=rao#asha","title":"Orders of Asha Rao",`+
		`"referrer":"https://search.example/asha"}`)
	require.Equal(t, http.StatusAccepted, acted.status, acted.raw)
	b.as(http.MethodGet, after(leads+"/"+id+"/activity", acted), "").is(http.StatusOK)
	masked := b.get("/console/leads/" + id).body
	require.Contains(t, masked, "https://shop.example/•••", "the site is nobody's")
	for _, personal := range []string{"asha", "Asha", "rao"} {
		require.NotContains(t, masked, personal)
	}
	revealed := b.post("/console/leads/" + id + "/reveal").body
	for _, personal := range []string{"https://shop.example/people/asha-rao?q=rao#asha", "Orders of Asha Rao"} {
		require.Contains(t, revealed, personal)
	}
}

func TestConsoleAudit_VerifiesProofs(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	for i := range 3 {
		b.post("/console/tokens", "name", fmt.Sprintf("token %d", i), "expiresInDays", "30")
	}
	verified := func(texts ...string) func() bool {
		return func() bool {
			page := b.get("/console/audit").body
			return !slices.ContainsFunc(append(texts, "✓ Verified"), func(text string) bool { return !strings.Contains(page, text) })
		}
	}
	require.Eventually(t, verified("All 3 events shown are leaves"), soon, pause)
	b.post("/console/tokens", "name", "token 4", "expiresInDays", "30")
	require.Eventually(t, verified("All 4 events shown are leaves", "begins with the tree of 3 events"), soon, pause)
	require.Equal(t, 4, strings.Count(b.get("/console/audit").body, "✓ proven"))

	db := pgtest.Connect(t, b.url)
	change := func(sql string) {
		pgtest.Exec(t, db, sql)
	}
	change(`UPDATE views.token_event SET actor = 'user:bob' WHERE leaf = 1`)
	r := b.get("/console/audit")
	require.Contains(t, r.body, "✗ Not verified")
	require.Equal(t, 1, strings.Count(r.body, "✗ does not match the signed tree"))
	require.Equal(t, 3, strings.Count(r.body, "✓ proven"))
	require.Empty(t, r.header.Values("Set-Cookie"), "a tree that is not as it was signed is not what to compare with")
	change(`UPDATE views.token_event SET actor = 'user:ann' WHERE leaf = 1`)
	require.Contains(t, b.get("/console/audit").body, "✓ Verified")

	// What says of itself that it is in no tree, or not yet, is not proven by the others.
	for _, leaf := range []string{"-1", "1000"} {
		change(`UPDATE views.token_event SET actor = 'user:bob', leaf = ` + leaf + ` WHERE leaf = 1`)
		r = b.get("/console/audit")
		require.NotContains(t, r.body, "✓ Verified", leaf)
		require.Contains(t, r.body, "1 event shown here is not in the tree", leaf)
		require.Equal(t, 3, strings.Count(r.body, "✓ proven"))
		change(`UPDATE views.token_event SET actor = 'user:ann', leaf = 1 WHERE leaf = ` + leaf)
	}
	require.Contains(t, b.get("/console/audit").body, "✓ Verified")

	// A tree that was written anew, rows and all, is found out by who saw the one before.
	change(`DELETE FROM views.token_tree`)
	change(`DELETE FROM views.token_event`)
	require.Contains(t, b.get("/console/audit").body, "smaller than the one that this browser saw before")
	require.Contains(t, b.service.browser().signIn(b.jwt).get("/console/audit").body, "No events to prove")
}

func TestConsoleUsage_SeparatesBatchLines(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	b.capture(`{"phone":"9876543210"}`)
	b.capture(`{"phone":"9876543210"}`) // refused
	b.sendBatch("{\"phone\":\"9876543211\"}\n{\"phone\":\"12\"}\n{\"phone\":\"9876543210\"}\n{\"phone\":\"9876543212\"}\n")
	require.Eventually(t, func() bool {
		return strings.Contains(b.get("/console/usage.ndjson").body, `"captures":2,"batchLines":3,"refused":2,"deliveries":0}`)
	}, soon, pause, "of lines those that arrived, whatever became of them")
}

func TestConsole_ExportsEveryPage(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	b.capture(`{"name":"=cmd()","phone":"9876543210","opportunityValue":12,"status":"won"}`)
	b.post("/console/tokens", "name", "form", "expiresInDays", "30")
	b.post("/console/webhooks", "url", "https://example.com/hook", "events", "lead.created")
	for _, file := range [][2]string{ // the leads first: who has their file is what the reveals tell
		{"/leads", "9876543210"}, {"/sources", "api"}, {"/sources/history", "api"}, {"/tokens", "form"}, {"/audit", "token.created"},
		{"/audit/reveals", "user:ann"}, {"/webhooks", "https://example.com/hook"}, {"/projections", "source_history"}, {"/usage", "T00:00:00.000Z"},
	} {
		page, holds := file[0], file[1]
		for ending, kind := range map[string]string{".csv": "text/csv; charset=utf-8", ".ndjson": "application/x-ndjson; charset=utf-8"} {
			require.Eventually(t, func() bool {
				r := b.get("/console" + page + ending)
				require.Equal(t, http.StatusOK, r.status, page)
				require.Equal(t, kind, r.header.Get("Content-Type"))
				return strings.Contains(r.body, holds)
			}, soon, pause, page+ending)
		}
	}
	require.Contains(t, b.get("/console/leads.csv").body, "'=cmd()")
	require.Equal(t, http.StatusBadRequest, b.get("/console/leads.csv?phone=12").status)
}
