package httpapi_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

// strangers are three persons who gave one email: the first two are one lead, the third is not. It returns the id of
// the lead.
func (b *browser) strangers() (id string, last reply) {
	b.t.Helper()
	b.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, SharedAfter: new(2)})
	id = b.capture(`{"phone":"9876500001","email":"test@test.com","name":"Asha Rao","metadata":{"source":"website"}}`).
		at("data", "leadId").(string)
	b.capture(`{"phone":"9876500002","email":"test@test.com","name":"Bala Iyer","metadata":{"source":"website"}}`)
	last = b.capture(`{"phone":"9876500003","email":"test@test.com","name":"Cara","metadata":{"source":"website"}}`)
	require.NotEqual(b.t, id, last.at("data", "leadId"))
	b.as(http.MethodGet, after(leads, last), "").is(http.StatusOK)
	return id, last
}

func TestConsoleLeads_SeveralPersons(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id, last := b.strangers()
	other := last.at("data", "leadId").(string)
	all := b.get("/console/leads").body
	require.Equal(t, 1, strings.Count(all, "several persons?"))
	require.Contains(t, all, `href="/console/leads/`+id+`#parts"`)
	require.Contains(t, all, `href="/console/leads?shared=true"`)
	shared := b.get("/console/leads?shared=true").body
	require.Contains(t, shared, id)
	require.NotContains(t, shared, other)
	require.Contains(t, shared, "<span class=\"hint\">Persons</span> several")
	calls, _ := b.printed("/leads?shared=true")
	require.Equal(t, "/api/v1/crm/leads?shared=true", calls[0].path)
	require.Equal(t, http.StatusBadRequest, b.get("/console/leads?shared=x").status)
	require.Contains(t, b.get("/console/leads/"+id).body, "This looks like several persons.")
	require.NotContains(t, b.get("/console/leads/"+other).body, "This looks like several persons.")
}

var (
	splitButtons = regexp.MustCompile(`<button name="(phone|email|lead)" value="([0-9A-Z]{26})">`)
	splitBoxes   = regexp.MustCompile(`<input type="checkbox" name="touches" value="([0-9A-Z]{26})"`)
	hiddenFields = regexp.MustCompile(`<input type="hidden" name="(phone|email|lead|touches)" value="([^"]+)">`)
)

func TestConsoleSplit_ByContact(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id, _ := b.strangers()
	at := "/console/leads/" + id
	page := b.get(at).body
	require.Contains(t, page, `91•••02 <span class="state active">current</span>`)
	require.NotContains(t, page, "9876500")
	buttons := splitButtons.FindAllStringSubmatch(page, -1)
	require.Len(t, buttons, 3, "an email and two phones")
	require.Len(t, splitBoxes.FindAllString(page, -1), 2)
	require.Contains(t, b.post(at+"/reveal").body, `<th scope="row">&#43;919876500001</th>`)

	require.Equal(t, "phone", buttons[2][1])
	email, phone := buttons[0][2], buttons[2][2]
	preview := at + "/split?phone=" + phone
	shown := b.get(preview)
	require.Equal(t, http.StatusOK, shown.status, shown.body)
	require.NotContains(t, shown.body, "9876500")
	stays, leaves, both := strings.Cut(shown.body, ">New lead<")
	require.True(t, both)
	require.Contains(t, stays, "A••• R•••")
	require.Contains(t, leaves, "B••• I•••")
	require.Contains(t, html.UnescapeString(shown.body), `-d '{"phone":"PHONE"}'`)
	require.Contains(t, b.get(at).body, "This looks like several persons.", "a preview changes nothing")
	revealed := b.post(at + "/split/reveal?phone=" + phone)
	require.Equal(t, http.StatusOK, revealed.status)
	require.Contains(t, revealed.body, "919876500002")
	require.Contains(t, revealed.body, "Bala Iyer")

	everything := b.get(at + "/split?email=" + email)
	require.Equal(t, http.StatusBadRequest, everything.status)
	require.Contains(t, everything.body, "must leave the lead at least one arrival")
	for _, wrong := range []string{
		"", "?phone=x", "?touches=x", "?touches=%ff", "?touches=%", "?lead=" + id, "?phone=" + phone + "&lead=" + id,
	} {
		require.Equal(t, http.StatusBadRequest, b.get(at+"/split"+wrong).status, wrong)
	}

	hidden := hiddenFields.FindAllStringSubmatch(shown.body, -1)
	require.Len(t, hidden, 1)
	require.Equal(t, at, b.post(at+"/split", hidden[0][1], hidden[0][2]).goTo)
	page = b.get(at).body
	require.NotContains(t, page, "This looks like several persons.")
	other := regexp.MustCompile(`href="(/console/leads/[0-9A-Z]{26})">Show the other lead of the split`).
		FindStringSubmatch(page)
	require.NotNil(t, other)
	require.Contains(t, b.get(other[1]).body, "B••• I•••")
	require.Equal(t, http.StatusBadRequest, b.post(at+"/split", hidden[0][1], hidden[0][2]).status, "it has left")
}

