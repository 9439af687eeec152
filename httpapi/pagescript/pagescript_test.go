package pagescript_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi/pagescript"
)

func TestText_Small(t *testing.T) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(pagescript.Text())
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Less(t, packed.Len(), 4<<10)
	require.NotContains(t, string(pagescript.Text()), "\n//")
}

// browser is started once.
var browser = sync.OnceValues(func() (context.Context, error) {
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		return nil, fmt.Errorf("make chromium installs the browser that this test drives")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(timeout))
	allocated, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocated)
	return ctx, chromedp.Run(ctx)
})

func TestMain(m *testing.M) {
	m.Run()
	if testing.Short() {
		return // no test has opened the browser
	}
	if ctx, err := browser(); err == nil {
		_ = chromedp.Cancel(ctx)
	}
}

const (
	timeout  = time.Minute
	intakeID = "01M7YGZVZWE6S8RYN49QGMF6BH"
	address  = "/base/in/" + intakeID
)

// post is a request that an intake received.
type post struct {
	path   string
	header http.Header
	fields url.Values
	body   string
}

// site is a page of a site in its own tab, and the intake from which it loads the script.
type site struct {
	t       *testing.T
	ctx     context.Context
	pages   *httptest.Server
	service *httptest.Server
	html    string
	posts   chan post
	answer  func(http.ResponseWriter, post)
}

// openSite opens a tab for a page with this HTML. {base} is replaced by the address of intakes.
func openSite(t *testing.T, html string) *site {
	t.Helper()
	pgtest.System(t)
	s := &site{t: t, posts: make(chan post, 20)}
	s.answer = func(w http.ResponseWriter, p post) {
		if strings.Contains(p.header.Get("Accept"), "text/html") {
			w.Header().Set("Location", s.pages.URL+"/thanks")
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		_, _ = io.WriteString(w, `{"success":true}`)
	}
	s.service = httptest.NewServer(http.HandlerFunc(s.serveIntake))
	s.pages = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy",
			"default-src 'none'; script-src "+s.service.URL+"; connect-src "+s.service.URL)
		if r.URL.Path != "/thanks" {
			_, _ = io.WriteString(w, "<!doctype html><title>Prices</title>"+s.html)
		}
	}))
	s.html = strings.ReplaceAll(html, "{base}", s.service.URL+"/base/in/")
	t.Cleanup(s.service.Close)
	t.Cleanup(s.pages.Close)
	all, err := browser()
	require.NoError(t, err)
	var end context.CancelFunc
	s.ctx, end = chromedp.NewContext(all) // a tab; the site's port separates its storage
	t.Cleanup(end)
	require.NoError(t, chromedp.Run(s.ctx)) // opens the tab, which lives as long as this context
	return s
}

func (s *site) serveIntake(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/base/in/leadlog.js" {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write(pagescript.Text())
		return
	}
	w.Header().Set("Access-Control-Allow-Origin", s.pages.URL)
	w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
	if r.Method == http.MethodOptions {
		w.Header().Set("Access-Control-Allow-Headers", "Idempotency-Key")
		return
	}
	raw, _ := io.ReadAll(r.Body)
	p := post{path: r.URL.Path, header: r.Header, body: string(raw)}
	p.fields, _ = url.ParseQuery(p.body)
	s.answer(w, p)
	s.posts <- p
}

func (s *site) do(actions ...chromedp.Action) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	require.NoError(s.t, chromedp.Run(ctx, actions...))
}

func (s *site) open(path string) {
	s.t.Helper()
	s.do(chromedp.Navigate(s.pages.URL + path))
}

func (s *site) evaluate(expression string, value any) {
	s.t.Helper()
	s.do(chromedp.Evaluate(expression, value))
}

// next returns the next request.
func (s *site) next() post {
	s.t.Helper()
	select {
	case p := <-s.posts:
		return p
	case <-time.After(timeout):
		s.t.Fatal("nothing was posted")
		return post{}
	}
}

// submit presses the form's button and returns the post.
func (s *site) submit() post {
	s.t.Helper()
	s.evaluate(`document.querySelector("button").click()`, nil)
	return s.next()
}

// stored returns the content of the page's storage and cookies.
func (s *site) stored() (text string) {
	s.t.Helper()
	s.evaluate(`document.cookie + (localStorage.getItem("leadlog") ?? "") + "x".repeat(localStorage.length && `+
		`!localStorage.getItem("leadlog"))`, &text)
	return text
}

const (
	load      = `<script src="{base}leadlog.js" data-intake="` + intakeID + `" defer></script>`
	loadGiven = `<script src="{base}leadlog.js" data-intake="` + intakeID + `" data-consent="granted" defer></script>`
	fields    = `<input name="name" value="Asha"><input name="email" value="asha@example.com"><input type="file" ` +
		`name="cv"><button name="go" value="1">Send</button></form>`
	plainForm = `<form method="post" action="{base}` + intakeID + `">` + fields
	form      = `<form data-leadlog>` + fields
	landing   = "/prices?utm_source=diwali&gclid=abc&email=me@example.com#top"
)

