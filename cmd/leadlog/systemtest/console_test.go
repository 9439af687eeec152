package systemtest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/npmtest"
)

func TestConsole_InBrowser(t *testing.T) {
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
	c.reads("#leads", "No leads yet")

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
	c.press("Show the stored event")
	c.reads("pre", `"status": "lost"`)
	c.press("Show its current state")
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

// chromium is a page in a browser, as somebody has it before them. What the browser complains of, and what the page asks
// of anybody but the service, is noted.
type chromium struct {
	t    *testing.T
	ctx  context.Context
	base string
	axe  string // the library that checks what people can see, read and reach

	mu       sync.Mutex
	problems []string
}

// lookTime is how long somebody waits for what is to come.
const lookTime = time.Minute

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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(lookTime))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(end)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		_ = chromedp.Cancel(ctx) // the browser ends by itself, and leaves nothing
	})
	c := &chromium{t: t, ctx: ctx, base: base, axe: string(axe)}
	require.NoError(t, chromedp.Run(ctx)) // starts the browser, which lives as long as this context
	chromedp.ListenTarget(ctx, c.hear)
	c.do(network.Enable(), chromedp.EmulateViewport(1280, 900), emulation.SetFocusEmulationEnabled(true))
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		c.do(cdpbrowser.SetPermission(&cdpbrowser.PermissionDescriptor{Name: name}, cdpbrowser.PermissionSettingGranted).WithOrigin(base))
	}
	return c
}

// hear notes what should not be.
func (c *chromium) hear(event any) {
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
		if err == nil && (asked.Scheme == "about" || asked.Scheme == "data" || strings.HasPrefix(e.Request.URL, c.base+"/console")) {
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

// unblemished fails the test when the browser complained.
func (c *chromium) unblemished() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(c.t, c.problems)
}

func (c *chromium) do(actions ...chromedp.Action) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, lookTime)
	defer cancel()
	require.NoError(c.t, chromedp.Run(ctx, actions...))
}

// ask asks the page until there is an answer, which undefined is not. A page that makes place for another cannot answer, and the
// other one is asked.
func (c *chromium) ask(expression string, answer any, options ...chromedp.EvaluateOption) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, lookTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := chromedp.Run(ctx, chromedp.Evaluate(expression, answer, options...))
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			var there string // instead
			_ = chromedp.Run(c.ctx, chromedp.Evaluate(`location.href + "\n" + document.body.innerText`, &there))
			require.NoError(c.t, err, "%s\n%s", expression, there)
		}
	}
}

// until waits until something is so of the page.
func (c *chromium) until(condition string) {
	c.t.Helper()
	var so bool
	c.ask(condition+` || undefined`, &so)
}

// arrived is so of a page that is all there.
const arrived = `document.readyState === "complete" && document.querySelector("footer") !== null`

// open goes to a page.
func (c *chromium) open(path string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.base + path))
	c.until(arrived)
}

// sees waits for an element.
func (c *chromium) sees(selector string) {
	c.t.Helper()
	c.until(fmt.Sprintf(`document.querySelector(%q)?.checkVisibility()`, selector))
}

// reads waits until an element has a text.
func (c *chromium) reads(selector, text string) {
	c.t.Helper()
	c.until(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((one) => one.innerText.includes(%q))`, selector, text))
}

// press clicks on the first link or button that says so, and waits for another page.
func (c *chromium) press(name string) {
	c.t.Helper()
	c.leave(fmt.Sprintf(`[...document.querySelectorAll("main a, main button")]
		.find((one) => one.textContent.replace(/\s+/g, " ").trim().startsWith(%q))`, name))
}

// leave clicks on an element that leads to another page. It is looked for and clicked in one go, since a page that keeps
// itself up to date may put another in its place at any moment. What something else covers cannot be clicked.
func (c *chromium) leave(element string) {
	c.t.Helper()
	c.until(`(` + arrived + ` && (window.leaving = true))`)
	c.until(`(() => {
		if (!window.leaving) return true;
		const one = ` + element + `;
		one?.scrollIntoView({block: "center"});
		const box = one?.getClientRects()[0];
		if (!box || !one.contains(document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2))) return undefined;
		one.click();
		return true;
	})()`)
	c.until(`!window.leaving && ` + arrived)
}

func (c *chromium) text(selector string) (text string) {
	c.t.Helper()
	c.ask(fmt.Sprintf(`document.querySelector(%q)?.innerText`, selector), &text)
	return text
}

// picture keeps what a page looks like.
func (c *chromium) picture(name string) {
	c.t.Helper()
	var png []byte
	c.do(chromedp.FullScreenshot(&png, 100))
	directory := filepath.Join("../../..", "bin", "screenshots")
	require.NoError(c.t, os.MkdirAll(directory, 0o755))
	require.NoError(c.t, os.WriteFile(filepath.Join(directory, name+".png"), png, 0o644))
}

func (c *chromium) dress(width int64, scheme string) {
	c.t.Helper()
	c.do(chromedp.EmulateViewport(width, 900),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

// awaited waits for what a script promises.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// accessible fails the test when something of the page cannot be seen, read or reached by everybody, when the page is wider
// than the window, when what can be done with a row of a table is out of sight, or, on a desk, covers the rest of the row, and when
// long names squeeze their values.
func (c *chromium) accessible(page string) {
	c.t.Helper()
	var found []string
	c.do(chromedp.Evaluate(c.axe, nil), chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"]}).then((result) =>
		result.violations.filter((one) => ["serious", "critical"].includes(one.impact))
		      .map((one) => one.id + ": " + one.help + ": " + one.nodes.map((node) => node.html).join("\n")))`, &found, awaited))
	assert.Empty(c.t, found, page)
	var beyond int
	c.do(chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &beyond))
	assert.Zero(c.t, beyond, "%s is wider than the window", page)
	c.do(chromedp.Evaluate(`[...document.querySelectorAll("td.actions a, td.actions button")]
		.filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth).length`, &beyond))
	assert.Zero(c.t, beyond, "actions of %s are out of sight", page)
	c.do(chromedp.Evaluate(`innerWidth < 1000 ? 0 : [...document.querySelectorAll(".scroll:has(td.actions)")]
		.filter((one) => one.scrollWidth > one.clientWidth).length`, &beyond))
	assert.Zero(c.t, beyond, "actions of %s cover what stands beside them", page)
	c.do(chromedp.Evaluate(`[...document.querySelectorAll(".beside .facts dd")]
		.filter((one) => one.clientWidth < one.parentElement.clientWidth * .4).length`, &beyond))
	assert.Zero(c.t, beyond, "%s leaves too little room for values beside their names", page)
}
