package systemtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/npmtest"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

func TestConsole_InBrowser(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	settings["LEADLOG_WEBHOOK_RETRY_SCHEDULE"] = "1h" // retries are manual
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	api := base + "/api/v1/crm"
	c := openChromium(t, base)

	// Signing in leads to the requested page.
	c.open("/console/leads")
	c.screenshot("sign-in")
	c.accessible("sign-in")
	c.do(chromedp.SetValue("#jwt", jwt, chromedp.ByQuery))
	c.press("Sign in")
	c.waitText("#leads", "No leads yet")

	// An account without leads sees the first steps.
	c.open("/console")
	c.waitText("#start", "Watch it arrive")
	c.screenshot("start")
	c.accessible("start")
	c.open("/console/leads")
	c.waitText("#leads", "No leads yet")
	c.press("First steps")
	c.firstSteps(api, jwt)
	c.open("/console/leads")
	c.waitText("#leads", "No leads yet")

	// A capture appears without a reload.
	c.do(chromedp.Evaluate(`window.here = true`, nil))
	captured := mustCall(t, "POST", api+"/leads", jwt,
		`{"name":"Asha Rao","phone":"9876543210","email":"asha@example.com","city":"Pune",
		"a_name_of_fifty_letters_xxxxxxxxxxxxxxxxxxxxxxxxxx":"x",
		"opportunityValue":120000,"visitorId":"v-1","metadata":{"source":"website"}}`)
	lead := captured.data()["leadId"].(string)
	c.waitVisible(`tr[data-key="` + lead + `"]`)
	require.NotContains(t, c.text("#leads"), "Asha")
	var here bool
	c.do(chromedp.Evaluate(`window.here === true`, &here))
	require.True(t, here, "the page was not loaded again")

	// Times and money have the format of the browser's locale, and UTC is shown on hover.
	var clocks []string
	c.evaluate(`(() => {
		const at = document.querySelector("#leads time");
		const utc = new Date(at.title.replace(" UTC", "Z").replace(" ", "T")), here = new Date(utc.getTime() + 5.5 * 3600e3);
		return [at.textContent, here.toISOString().slice(11, 16).replace(/^0/, ""), document.querySelector("#zone").textContent];
	})()`, &clocks)
	twelve := regexp.MustCompile(`^\d+`).ReplaceAllStringFunc(clocks[1], func(hour string) string {
		n, _ := strconv.Atoi(hour)
		return strconv.Itoa((n+11)%12 + 1)
	})
	require.Contains(t, clocks[0], twelve)
	require.Contains(t, clocks[2], "Asia/")
	require.Contains(t, c.text("#leads"), "₹1,20,000")

	// A lead as of each of its events, and revealed.
	mustCall(t, "POST", api+"/visitors/v-1/activity", jwt,
		`{"type":"page_view","url":"https://example.com/prices?who=me","title":"Prices"}`)
	mustCall(t, "POST", api+"/leads", jwt,
		`{"phone":"9876543210","opportunityValue":150000,"metadata":{"source":"whatsapp"}}`)
	mustCall(t, "PATCH", api+"/leads/"+lead, jwt, `{"status":"won"}`)
	c.press("A•••")
	c.waitText("#now", "won")
	c.waitText("#story", "Viewed a page on example.com")
	c.waitText("#story", "Captured again through WhatsApp: value changed")
	c.do(chromedp.Evaluate(`document.querySelector("#story .aside details").open = true`, nil))
	c.waitText("#story", "https://example.com/•••")

	// In a low window the lead scrolls separately from its events, and keeps its scroll position after an update.
	c.do(chromedp.EmulateViewport(1280, 300))
	c.waitFor(`(() => {
		const now = document.querySelector("#now");
		scrollTo(0, 100);
		now.scrollTop = now.scrollHeight;
		return now.scrollTop > 0 && now.lastElementChild.getBoundingClientRect().bottom <= innerHeight;
	})()`)
	mustCall(t, "PATCH", api+"/leads/"+lead, jwt, `{"status":"lost"}`)
	c.waitText("#now", "lost")
	c.waitFor(`document.querySelector("#now").scrollTop > 0`)
	c.waitText("#story", "Changed: status lost")
	c.waitText("#story", "https://example.com/•••") // the details are still unfolded
	c.do(chromedp.EmulateViewport(1280, 900))

	c.follow(`(() => { document.querySelector("#as-of").open = true; return document.querySelector('.slider ` +
		`a[href="?revision=0"]') })()`)
	c.waitText("#now", "As of event 0")
	c.waitText("#now", "₹1,20,000")
	c.waitText(".slider", "3")
	c.follow(
		`(() => { const one = document.querySelector("#event-3 details"); one.open = true; return ` +
			`one.querySelector("a[href*=raw]") })()`,
	)
	c.waitText("#event-3", "won")
	c.waitText("pre", `"status": "lost"`)
	c.press("Show its current state")
	c.press("Reveal")
	c.waitText("h1", "Asha Rao")
	c.waitText("#now", "Pune")
	c.open("/console/audit/trail")
	c.waitFor(`document.querySelector('#trail a[href$="/leads/` + lead + `"]') !== null`)
	c.do(emulation.SetEmulatedMedia().WithMedia("print")) // paper has the account and the time zone
	require.Regexp(t, `^Account acme\. Times are in Asia/\w+\. Days in charts, reports and filters are UTC\.$`,
		strings.TrimSpace(c.text("footer")))
	c.do(emulation.SetEmulatedMedia().WithMedia(""))

	c.work(api, jwt, lead)
	token := c.tokens(api)
	endpoint := c.delivery(api, jwt)
	intake := c.intake()
	arrival := c.arrival(intake)
	c.credits(api, jwt, lead)
	c.chart(api, jwt)
	c.shortcuts()
	c.filters(endpoint, "/leads", "/sources", "/arrivals", "/audit", "/audit/trail", "/sources/attribution")
	c.printedCalls(settings, jwt, lead)
	c.visitPages([][2]string{
		{"overview", ""}, {"leads", "/leads"}, {"lead", "/leads/" + lead + "?raw=1"}, {"lead-edit", "/leads/" + lead + "/edit"},
		{"pipeline", "/pipeline"}, {"sources", "/sources"},
		{"attribution", "/sources/attribution"}, {"tokens", "/tokens"},
		{"rotate", "/tokens/" + token + "/rotate"}, {"audit", "/audit"}, {"trail", "/audit/trail"},
		{"webhooks", "/webhooks"},
		{"webhook", endpoint}, {"delivery", c.lastDelivery(endpoint)}, {"projections", "/projections"},
		{"intakes", "/intakes"},
		{"intake", intake}, {"intake-new", "/intakes/new?kind=webhook"}, {"intake-edit", intake + "/edit"},
		{"usage", "/usage"},
		{"arrivals", "/arrivals"}, {"arrival", arrival},
	})
	c.longCampaign(api, jwt)
	c.menu()
	c.unmasked(settings, lead)
	c.requireNoErrors()
	c.fieldError()
	c.form(api, jwt)
	c.fileWithoutSession()
}