func TestScript_PlainFormWithoutConsent(t *testing.T) {
	t.Parallel()
	s := openSite(t, load+plainForm)
	s.open(landing)
	got := s.submit()
	require.Equal(t, address, got.path)
	require.Equal(t, s.pages.URL, got.header.Get("Origin"))
	here := s.pages.URL + "/prices?utm_source=diwali&gclid=abc"
	require.Equal(t, url.Values{
		"name": {"Asha"}, "email": {"asha@example.com"}, "cv": {""}, "go": {"1"},
		"utm_source": {"diwali"}, "gclid": {"abc"}, "landing_page": {here}, "page_url": {here},
	}, got.fields)
	s.do(chromedp.WaitReady("html"))
	var at string
	require.Eventually(t, func() bool {
		s.do(chromedp.Location(&at))
		return at == s.pages.URL+"/thanks"
	}, timeout, 10*time.Millisecond)
	require.Empty(t, s.stored())
	require.Empty(t, s.posts, "no page view")
}

func TestScript_WithoutJavaScriptStillPosts(t *testing.T) {
	t.Parallel()
	s := openSite(t, load+plainForm)
	s.open("/prices")
	s.do(chromedp.Evaluate(`HTMLFormElement.prototype.submit.call(document.querySelector("form"))`, nil))
	require.Equal(t, "Asha", s.next().fields.Get("name"))
}

func TestScript_CampaignsAndVisitor(t *testing.T) {
	t.Parallel()
	s := openSite(t, loadGiven+form)
	s.open(landing)
	view := s.next()
	require.Regexp(t, "^"+address+"/visitors/[0-9a-f]{32}/activity$", view.path)
	require.Empty(t, view.header.Get("Content-Type"), "no preflight")
	var activity map[string]string
	require.NoError(t, json.Unmarshal([]byte(view.body), &activity))
	require.Equal(t, map[string]string{
		"type": "page_view", "title": "Prices", "url": s.pages.URL + "/prices?utm_source=diwali&gclid=abc",
	}, activity)

	s.open("/contact")
	require.Equal(t, view.path, s.next().path, "the same visitor")
	s.open("/prices?utm_source=mail&utm_campaign=may")
	s.next()
	s.open("/contact?id=7")
	s.next()
	got := s.submit()
	require.Equal(t, url.Values{
		"name": {"Asha"}, "email": {"asha@example.com"}, "go": {"1"}, "page_url": {s.pages.URL + "/contact"},
		"visitor_id": {strings.Split(view.path, "/")[5]},
		"utm_source": {"mail"}, "utm_campaign": {"may"},
		"landing_page":     {s.pages.URL + "/prices?utm_source=mail&utm_campaign=may"},
		"first_utm_source": {"diwali"}, "first_gclid": {"abc"},
		"first_landing_page": {s.pages.URL + "/prices?utm_source=diwali&gclid=abc"},
	}, got.fields)
	require.NotEmpty(t, got.header.Get("Idempotency-Key"))
	s.do(chromedp.WaitVisible(`output[data-leadlog-status]`))
	var shown, cookie string
	s.evaluate(`document.querySelector("output").textContent`, &shown)
	require.Equal(t, "Thank you.", shown)
	s.evaluate(`document.cookie`, &cookie)
	require.Empty(t, cookie)
}

// The words beside a ticked box are sent as they read when the form is sent.
func TestScript_ConsentWords(t *testing.T) {
	t.Parallel()
	boxes := `<label><input type="checkbox" name="consent[whatsapp]" id="w" checked> Send me <b>offers</b>
		by WhatsApp <span hidden>and sell my data</span></label>
		<input type="checkbox" name="consent[call]" id="c" value="yes"><label for="c">Call me</label>
		<label><input type="checkbox" name="consent[mail]"> Mail me</label>
		<label><input type="checkbox" name="consent[own]" checked> Label</label><input type="hidden" name="consent_text[own]" value="Own words">
		<label><input type="checkbox" name="terms" checked> Terms</label>`
	s := openSite(t, load+`<form data-leadlog>`+boxes+fields)
	s.open("/prices")
	s.evaluate(`document.querySelector("#c").click(); document.querySelector("label[for=c]").textContent = "Call me `+
		`on Sundays"`, nil)
	got := s.submit().fields
	require.Equal(t, []string{"Send me offers by WhatsApp", "Call me on Sundays", "Own words", "on", "yes", "on"},
		[]string{
			got.Get("consent_text[whatsapp]"), got.Get("consent_text[call]"), got.Get("consent_text[own]"),
			got.Get("consent[whatsapp]"), got.Get("consent[call]"), got.Get("terms"),
		})
	require.NotContains(t, got, "consent[mail]")
	require.NotContains(t, got, "consent_text[mail]")
	require.NotContains(t, got, "consent_text[terms]")
}

