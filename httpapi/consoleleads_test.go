package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
)

// trailOf returns the ids of the leads that the audit log has as revealed.
func (b *browser) trailOf(kind string) (subjects []string) {
	b.t.Helper()
	b.caughtUp()
	list := b.as(http.MethodGet, "/api/v1/crm/audit/events?type="+kind, "").is(http.StatusOK).at("data").([]any)
	for _, record := range list {
		subjects = append(subjects, record.(map[string]any)["subject"].(string))
	}
	return subjects
}

func TestConsoleLeads_RevealsPage(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	asha := b.capture(`{"name":"Asha Rao","phone":"9876543210"}`).at("data", "leadId").(string)
	bela := b.capture(`{"name":"Bela Shah","email":"bela@example.com"}`).at("data", "leadId").(string)
	b.caughtUp()
	masked := b.get("/console/leads?status=new")
	require.Contains(t, masked.body, `action="/console/leads/reveal?status=new"`)
	require.NotContains(t, masked.body, "Asha")
	require.Empty(t, b.trailOf("data.revealed"))

	shown := b.post("/console/leads/reveal?status=new")
	require.Equal(t, http.StatusOK, shown.status)
	for _, personal := range []string{"Asha Rao", "&#43;919876543210", "Bela Shah", "bela@example.com"} {
		require.Contains(t, shown.body, personal)
	}
	require.Contains(t, shown.body, `data-address="/console/leads?status=new"`)
	require.NotContains(t, shown.body, `class="live"`, "an update would be a reveal")
	require.ElementsMatch(t, []string{asha, bela}, b.trailOf("data.revealed"))
	require.NotContains(t, b.get("/console/leads").body, "Asha")

	require.Equal(t, http.StatusBadRequest, b.post("/console/leads/reveal?source=nowhere").status)
	require.Len(t, b.trailOf("data.revealed"), 2)
	stranger := b.service.browser().signIn(b.stranger(""))
	require.NotContains(t, stranger.post("/console/leads/reveal").body, "Asha")
	blind := b.service.browser().signIn(b.mint(ownAccount, "tokens:read"))
	require.Equal(t, http.StatusForbidden, blind.post("/console/leads/reveal").status)
}

// With the account's maskInConsole off, pages show leads unmasked, and each lead is still recorded.
func TestConsoleLeads_MaskInConsoleOff(t *testing.T) {
	t.Parallel()
	b := browse(t)
	b.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, MaskInConsole: new(false)})
	b.signIn(b.jwt)
	made := b.capture(`{"name":"Asha Rao","phone":"9876543210","city":"Pune"}`)
	id := made.at("data", "leadId").(string)
	b.caughtUp()
	list := b.get("/console/leads?q=sha+ra")
	require.Contains(t, list.body, "Asha Rao", "parts of names are found too")
	require.NotContains(t, list.body, "/reveal")
	require.Equal(t, []string{id}, b.trailOf("data.revealed"))

	page := b.get("/console/leads/" + id)
	require.Contains(t, page.body, "<h1>Asha Rao</h1>")
	require.Contains(t, page.body, "Pune")
	require.NotContains(t, page.body, "/reveal")

	other := b.capture(`{"name":"Bela Shah","phone":"9876543211"}`).at("data", "leadId").(string)
	b.caughtUp()
	waitFor, rest := b.follow("/console/leads")
	waitFor("Bela Shah")
	_ = rest
	revealed := slices.Sorted(slices.Values(b.trailOf("data.revealed"))) // each once a minute
	require.ElementsMatch(t, []string{id, other}, slices.Compact(revealed))
}

// An arrival shows what it posted without a button, and each view is recorded.
func TestConsoleArrivals_MaskInConsoleOff(t *testing.T) {
	t.Parallel()
	b := browse(t)
	b.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, MaskInConsole: new(false), Quarantine: new(true),
	})
	b.signIn(b.jwt)
	arrival := b.as(http.MethodPost, "/api/v1/crm/leads", `{"name":"Bela","email":"bela@"}`).at("arrivalId").(string)
	b.caughtUp()
	page := b.get("/console/arrivals/" + arrival)
	require.Contains(t, page.body, "bela@")
	require.NotContains(t, page.body, "/reveal")
	require.NotContains(t, page.body, "Hide")
	require.Equal(t, []string{arrival}, b.trailOf("data.revealed"))
}

func TestConsoleSettings_MaskInConsole(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	admin := b.service.browser().signIn(b.mint(ownAccount, "admin leads:read"))
	id := b.capture(`{"name":"Asha Rao","phone":"9876543210"}`).at("data", "leadId").(string)
	b.caughtUp()
	save := func(mask string) {
		t.Helper()
		r := admin.post("/console/settings", "ignoredContacts", "", "sharedAfter", "10", "maskInConsole", mask)
		require.Equal(t, http.StatusSeeOther, r.status, r.body)
	}
	shows := func(want bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			return strings.Contains(b.get("/console/leads/"+id).body, "Asha Rao") == want
		}, soon, pause)
	}
	save("false")
	require.Contains(t, admin.get("/console/settings").body, `<option value="false" selected>`)
	shows(true)
	save("") // a form of before keeps it
	shows(true)
	save("true")
	shows(false)
}