// firstSteps creates a form, sends a test lead and waits for it, adds and removes demo data, and deletes the lead and
// the form.
func (c *chromium) firstSteps(api, jwt string) {
	c.t.Helper()
	c.press("Create a form")
	c.do(chromedp.SetValue("#name", "Site", chromedp.ByQuery))
	c.press("Create")
	c.waitText("#html", "data-leadlog")
	c.open("/console")
	c.waitText("#start", "Site")
	c.waitText("#start", "It appears here.")
	address := mustCall(c.t, "GET", api+"/intakes", jwt, "").is(c.t, 200).body["data"].([]any)[0].(map[string]any)
	mustCall(c.t, "POST", c.base+address["url"].(string), "", `{"name":"Asha Rao","email":"asha@example.org"}`).
		is(c.t, 200)
	c.waitText("#start", "arrived") // the page is kept up to date
	c.press("Add demo data")
	c.waitText("main", "Add 40 made-up leads")
	c.press("Add demo data")
	c.waitText("#demo", "40 leads")
	c.press("Remove demo data")
	c.press("Remove")
	for strings.Contains(c.text("#demo"), "partly removed") { // on a slow machine a request does not erase all leads
		c.open("/console/demo/remove")
		c.press("Remove")
	}
	c.waitText("#start", "arrived")
	remaining := mustCall(c.t, "GET", api+"/leads", jwt, "").is(c.t, 200).body["data"].([]any)
	require.Len(c.t, remaining, 1)
	mustCall(c.t, "DELETE", api+"/leads/"+remaining[0].(map[string]any)["leadId"].(string), jwt, "").is(c.t, 200)
	mustCall(c.t, "DELETE", api+"/intakes/"+address["intakeId"].(string), jwt, "").is(c.t, 200)
}

// work changes a lead on its page, reveals the list, and joins and erases another lead.
func (c *chromium) work(api, jwt, lead string) {
	c.t.Helper()
	of := func() map[string]any { return mustCall(c.t, "GET", api+"/leads/"+lead, jwt, "").is(c.t, 200).data() }
	c.open("/console/leads/" + lead)
	c.do(chromedp.SetValue("#status", "qualified", chromedp.ByQuery),
		chromedp.SetValue("#temperature", "hot", chromedp.ByQuery))
	c.press("Save")
	c.waitText("#now", "qualified")
	require.Equal(c.t, []any{"qualified", "hot", 150000.0}, []any{
		of()["status"], of()["leadTemperature"], of()["opportunityValue"],
	})
	c.press("Edit lead")
	c.do(chromedp.SetValue("#name", "Asha R Rao", chromedp.ByQuery), chromedp.SetValue("#new-0", "plan", chromedp.ByQuery),
		chromedp.SetValue("#value-0", "gold", chromedp.ByQuery))
	c.press("Save")
	c.waitText("#story", "name changed, plan added")
	require.Equal(c.t, "Asha R Rao", of()["name"])

	mustCall(c.t, "POST", api+"/leads", jwt, `{"name":"Asha Twin","phone":"9876543290"}`).is(c.t, 201)
	c.open("/console/leads")
	c.waitText("#leads", "A••• T•••")
	c.press("Reveal")
	c.waitText("#leads", "Asha Twin")
	c.waitText("#leads", "+919876543210")
	c.accessible("revealed leads")
	c.do(chromedp.Reload()) // shows the masked page
	c.waitText("#leads", "A••• T•••")

	other := mustCall(c.t, "POST", api+"/leads", jwt, `{"name":"Bela Shah","phone":"9876543291"}`).is(c.t, 201)
	gone := other.data()["leadId"].(string)
	c.open("/console/leads/" + gone + "/edit")
	c.do(chromedp.SetValue("#other", "asha twin", chromedp.ByQuery))
	c.follow(`document.querySelector("#other").form.querySelector("button")`)
	c.waitText("main", "becomes part of the first")
	c.accessible("join")
	c.press("Join")
	c.waitText("#story", "Another lead was joined")
	c.press("Edit lead")
	c.do(chromedp.SetValue("#typed", "Bela Shah", chromedp.ByQuery))
	c.press("Erase")
	c.waitText("h1", "Leads")
	mustCall(c.t, "GET", api+"/leads/"+gone, jwt, "").is(c.t, 404)
	mustCall(c.t, "PATCH", api+"/leads/"+lead, jwt, `{"status":"lost"}`).is(c.t, 200)
}

