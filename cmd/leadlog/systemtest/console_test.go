package systemtest

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestSomebodyWorksWithTheConsole(t *testing.T) {
	t.Parallel()
	settings := production(t)
	settings["LEADLOG_WEBHOOK_RETRY_SCHEDULE"] = "1h" // so that what is tried again is tried by hand
	jwt := provisioned(t, settings)
	_, base := serve(t, settings)
	api := base + "/api/v1/crm"
	c := openChromium(t, base)

	// Signing in leads to where one wanted to go.
	c.open("/console/leads")
	c.picture("sign-in")
	c.accessible("sign-in")
	c.do(chromedp.SetValue("#jwt", jwt, chromedp.ByQuery))
	c.press("Sign in")
	c.reads("#leads", "No lead has arrived yet")

	// A capture appears without a reload.
	c.do(chromedp.Evaluate(`window.here = true`, nil))
	captured := mustCall(t, "POST", api+"/leads", jwt, `{"name":"Asha Rao","phone":"9876543210","email":"asha@example.com","city":"Pune",
		"a_name_of_fifty_letters_xxxxxxxxxxxxxxxxxxxxxxxxxx":"x",
		"opportunityValue":120000,"visitorId":"v-1","metadata":{"source":"website"}}`)
	lead := captured.data()["leadId"].(string)
	c.sees(`tr[data-key="` + lead + `"]`)
	require.NotContains(t, c.text("#leads"), "Asha")
	var here bool
	c.do(chromedp.Evaluate(`window.here === true`, &here))
	require.True(t, here, "the page was not loaded again")

	// A lead as of each of its events, and revealed.
	mustCall(t, "POST", api+"/visitors/v-1/activity", jwt, `{"type":"page_view","url":"https://example.com/prices?who=me","title":"Prices"}`)
	mustCall(t, "POST", api+"/leads", jwt, `{"phone":"9876543210","opportunityValue":150000,"metadata":{"source":"whatsapp"}}`)
	mustCall(t, "PATCH", api+"/leads/"+lead, jwt, `{"status":"won"}`)
	c.press("A•••")
	c.reads("#now", "won")
	c.reads("#activity", "https://example.com/•••")

	// In a low window all that the lead is can be scrolled to, beside what happened, and stays where it is when it changes.
	c.do(chromedp.EmulateViewport(1280, 300))
	c.until(`(() => {
		const now = document.querySelector("#now");
		scrollTo(0, 100);
		now.scrollTop = now.scrollHeight;
		return now.scrollTop > 0 && now.lastElementChild.getBoundingClientRect().bottom <= innerHeight;
	})()`)
	mustCall(t, "PATCH", api+"/leads/"+lead, jwt, `{"status":"lost"}`)
	c.reads("#now", "lost")
	c.until(`document.querySelector("#now").scrollTop > 0`)
	c.do(chromedp.EmulateViewport(1280, 900))

	c.leave(`document.querySelector('.slider a[href="?revision=0"]')`)
	c.reads("#now", "As of event 0")
	c.reads("#now", "120,000")
	c.reads("#timeline", "150000")
	c.press("The event as it is on the log")
	c.reads("pre", `"status": "lost"`)
	c.press("See it as it is now")
	c.press("Reveal")
	c.reads("h1", "Asha Rao")
	c.reads("#now", "Pune")
	c.open("/console/audit/reveals")
	c.reads("#reveals", lead)

	token := c.tokens(api)
	endpoint := c.delivery(api, jwt)
	c.look([][2]string{
		{"overview", ""}, {"leads", "/leads"}, {"lead", "/leads/" + lead + "?raw=1"}, {"sources", "/sources"}, {"tokens", "/tokens"},
		{"rotate", "/tokens/" + token + "/rotate"}, {"audit", "/audit"}, {"reveals", "/audit/reveals"}, {"webhooks", "/webhooks"},
		{"webhook", endpoint}, {"delivery", c.lastDelivery(endpoint)}, {"projections", "/projections"}, {"usage", "/usage"},
	})
	c.unblemished()
}

// tokens creates, copies, rotates and deletes tokens, and leaves one, whose id it returns.
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
	kept := create("kept")
	value := create("shop")
	c.reads("#slots", "2 of 5 slots used")
	c.do(chromedp.Click(`[data-copy]`, chromedp.ByQuery))
	c.reads(".said", "Copied")
	var copied string
	c.ask(`navigator.clipboard.readText().then((text) => text || undefined)`, &copied, awaited)
	require.Equal(c.t, value, copied)
	works(value, http.StatusCreated)

	c.press("Rotate shop")
	c.reads(".notice", "stops working at once")
	c.press("Rotate")
	rotated := c.text("#value")
	works(value, http.StatusUnauthorized)
	works(rotated, http.StatusOK)

	c.do(chromedp.Reload()) // shows what there is, and does nothing again
	c.reads("#slots", "2 of 5 slots used")
	require.NotContains(c.t, c.text("main"), rotated)
	c.press("Delete shop")
	c.press("Delete")
	c.reads("#slots", "1 of 5 slots used")
	works(rotated, http.StatusUnauthorized)
	return strings.Split(kept, "_")[1][:26]
}

// delivery lets one fail, and tries it again by hand. It returns the path of the endpoint's page.
func (c *chromium) delivery(api, jwt string) string {
	c.t.Helper()
	receiver := receiveWebhooks(c.t)
	receiver.status.Store(http.StatusInternalServerError)
	c.open("/console/webhooks")
	c.do(chromedp.SetValue("#url", receiver.URL+"/hook", chromedp.ByQuery))
	c.press("Register")
	require.Regexp(c.t, `^whsec_`, c.text("#secret"))
	var at string
	c.do(chromedp.Location(&at))
	at = regexp.MustCompile(`/console(/webhooks/[0-9A-Z]{26})$`).FindStringSubmatch(at)[1]
	c.open("/console" + at)
	mustCall(c.t, "POST", api+"/leads", jwt, `{"phone":"9876543212","metadata":{"source":"google_form"}}`)
	c.reads("#deliveries .failed", "500")
	c.reads("#endpoint", "Queued\n1")
	c.press("lead.created")
	c.reads("#delivery", "queued")
	receiver.status.Store(http.StatusOK)
	c.press("Retry")
	c.reads("#delivery", "delivered")
	c.reads("#attempts .delivered", "200")
	receiver.got(c.t, 1, 1)
	c.open("/console" + at)
	c.press("Send a test")
	c.reads("#deliveries", "webhook.test")
	return at
}

func (c *chromium) lastDelivery(endpoint string) string {
	c.t.Helper()
	c.open("/console" + endpoint)
	var path string
	c.ask(`document.querySelector("#deliveries th a")?.pathname`, &path)
	return strings.TrimPrefix(path, "/console")
}

// look keeps pictures of pages, and sees that everybody can use them: by day and by night, on a desk and on a phone.
func (c *chromium) look(pages [][2]string) {
	c.t.Helper()
	for _, dress := range []struct {
		width  int64
		scheme string
	}{{1280, "light"}, {390, "dark"}} {
		c.dress(dress.width, dress.scheme)
		for _, page := range pages {
			name, path := page[0], page[1]
			c.open("/console" + path)
			c.picture(fmt.Sprintf("%s-%d-%s", name, dress.width, dress.scheme))
			c.accessible(name)
		}
	}
}