func TestConsoleSplit_ByArrivalsAndUndoOfJoin(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id, last := b.strangers()
	other := last.at("data", "leadId").(string)
	at := "/console/leads/" + id
	b.as(http.MethodPost, leads+"/"+id+"/join", `{"from":"`+other+`"}`).is(http.StatusOK)
	page := b.get(at).body
	require.Contains(t, page, `<button name="lead" value="`+other+`">Undo the join`)
	preview := b.get(at + "/split?lead=" + other)
	require.Equal(t, http.StatusOK, preview.status, preview.body)
	require.Contains(t, preview.body, "Becomes a lead again")
	require.Equal(t, at, b.post(at+"/split", "lead", other).goTo)
	require.Equal(t, http.StatusOK, b.get("/console/leads/"+other).status)
	require.NotContains(t, b.get("/console/leads/"+other).body, "This lead was joined")
	require.NotContains(t, b.get(at).body, "Undo the join")

	boxes := splitBoxes.FindAllStringSubmatch(b.get(at).body, -1)
	require.Len(t, boxes, 2)
	chosen := url.Values{"touches": {boxes[0][1]}}
	require.Contains(t, b.get(at+"/split?"+chosen.Encode()).body, "B••• I•••", "the latest is first")
	require.Equal(t, at, b.post(at+"/split", "touches", boxes[0][1]).goTo)
	require.Contains(t, b.get(at).body, `href="?parts=show#parts"`,
		"the history of a lead with one phone is read when asked for")
	alone := b.get(at + "?parts=show").body
	require.Contains(t, alone, `aria-label="Arrivals of the lead"`)
	require.Empty(t, splitBoxes.FindAllString(alone, -1), "one arrival cannot be divided")
}

func TestConsoleSplit_Rights(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id, _ := b.strangers()
	at := "/console/leads/" + id
	touch := splitBoxes.FindStringSubmatch(b.get(at).body)[1]
	reader := b.service.browser().signIn(b.mint(ownAccount, "leads:read"))
	page := reader.get(at).body
	require.Contains(t, page, "This looks like several persons.")
	require.Empty(t, splitBoxes.FindAllString(page, -1))
	require.Empty(t, splitButtons.FindAllString(page, -1))
	require.Equal(t, http.StatusForbidden, reader.get(at+"/split?touches="+touch).status)
	require.Equal(t, http.StatusForbidden, reader.post(at+"/split", "touches", touch).status)
	stranger := b.service.browser().signIn(b.stranger(""))
	require.Equal(t, http.StatusNotFound, stranger.get(at+"/split?touches="+touch).status)
	require.Equal(t, http.StatusNotFound, stranger.get(at+"/split?phone="+touch).status)
	require.Equal(t, http.StatusNotFound, stranger.post(at+"/split", "touches", touch).status)
}