// menu opens the menu of a phone, which is one button, and follows it.
func (c *chromium) menu() {
	c.t.Helper()
	c.emulate(390, "light")
	c.open("/console/usage")
	var shown []bool
	c.evaluate(`(() => {
		const seen = () => document.querySelector("#pages").checkVisibility();
		const all = [seen()];
		document.querySelector("[popovertarget=pages]").click();
		return [...all, seen()];
	})()`, &shown)
	require.Equal(c.t, []bool{false, true}, shown)
	c.accessible("menu")
	c.screenshot("menu")
	c.follow(`document.querySelector('#pages a[href$="/attribution"]')`)
	c.waitText("h1", "Attribution")
	c.emulate(1280, "light")
	c.waitFor(`document.querySelector("#pages").checkVisibility() && ` +
		`!document.querySelector("[popovertarget=pages]").checkVisibility()`)
}

// unmasked sets maskInConsole to false. The pages show the lead without a button, and fit.
func (c *chromium) unmasked(settings map[string]string, lead string) {
	c.t.Helper()
	launch(c.t, settings, "account", "set", "acme", "--no-mask-in-console").exits(c.t, 0)
	var unmasked bool // the setting is cached
	c.evaluate(`fetch("/console/leads").then((page) => page.text()).then((text) => text.includes("Asha R Rao") || undefined)`,
		&unmasked, awaitPromise)
	for _, width := range []int64{1280, 390} {
		c.emulate(width, "dark")
		c.open("/console/leads")
		c.waitText("#leads", "Asha R Rao")
		c.accessible("unmasked leads")
		c.screenshot(fmt.Sprintf("unmasked-leads-%d", width))
		c.open("/console/leads/" + lead)
		c.waitText("h1", "Asha R Rao")
		c.accessible("unmasked lead")
	}
	launch(c.t, settings, "account", "set", "acme", "--mask-in-console").exits(c.t, 0)
	c.emulate(1280, "light")
}

// credits sets the lead's status to won, selects a model on its page, and checks the paths of sources on the
// attribution page.
func (c *chromium) credits(api, jwt, lead string) {
	c.t.Helper()
	won := mustCall(c.t, "PATCH", api+"/leads/"+lead, jwt, `{"status":"won"}`).is(c.t, 200)
	mustCall(c.t, "GET", api+"/attribution?minPosition="+won.header.Get("X-Log-Position"), jwt, "").is(c.t, 200)
	c.open("/console/leads/" + lead)
	c.do(chromedp.Evaluate(`document.querySelector("#touches-table").open = true`, nil))
	c.waitText("#touches", "\t1\t₹1,50,000")
	c.follow(`(() => { document.querySelector("#model").value = "linear"; return document.querySelector("#touches ` +
		`button") })()`)
	c.waitText("#touches", "₹75,000")
	c.open("/console/sources/attribution")
	c.waitText("#paths", "WhatsApp")
}

// longCampaign captures a lead with a campaign of a long name. The numbers of its rows stay visible.
func (c *chromium) longCampaign(api, jwt string) {
	c.t.Helper()
	c.emulate(1280, "light")
	won := mustCall(c.t, "POST", api+"/leads", jwt,
		`{"phone":"9876543219","status":"won","metadata":{"utm_campaign":"`+strings.Repeat("W", 300)+`"}}`).is(c.t, 201)
	mustCall(c.t, "GET", api+"/attribution?minPosition="+won.header.Get("X-Log-Position"), jwt, "").is(c.t, 200)
	for _, page := range [][2]string{
		{"/sources", "#campaigns"}, {"/sources/attribution?by=campaign", "#attribution"},
		{"/sources/attribution?by=campaign", "#paths"},
	} {
		c.open("/console" + page[0])
		c.waitText(page[1], "WWW")
		var fits bool
		c.evaluate(
			fmt.Sprintf(`(() => { const table = document.querySelector(%q); return table.scrollWidth <= `+
				`table.clientWidth })()`, page[1]+" .scroll"), &fits,
		)
		assert.True(c.t, fits, page)
	}
}