func TestConsoleLead_ChangesFields(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id := b.capture(`{"name":"Asha Rao","phone":"9876543210","city":"Pune","budget":"high"}`).at("data", "leadId").(string)
	b.caughtUp()
	at := "/console/leads/" + id
	lead := func() map[string]any {
		return b.as(http.MethodGet, "/api/v1/crm/leads/"+id, "").is(http.StatusOK).at("data").(map[string]any)
	}
	page := b.get(at)
	require.Contains(t, page.body, `action="`+at+`/stage"`)
	require.NotContains(t, page.body, "Asha", "the form has no personal data")

	saved := b.post(at+"/stage", "status", "contacted", "was-status", "new", "leadTemperature", "hot",
		"was-leadTemperature", "warm", "opportunityValue", "₹ 1,20,000", "was-opportunityValue", "")
	require.Equal(t, at, saved.goTo, saved.body)
	require.Equal(t, []any{"contacted", "hot", 120000.0}, []any{
		lead()["status"], lead()["leadTemperature"], lead()["opportunityValue"],
	})

	// A form that was opened before another change does not undo it.
	require.Equal(t, at, b.post(at+"/stage", "status", "new", "was-status", "new", "leadTemperature", "cold",
		"was-leadTemperature", "warm").goTo)
	require.Equal(t, []any{"contacted", "cold"}, []any{lead()["status"], lead()["leadTemperature"]})

	wrong := b.post(at+"/stage", "opportunityValue", "much", "was-opportunityValue", "120000")
	require.Equal(t, http.StatusBadRequest, wrong.status)
	require.Contains(t, wrong.body, `value="much"`)
	require.Contains(t, wrong.body, `id="value-fault"`)
	require.NotContains(t, wrong.body, "Asha")

	edit := b.get(at + "/edit")
	require.Equal(t, http.StatusOK, edit.status)
	require.Contains(t, edit.body, `value="Asha Rao"`)
	require.Contains(t, b.trailOf("data.revealed"), id)
	saved = b.post(at+"/edit", "name", "Asha Mehta", "was-name", "Asha Rao", "customName", "budget", "custom", "",
		"customWas", "high", "customName", "city", "custom", "Mumbai", "customWas", "Pune", "customName", "plan",
		"custom", "gold", "customWas", "", "customName", "", "custom", "", "customWas", "")
	require.Equal(t, at, saved.goTo, saved.body)
	require.Equal(t, "Asha Mehta", lead()["name"])
	require.Equal(t, map[string]any{"city": "Mumbai", "plan": "gold"}, lead()["customFields"])
	b.post(at+"/edit", "customName", "age", "custom", "41", "customWas", "40", "customKind", "json", "customName", "city",
		"custom", "41", "customWas", "Mumbai", "customKind", "")
	require.Equal(t, map[string]any{"age": 41.0, "city": "41", "plan": "gold"}, lead()["customFields"], "a number stays one")
	for message, form := range map[string][]string{
		"cannot be removed, only replaced": {"name", "", "was-name", "Asha Mehta"},
		"must each have a name":            {"customName", "", "custom", "x", "customWas", ""},
		"must have different names": {
			"customName", "a", "custom", "x", "customWas", "", "customName", "a", "custom", "y", "customWas", "",
		},
	} {
		wrong := b.post(at+"/edit", form...)
		require.Equal(t, http.StatusBadRequest, wrong.status, message)
		require.Contains(t, wrong.body, message)
	}

	reader := b.service.browser().signIn(b.mint(ownAccount, "leads:read"))
	require.NotContains(t, reader.get(at).body, "/stage")
	for _, path := range []string{"/stage", "/edit", "/release", "/join/preview", "/join", "/erase"} {
		require.Equal(t, http.StatusForbidden, reader.post(at+path).status, path)
	}
	require.Equal(t, http.StatusForbidden, reader.get(at+"/edit").status)
	stranger := b.service.browser().signIn(b.stranger(""))
	for _, path := range []string{"/stage", "/edit", "/release", "/join/preview", "/join", "/erase"} {
		r := stranger.post(at+path, "status", "won", "contact", "phone +919876543210", "other", "x", "from", id,
			"typed", "Asha Mehta")
		require.Equal(t, http.StatusNotFound, r.status, path)
	}
	require.Equal(t, "contacted", lead()["status"])
}