func TestScript_Consent(t *testing.T) {
	t.Parallel()
	s := openSite(t, load+form)
	s.open(landing)
	require.Empty(t, s.stored())
	require.NotContains(t, s.submit().fields, "visitor_id")
	s.evaluate(`leadlog.consent(true)`, nil)
	view := s.next()
	require.Contains(t, view.path, "/visitors/")
	require.Contains(t, s.stored(), "diwali")
	s.open("/contact")
	require.Equal(t, view.path, s.next().path, "consent is kept")
	s.evaluate(`leadlog.consent(false)`, nil)
	require.Empty(t, s.stored())
	require.NotContains(t, s.submit().fields, "visitor_id")
	s.open("/contact")
	require.Empty(t, s.stored())
	require.Empty(t, s.posts)

	granted := openSite(t, loadGiven+form)
	granted.open(landing)
	granted.next()
	granted.evaluate(`leadlog.consent(false)`, nil)
	granted.open(landing)
	require.NotContains(t, granted.submit().fields, "visitor_id", "a refusal is kept")
	require.NotContains(t, granted.stored(), "diwali")
	require.Empty(t, granted.posts)
}

func TestScript_DoNotTrack(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{
		`Object.defineProperty(navigator, "globalPrivacyControl", { get: () => true })`,
		`Object.defineProperty(navigator, "doNotTrack", { get: () => "1" })`,
	} {
		s := openSite(t, loadGiven+form)
		s.do(chromedp.ActionFunc(func(ctx context.Context) error {
			_, err := page.AddScriptToEvaluateOnNewDocument(signal).Do(ctx)
			return err
		}))
		s.open(landing)
		s.evaluate(`leadlog.consent(true)`, nil)
		require.Equal(t, []string{"email", "go", "name"}, slices.Sorted(maps.Keys(s.submit().fields)))
		require.Empty(t, s.stored())
		require.Empty(t, s.posts)
	}
}

func TestScript_RepeatsUnansweredForm(t *testing.T) {
	t.Parallel()
	s := openSite(t, load+form)
	done := s.answer
	var attempts atomic.Int32 // requests arrive on several connections
	s.answer = func(w http.ResponseWriter, p post) {
		switch attempts.Add(1) {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			done(w, p)
		}
	}
	s.open("/")
	s.evaluate(`document.querySelector("button").click(); document.querySelector("button").click()`, nil)
	second, third := s.next(), s.next()
	require.Equal(t, second.header.Get("Idempotency-Key"), third.header.Get("Idempotency-Key"))
	require.Equal(t, second.body, third.body)
	s.do(chromedp.WaitVisible(`output`))
	require.Empty(t, s.posts)
}

func TestScript_ShowsErrors(t *testing.T) {
	t.Parallel()
	s := openSite(t, load+form+`<script nonce="x">""</script>`)
	s.answer = func(w http.ResponseWriter, _ post) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w,
			`{"success":false,"message":"Validation failed","errors":[{"field":"email","message":"is <b>bad</b>"}]}`)
	}
	s.open("/")
	s.evaluate(`addEventListener("leadlog", (e) => window.outcome = e.detail)`, nil)
	s.submit()
	s.do(chromedp.WaitVisible(`output`))
	var shown string
	s.evaluate(`document.querySelector("output").textContent + outcome.status + document.querySelector("input").value`,
		&shown)
	require.Equal(t, "email is <b>bad</b>400Asha", shown)

	s.evaluate(`addEventListener("leadlog", (e) => e.preventDefault()); document.querySelector("output").remove()`, nil)
	s.submit()
	s.evaluate(`document.querySelectorAll("output").length + ""`, &shown)
	require.Equal(t, "0", shown)
}

// The script does not change forms with another target, or fields that the page defines.
func TestScript_IgnoresOtherFormsAndOwnFields(t *testing.T) {
	t.Parallel()
	const own = `<input name="utm_source" value="own"><button></button></form>`
	otherForm := openSite(t, loadGiven+`<form method="post" action="{base}../other">`+own)
	otherForm.open(landing)
	otherForm.next()
	require.Equal(t, url.Values{"utm_source": {"own"}}, otherForm.submit().fields)
	ownForm := openSite(t, loadGiven+`<form method="post" action="{base}`+intakeID+`">`+own)
	ownForm.open(landing)
	ownForm.next()
	require.Equal(t, []string{"own"}, ownForm.submit().fields["utm_source"])
}