// chart reads the values of a chart with the pointer and with the keyboard during updates of the page.
func (c *chromium) chart(api, jwt string) {
	c.t.Helper()
	c.open("/console/")
	c.press("Compare to previous period")
	c.waitText("#compared", "The first data are of")
	const last = `[...document.querySelectorAll(".chart g[data-day]")].at(-1)`
	var at struct{ X, Y, Height float64 }
	measure := func() {
		c.evaluate(`(() => { const chart = document.querySelector(".chart");
			chart.scrollIntoView({block: "center", behavior: "instant"});
			const now = `+last+`.getBoundingClientRect();
			return {x: now.x + now.width / 2, y: now.y + now.height / 2, height: chart.offsetHeight}; })()`, &at)
	}
	measure()
	summary, height := c.text(".readout"), at.Height
	shows := `document.querySelector(".readout").innerText.startsWith(` + last + `.dataset.name + " " + ` + last +
		`.dataset.total) &&
		[...document.querySelectorAll(".legend strong")].map((one) => one.textContent).join("|") === ` + last +
		`.dataset.parts`
	c.do(input.DispatchMouseEvent(input.MouseMoved, at.X, at.Y))
	c.waitFor(shows)
	measure()
	require.InDelta(c.t, height, at.Height, 0.1, "the height of the chart is unchanged")
	c.screenshot("chart")
	showsSummary := fmt.Sprintf(`document.querySelector(".readout").innerText === %q`, summary)
	c.do(input.DispatchMouseEvent(input.MouseMoved, 1, 1))
	c.waitFor(showsSummary)
	// After an update replaces the chart under the pointer, the old chart gets no leave event, but the new chart gets
	// an enter event.
	c.do(input.DispatchMouseEvent(input.MouseMoved, at.X, at.Y))
	c.waitFor(shows)
	c.waitFor(`document.body.dispatchEvent(new PointerEvent("pointerover", {bubbles: true})) && ` + showsSummary)
	c.do(input.DispatchMouseEvent(input.MouseMoved, 1, 1))

	arrives := func(phone string) {
		c.t.Helper()
		var before int
		c.evaluate(`+`+last+`.dataset.total`, &before)
		mustCall(c.t, "POST", api+"/leads", jwt, `{"phone":"`+phone+`","metadata":{"source":"website"}}`).is(c.t, 201)
		c.waitFor(fmt.Sprintf(`+%s.dataset.total === %d && %s`, last, before+1, shows))
	}
	c.do(input.DispatchMouseEvent(input.MouseMoved, at.X, at.Y))
	c.waitFor(shows)
	arrives("9876543276")
	c.do(input.DispatchMouseEvent(input.MouseMoved, 1, 1))

	c.do(chromedp.Evaluate(`document.querySelector(".chart [tabindex='0']").focus()`, nil), chromedp.KeyEvent(kb.End))
	c.waitFor(`document.activeElement === ` + last + ` && ` + shows)
	arrives("9876543277")
	c.waitFor(`document.activeElement === ` + last)
	c.do(chromedp.KeyEvent(kb.ArrowLeft))
	c.waitFor(`document.activeElement.nextElementSibling === ` + last + ` && document.querySelectorAll(".chart ` +
		`[tabindex='0']").length === 1`)
	c.do(chromedp.Evaluate(`document.activeElement.blur()`, nil))
	c.waitFor(`document.querySelector(".readout strong").innerText === document.querySelector(".readout ` +
		`strong").dataset.whole`)
}

// shortcuts navigates with the keyboard, and disables and enables the shortcuts.
func (c *chromium) shortcuts() {
	c.t.Helper()
	press := func(keys ...string) {
		c.t.Helper()
		for _, key := range keys {
			c.do(chromedp.KeyEvent(key))
		}
	}
	at := func(path, focused string) {
		c.t.Helper()
		c.waitFor(
			fmt.Sprintf(`%s && location.pathname === %q && document.activeElement.id === %q`, arrived, path, focused),
		)
	}
	c.open("/console/usage")
	c.do(chromedp.Focus("[data-shortcuts]", chromedp.ByQuery))
	press("?")
	c.waitVisible("#shortcuts[open]")
	c.accessible("shortcuts")
	c.screenshot("shortcuts")
	press("g", "l", kb.Escape)
	c.waitFor(`!document.querySelector("#shortcuts").open && document.activeElement.matches("[data-shortcuts]")`)
	for _, page := range [][2]string{{"s", "/console/sources"}, {"o", "/console"}, {"k", "/console/audit"}} {
		press("g", page[0])
		at(page[1], "")
	}
	press("/")
	at("/console/audit", "since")
	c.open("/console/usage")
	press("/")
	at("/console/leads", "q")
	press("g", "s", "?", "/")
	at("/console/leads", "q")
	c.waitFor(`document.activeElement.value === "gs?/" && !document.querySelector("#shortcuts").open`)

	c.do(chromedp.Click("[data-shortcuts]", chromedp.ByQuery), chromedp.Click("#shortcuts input", chromedp.ByQuery))
	c.open("/console/usage")
	c.do(
		chromedp.Evaluate(
			`addEventListener("keydown", (event) => window.ignored = event.key + !event.defaultPrevented)`, nil,
		),
	)
	for _, key := range []string{"?", "/", "g", "l"} {
		press(key)
		c.waitFor(fmt.Sprintf(`window.ignored === %q && !document.querySelector("#shortcuts").open`, key+"true"))
	}
	c.do(chromedp.Click("[data-shortcuts]", chromedp.ByQuery), chromedp.Click("#shortcuts input", chromedp.ByQuery),
		chromedp.Click("#shortcuts button", chromedp.ByQuery))
	press("g", "l")
	at("/console/leads", "")
}