func TestConsoleLead_ReleasesContact(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id := b.capture(`{"phone":"9876543210","email":"asha@example.com"}`).at("data", "leadId").(string)
	b.caughtUp()
	at := "/console/leads/" + id
	require.Contains(t, b.get(at+"/edit").body, `value="email asha@example.com"`)
	require.Equal(t, at, b.post(at+"/release", "contact", "email asha@example.com").goTo)
	for contact, message := range map[string]string{
		"": "must be chosen", "name Asha": "must be chosen", "email asha@example.com": "is not one that this lead has",
		"phone +919876543210": "is the lead’s last one",
	} {
		wrong := b.post(at+"/release", "contact", contact)
		require.Equal(t, http.StatusBadRequest, wrong.status, contact)
		require.Contains(t, wrong.body, message)
	}
}

func TestConsoleLead_Joins(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	into := b.capture(`{"name":"Asha Rao","phone":"9876543210"}`).at("data", "leadId").(string)
	from := b.capture(`{"name":"Asha R","email":"asha@example.com"}`).at("data", "leadId").(string)
	b.capture(`{"name":"Twin","phone":"9876543211"}`)
	b.capture(`{"name":"Twin","phone":"9876543212"}`)
	b.caughtUp()
	at := "/console/leads/" + into
	for _, other := range []string{from, strings.ToLower(from), " asha@example.com", "ASHA r"} {
		preview := b.post(at+"/join/preview", "other", other)
		require.Equal(t, http.StatusOK, preview.status, other)
		require.Contains(t, preview.body, `name="from" value="`+from+`"`, other)
		require.Contains(t, preview.body, "asha@example.com")
		require.Contains(t, preview.body, "&#43;919876543210")
	}
	require.Subset(t, b.trailOf("data.revealed"), []string{into, from})
	several := b.post(at+"/join/preview", "other", "twin")
	require.Contains(t, several.body, "Leads that were found")
	require.Contains(t, several.body, "&#43;919876543212")
	for _, other := range []string{"nobody", into, "+919876543210", ""} {
		require.Equal(t, http.StatusBadRequest, b.post(at+"/join/preview", "other", other).status, other)
	}
	require.Equal(t, at, b.post(at+"/join", "from", from).goTo)
	require.Equal(t, into,
		b.as(http.MethodGet, "/api/v1/crm/leads/"+from, "").is(http.StatusOK).at("data", "joinedInto"))
	require.Equal(t, "/console/leads/"+from, b.get("/console/leads/"+from+"/edit").goTo, "it is changed there")
}

func TestConsoleLead_ErasesByName(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id := b.capture(`{"name":"Asha  Rao","phone":"9876543210"}`).at("data", "leadId").(string)
	b.caughtUp()
	at := "/console/leads/" + id
	for _, typed := range []string{"", "Asha", "Asha Raoo"} {
		wrong := b.post(at+"/erase", "typed", typed)
		require.Equal(t, http.StatusBadRequest, wrong.status, typed)
		require.Contains(t, wrong.body, "must be exactly")
	}
	b.as(http.MethodGet, "/api/v1/crm/leads/"+id, "").is(http.StatusOK)
	require.Equal(t, "/console/leads", b.post(at+"/erase", "typed", " asha Rao ").goTo)
	b.as(http.MethodGet, "/api/v1/crm/leads/"+id, "").is(http.StatusNotFound)
	require.Equal(t, http.StatusNotFound, b.get(at).status)
}

var receiptLink = regexp.MustCompile(`/console/leads/[0-9A-Z]{26}/events/[0-9A-Z]{26}/receipt\.txt`)

func TestConsoleLead_SendsReceipt(t *testing.T) {
	t.Parallel()
	s := startAlone(t, withConsole)
	b := s.browser().signIn(s.jwt)
	id := b.capture(`{"phone":"9876543210"}`).at("data", "leadId").(string)
	s.trust()
	b.caughtUp()
	link := receiptLink.FindString(b.get("/console/leads/" + id).body)
	require.NotEmpty(t, link)
	api := strings.TrimSuffix(strings.Replace(link, "/console/", "/api/v1/crm/", 1), ".txt")
	require.Eventually(t, func() bool {
		return b.get(link).status == http.StatusOK
	}, soon, pause, "a checkpoint covers it")
	got := b.get(link)
	require.Contains(t, got.header.Get("Content-Disposition"), "receipt-")
	require.Equal(t, b.as(http.MethodGet, api, "").is(http.StatusOK).raw, got.body)
	require.Equal(t, http.StatusNotFound, b.get(strings.Replace(link, "/receipt", "x/receipt", 1)).status)
	evidence := b.get(strings.Replace(link, "receipt.txt", "evidence.json", 1))
	require.Equal(t, http.StatusOK, evidence.status, fmt.Sprint(evidence.header))
	require.Contains(t, evidence.body, "919876543210")
	require.Contains(t, b.trailOf("data.revealed"), id)
}