// filters unfolds the filters, checks that they are in one row, and removes one.
func (c *chromium) filters(pages ...string) {
	c.t.Helper()
	for _, page := range pages {
		c.open("/console" + page)
		var ends []float64
		c.evaluate(
			`[...document.querySelectorAll(".filters[method=get] > *")].map((one) => `+
				`one.getBoundingClientRect().bottom)`, &ends,
		)
		require.InDelta(c.t, slices.Min(ends), slices.Max(ends), 5, "the filters of %s are in one row", page)
	}
	c.open("/console/leads?status=won&createdSince=2026-01-02")
	c.do(chromedp.Click(".more summary", chromedp.ByQuery))
	c.waitVisible("#phone")
	c.accessible("filters")
	c.screenshot("filters")
	c.do(chromedp.Focus("#phone", chromedp.ByQuery), chromedp.KeyEvent(kb.Escape))
	c.waitFor(`!document.querySelector(".more").open && document.activeElement.matches(".more summary")`)
	c.do(chromedp.KeyEvent(kb.Enter))
	c.waitVisible("#phone")
	c.do(chromedp.Click("h1", chromedp.ByQuery))
	c.waitFor(`!document.querySelector(".more").open`)
	c.press("Status won")
	c.waitFor(`location.search === "?createdSince=2026-01-02"`)
	c.waitText(".chips", "Created from 2026-01-02")
}

// printedCalls runs the calls that a page offers to copy.
func (c *chromium) printedCalls(settings map[string]string, jwt, lead string) {
	c.t.Helper()
	c.open("/console/leads?createdSince=2026-01-02")
	c.do(chromedp.Click("#calls summary", chromedp.ByQuery), chromedp.Click(`[data-copy="call-0"]`, chromedp.ByQuery))
	c.waitText("#calls .said", "Copied")
	var copied string
	c.evaluate(`navigator.clipboard.readText().then((text) => text.startsWith("curl") ? text : undefined)`,
		&copied, awaitPromise)
	require.Contains(c.t, shell(c.t, copied, "TOKEN="+jwt), lead)
	command := strings.Fields(c.text("#call-1"))
	require.Equal(c.t, "leadlog", command[0])
	require.Contains(c.t, launch(c.t, settings, command[1:]...).exits(c.t, 0).out.String(), lead)
}

// form opens a page of another site and sends its form with leadlog.js. The lead has the campaign of the visit and a
// page view.
func (c *chromium) form(api, jwt string) {
	c.t.Helper()
	html := ""
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, html)
	}))
	c.t.Cleanup(site.Close)
	made := mustCall(c.t, "POST", api+"/intakes", jwt, `{"name":"Site","kind":"form","origins":["`+site.URL+`"]}`).
		is(c.t, 201).data()
	html =
		fmt.Sprintf(`<!doctype html><title>Prices</title><script src="%s/in/leadlog.js" data-intake="%s" defer></script>
		<form method="post" action="%[1]s%[3]s" data-leadlog data-thanks="Thank you"><input name="email" id="email"><button>Send</button></form>`,
			c.base, made["intakeId"], made["url"])
	c.do(chromedp.Navigate(site.URL + "/prices?utm_source=news&utm_campaign=diwali&gclid=g1&session=private"))
	c.waitFor(`!!window.leadlog`)
	c.do(chromedp.Evaluate(`leadlog.consent(true)`, nil),
		chromedp.SetValue("#email", "visitor@example.com", chromedp.ByQuery),
		chromedp.Click("button", chromedp.ByQuery))
	c.waitText("body", "Thank you")
	var lead map[string]any
	require.Eventually(c.t, func() bool {
		found, _ := mustCall(c.t, "GET", api+"/leads?email=visitor@example.com", jwt, "").body["data"].([]any)
		if len(found) == 1 {
			lead = found[0].(map[string]any)
		}
		return lead != nil
	}, pageTimeout, 20*time.Millisecond)
	shown := mustCall(c.t, "GET", api+"/leads/"+lead["leadId"].(string), jwt, "").is(c.t,
		200).data()["metadata"].(map[string]any)
	require.Equal(c.t, "diwali", shown["utm_campaign"])
	require.Equal(c.t, "g1", shown["gclid"])
	require.NotContains(c.t, fmt.Sprint(shown), "private")
	require.Eventually(c.t, func() bool {
		activity := mustCall(c.t, "GET", api+"/leads/"+lead["leadId"].(string)+"/activity", jwt, "").is(c.t, 200)
		return strings.Contains(fmt.Sprint(activity.body["data"]), "page_view")
	}, pageTimeout, 20*time.Millisecond)
}

// fieldError submits a form with an error. It is described at its field, which has the focus.
func (c *chromium) fieldError() {
	c.t.Helper()
	c.open("/console/tokens")
	c.do(chromedp.Evaluate(`document.querySelector("#days").form.noValidate = true`, nil),
		chromedp.SetValue("#name", "kept", chromedp.ByQuery),
		chromedp.SetValue("#days", "366", chromedp.ByQuery))
	c.press("Create")
	c.waitFor(`document.activeElement.id === "days" &&
		document.getElementById(document.activeElement.getAttribute("aria-describedby")).innerText.includes("from 1 to 365")`)
	c.accessible("tokens with an error")
}

// tokens creates, copies, rotates and deletes tokens, and returns the id of the remaining one.
func (c *chromium) tokens(api string) string {
	c.t.Helper()
	works := func(value string, status int) {
		c.t.Helper()
		got := mustCall(c.t, "POST", api+"/leads", value, `{"phone":"9876543211","metadata":{"source":"chatbot"}}`)
		require.Equal(c.t, status, got.status)
	}
	create := func(name string) string {
		c.open("/console/tokens")
		c.do(chromedp.SetValue("#name", name, chromedp.ByQuery), chromedp.SetValue("#days", "30", chromedp.ByQuery))
		c.press("Create")
		return c.text("#value")
	}
	// A form is sent once, until it is stopped or changed, or its page is shown again. A value is not shown again.
	c.open("/console/tokens")
	var sent []bool
	c.evaluate(`(() => {
		const send = () => document.querySelector("#days").form.dispatchEvent(new Event("submit", {bubbles: true, cancelable: true}));
		const all = [send(), send()];
		dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
		all.push(send());
		document.querySelector("#days").dispatchEvent(new Event("input", {bubbles: true}));
		all.push(send());
		dispatchEvent(new PageTransitionEvent("pageshow", {persisted: true}));
		return [...all, send()];
	})()`, &sent)
	require.Equal(c.t, []bool{true, false, true, true, true}, sent)
	kept := create("kept")
	c.do(chromedp.Evaluate(`dispatchEvent(new PageTransitionEvent("pageshow", {persisted: true}))`, nil))
	c.waitFor(arrived + ` && document.querySelector("#value") === null`)
	value := create("shop")
	c.waitText("#slots", "2 of 5 slots used")
	c.do(chromedp.Click(`[data-copy]`, chromedp.ByQuery))
	c.waitText(".said", "Copied")
	var copied string
	c.evaluate(`navigator.clipboard.readText().then((text) => text || undefined)`, &copied, awaitPromise)
	require.Equal(c.t, value, copied)
	works(value, http.StatusCreated)

	c.press("Rotate shop")
	c.waitText(".notice", "stops working at once")
	c.press("Rotate")
	rotated := c.text("#value")
	works(value, http.StatusUnauthorized)
	works(rotated, http.StatusOK)

	c.do(chromedp.Reload()) // a reload shows the same page and does not repeat the action
	c.waitText("#slots", "2 of 5 slots used")
	require.NotContains(c.t, c.text("main"), rotated)
	c.press("Delete shop")
	c.press("Delete")
	c.waitText("#slots", "1 of 5 slots used")
	works(rotated, http.StatusUnauthorized)
	return strings.Split(kept, "_")[1][:26]
}

// intake creates an intake and previews a sample. It returns the path of its page.
func (c *chromium) intake() string {
	c.t.Helper()
	c.open("/console/intakes")
	c.press("Web form")
	c.do(chromedp.SetValue("#name", "Contact", chromedp.ByQuery))
	c.press("Create")
	c.waitText("#html", "data-leadlog")
	var at string
	c.do(chromedp.Location(&at))
	at = regexp.MustCompile(`/console(/intakes/[0-9A-Z]{26})$`).FindStringSubmatch(at)[1]
	c.do(chromedp.SetValue("#body", `{"your-name":"Asha","tel":"98765 43210"}`, chromedp.ByQuery))
	c.press("Preview")
	c.waitText("#previewed", "+919876543210")
	return at
}

// arrival opens a quarantined post of an intake, discards it, and disables the intake. It returns the path of the
// arrival's page.
func (c *chromium) arrival(intake string) string {
	c.t.Helper()
	c.open("/console/arrivals")
	// A server posts no contact: it cannot correct that.
	mustCall(c.t, "POST", c.base+strings.Replace(intake, "/intakes/", "/in/", 1), "", `{"message":"call me"}`).is(c.t, 200)
	c.waitText("#quarantine", "phone") // each part of the page is updated by its own query
	const newest = `document.querySelector("#arrivals tbody th")`
	c.waitFor(newest + `.parentElement.innerText.includes("quarantined")`)
	c.follow(newest + `.querySelector("a")`)
	var at string
	c.do(chromedp.Location(&at))
	at = regexp.MustCompile(`/console(/arrivals/[0-9A-Z]{26})$`).FindStringSubmatch(at)[1]
	c.waitText("#reasons", "phone")
	c.press("Reveal")
	c.waitText("#raw", "call me")
	c.open("/console" + at)
	c.waitText("main", "Correct and resubmit")
	c.press("Discard")
	c.press("Discard")
	c.waitText("#arrival", "discarded")
	c.open("/console" + intake)
	c.press("Disable")
	c.waitText("#intake", "disabled")
	return at
}

// delivery retries a failed delivery. It returns the path of the endpoint's page.
func (c *chromium) delivery(api, jwt string) string {
	c.t.Helper()
	receiver := newReceiver(c.t)
	receiver.status.Store(http.StatusInternalServerError)
	c.open("/console/webhooks")
	c.do(chromedp.SetValue("#url", receiver.URL+"/hook", chromedp.ByQuery))
	c.press("Add endpoint")
	require.Regexp(c.t, `^whsec_`, c.text("#secret"))
	var at string
	c.do(chromedp.Location(&at))
	at = regexp.MustCompile(`/console(/webhooks/[0-9A-Z]{26})$`).FindStringSubmatch(at)[1]
	c.open("/console" + at)
	mustCall(c.t, "POST", api+"/leads", jwt, `{"phone":"9876543212","metadata":{"source":"google_form"}}`)
	c.waitText("#deliveries .failed", "500")
	c.waitText("#endpoint", "Queued\n1")
	c.press("Lead created")
	c.waitText("#delivery", "queued")
	receiver.status.Store(http.StatusOK)
	c.press("Retry")
	c.waitText("#delivery", "delivered")
	c.waitText("#attempts .delivered", "200")
	receiver.waitFor(c.t, 1, 1)
	c.open("/console" + at)
	c.press("Send test event")
	c.waitText("#deliveries", "Test event")
	return at
}

// fileWithoutSession follows a link to a file after the end of the session. It leads to the sign-in.
func (c *chromium) fileWithoutSession() {
	c.t.Helper()
	c.open("/console/leads")
	c.do(network.ClearBrowserCookies())
	c.press("CSV")
	c.waitText("main", "Paste a JWT")
}

func (c *chromium) lastDelivery(endpoint string) string {
	c.t.Helper()
	c.open("/console" + endpoint)
	var path string
	c.evaluate(`document.querySelector("#deliveries th a")?.pathname`, &path)
	return strings.TrimPrefix(path, "/console")
}

// visitPages takes screenshots of pages and checks their accessibility: light and dark, on a desktop and on a phone,
// and in half of a window, as with a zoom of 200 %.
func (c *chromium) visitPages(pages [][2]string) {
	c.t.Helper()
	for _, style := range []struct {
		width  int64
		scheme string
	}{{1280, "light"}, {390, "dark"}} {
		c.emulate(style.width, style.scheme)
		for _, page := range pages {
			name, path := page[0], page[1]
			c.open("/console" + path)
			c.screenshot(fmt.Sprintf("%s-%d-%s", name, style.width, style.scheme))
			c.accessible(name)
		}
	}
	c.emulate(640, "light")
	for _, page := range pages {
		c.open("/console" + page[1])
		c.fits(page[0])
		c.reachable(page[0])
	}
}

// reachable fails the test if an interactive element cannot be focused, or is not visible while focused.
func (c *chromium) reachable(page string) {
	c.t.Helper()
	c.do(chromedp.KeyEvent(kb.Tab)) // enables :focus-visible
	var unseen []string
	c.evaluate(`(() => {
		document.documentElement.style.scrollBehavior = "auto";
		return [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")]
			.filter((one) => one.checkVisibility() && !one.disabled && !one.matches("g")).filter((one) => {
				one.focus();
				const box = one.getBoundingClientRect();
				return document.activeElement !== one || getComputedStyle(one).outlineStyle === "none" ||
					box.right <= 0 || box.left >= innerWidth || box.bottom <= 0 || box.top >= innerHeight;
			}).map((one) => one.outerHTML.slice(0, 200));
	})()`, &unseen)
	assert.Empty(c.t, unseen, "%s: the focus is not visible", page)
}

// chromium is a page in a browser. Its errors, and its requests to other hosts than the service, are recorded.
type chromium struct {
	t    *testing.T
	ctx  context.Context
	base string
	axe  string // the library that checks accessibility

	mu       sync.Mutex
	problems []string
}

// pageTimeout is the timeout of waits for a page or an element.
const pageTimeout = soon

func openChromium(t *testing.T, base string) *chromium {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	require.NotEmpty(t, program, "make chromium installs the browser that this test drives")
	axe, err := os.ReadFile(filepath.Join(npmtest.Install(t, "testdata/axe"), "node_modules/axe-core/axe.min.js"))
	require.NoError(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"), // no other hosts
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(pageTimeout))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(end)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, pageTimeout)
		defer cancel()
		_ = chromedp.Cancel(ctx) // closes the browser gracefully
	})
	c := &chromium{t: t, ctx: ctx, base: base, axe: string(axe)}
	require.NoError(t, chromedp.Run(ctx)) // starts the browser, which lives as long as this context
	chromedp.ListenTarget(ctx, c.onEvent)
	c.do(network.Enable(), chromedp.EmulateViewport(1280, 900), emulation.SetFocusEmulationEnabled(true),
		emulation.SetTimezoneOverride("Asia/Kolkata"), emulation.SetLocaleOverride().WithLocale("en-IN"))
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		c.do(
			cdpbrowser.SetPermission(&cdpbrowser.PermissionDescriptor{Name: name},
				cdpbrowser.PermissionSettingGranted).WithOrigin(base),
		)
	}
	return c
}

// onEvent records errors and requests to other hosts.
func (c *chromium) onEvent(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = "exception: " + e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		problem = fmt.Sprintf("console.%s", e.Type)
	case *cdplog.EventEntryAdded:
		problem = "log: " + e.Entry.Text + " " + e.Entry.URL
	case *network.EventRequestWillBeSent:
		asked, err := url.Parse(e.Request.URL)
		if err == nil &&
			(asked.Scheme == "about" || asked.Scheme == "data" || strings.HasPrefix(e.Request.URL, c.base+"/console")) {
			return
		}
		problem = "a request to " + e.Request.URL
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, problem)
}

// requireNoErrors fails the test if an error was recorded.
func (c *chromium) requireNoErrors() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(c.t, c.problems)
}

func (c *chromium) do(actions ...chromedp.Action) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, pageTimeout)
	defer cancel()
	require.NoError(c.t, chromedp.Run(ctx, actions...))
}

// evaluate evaluates an expression until it is not undefined. If the page is being replaced, the new page evaluates it.
func (c *chromium) evaluate(expression string, answer any, options ...chromedp.EvaluateOption) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, pageTimeout)
	defer cancel()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		err := chromedp.Run(ctx, chromedp.Evaluate(expression, answer, options...))
		if err == nil {
			return
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			var content string // current page
			_ = chromedp.Run(c.ctx, chromedp.Evaluate(`location.href + "\n" + document.body.innerText`, &content))
			require.NoError(c.t, err, "%s\n%s", expression, content)
		}
	}
}

// waitFor waits until a condition is true in the page.
func (c *chromium) waitFor(condition string) {
	c.t.Helper()
	var met bool
	c.evaluate(condition+` || undefined`, &met)
}

// arrived is true after a page has loaded.
const arrived = `document.readyState === "complete" && document.querySelector("footer") !== null`

// open goes to a page.
func (c *chromium) open(path string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.base + path))
	c.waitFor(arrived)
}

// waitVisible waits for an element.
func (c *chromium) waitVisible(selector string) {
	c.t.Helper()
	c.waitFor(fmt.Sprintf(`document.querySelector(%q)?.checkVisibility()`, selector))
}

// waitText waits until an element has a text.
func (c *chromium) waitText(selector, text string) {
	c.t.Helper()
	c.waitFor(
		fmt.Sprintf(`[...document.querySelectorAll(%q)].some((one) => one.innerText.includes(%q))`, selector, text),
	)
}

// press clicks on the first link or button with a text, and waits for another page.
func (c *chromium) press(name string) {
	c.t.Helper()
	c.follow(fmt.Sprintf(`[...document.querySelectorAll("main a, main button")]
		.find((one) => one.textContent.replace(/\s+/g, " ").trim().startsWith(%q))`, name))
}

// follow clicks on an element that opens another page. Search and click are one step, because an update of the page may
// replace the element. A covered element cannot be clicked.
func (c *chromium) follow(element string) {
	c.t.Helper()
	c.waitFor(`(` + arrived + ` && (window.leaving = true))`)
	c.waitFor(`(() => {
		if (!window.leaving) return true;
		const one = ` + element + `;
		one?.scrollIntoView({block: "center"});
		const box = one?.getClientRects()[0];
		if (!box || !one.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2))) return undefined;
		one.click();
		return true;
	})()`)
	c.waitFor(`!window.leaving && ` + arrived)
}

func (c *chromium) text(selector string) (text string) {
	c.t.Helper()
	c.evaluate(fmt.Sprintf(`document.querySelector(%q)?.innerText`, selector), &text)
	return text
}

// screenshot saves a screenshot.
func (c *chromium) screenshot(name string) {
	c.t.Helper()
	var png []byte
	c.do(chromedp.FullScreenshot(&png, 100))
	directory := filepath.Join("../../..", "bin", "screenshots")
	require.NoError(c.t, os.MkdirAll(directory, 0o755))
	require.NoError(c.t, os.WriteFile(filepath.Join(directory, name+".png"), png, 0o644))
}

func (c *chromium) emulate(width int64, scheme string) {
	c.t.Helper()
	c.do(chromedp.EmulateViewport(width, 900),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{
			Name: "prefers-color-scheme", Value: scheme,
		}}))
}

// awaitPromise waits for the promise of a script.
func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// accessible fails the test if axe reports a violation, or if the page does not fit.
func (c *chromium) accessible(page string) {
	c.t.Helper()
	var found []string
	c.do(chromedp.Evaluate(c.axe, nil),
		chromedp.Evaluate(`for (const one of document.querySelectorAll("details:not(.more)")) one.open = true`, nil))
	c.do(chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"]}).then((result) =>
		result.violations.map((one) => one.id + ": " + one.help + ": " + one.nodes.map((node) => node.html).join("\n")))`, &found, awaitPromise))
	assert.Empty(c.t, found, page)
	c.fits(page)
}

// fits fails the test if the page is wider than the window, if the actions of a table row are not visible or, on a
// desktop, cover the rest of the row, or if long names leave too little space for their values.
func (c *chromium) fits(page string) {
	c.t.Helper()
	var beyond int
	c.do(chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &beyond))
	assert.Zero(c.t, beyond, "%s is wider than the window", page)
	c.do(chromedp.Evaluate(`[...document.querySelectorAll("td.actions a, td.actions button")]
		.filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth).length`, &beyond))
	assert.Zero(c.t, beyond, "actions of %s are not visible", page)
	var wide []string // tables that are cut, or that scroll sideways without saying so
	c.do(chromedp.Evaluate(`[...document.querySelectorAll(".scroll")].filter((one) => one.scrollWidth > one.clientWidth &&
		(innerWidth > 1000 || !one.matches(".wide"))).map((one) => one.getAttribute("aria-label"))`, &wide))
	assert.Empty(c.t, wide, "tables of %s are cut", page)
	c.do(chromedp.Evaluate(`[...document.querySelectorAll(".beside .facts dd")]
		.filter((one) => one.clientWidth < one.parentElement.clientWidth * .4).length`, &beyond))
	assert.Zero(c.t, beyond, "%s leaves too little space for values", page)
}
