package httpapi_test

import (
	"context"
	"fmt"
	"html"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi"
)

func TestConsole_MasksPersonalData(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	made := b.capture(`{"name":"Asha Rao","phone":"9876543210","email":"asha@rao.example","city":"Pune",` +
		`"metadata":{"source":"website","ip":"198.51.100.7","utm":"diwali"}}`)
	id := made.at("data", "leadId").(string)
	b.as(http.MethodGet, after("/api/v1/crm/leads", made), "")
	for _, path := range []string{
		"/console/leads", "/console/leads/" + id, "/console/leads/" + id + "?raw=0&revision=0",
	} {
		r := b.get(path)
		require.Equal(t, http.StatusOK, r.status, path)
		require.Contains(t, r.body, "A••• R•••")
		for _, personal := range []string{
			"Asha", "Rao", "9876543210", "asha@", "rao.example", "Pune", "198.51.100.7", "diwali",
		} {
			require.NotContains(t, r.body, personal, path)
		}
	}
	require.Contains(t, b.get("/console/leads/"+id+"?raw=0").body, "contactUID")
}

func TestConsole_ShowsCampaigns(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	made := b.capture(
		`{"phone":"9876543210","metadata":{"source":"website","utm_source":"newsletter","utm_medium":"cpc",` +
			`"utm_campaign":"<diwali>","utm_id":"asha@rao.example"}}`,
	)
	id := made.at("data", "leadId").(string)
	last := b.capture(`{"phone":"9876543210","metadata":{"source":"whatsapp","utm_campaign":"for asha@rao.example"}}`)
	b.as(http.MethodGet, after("/api/v1/crm/touches", last), "").is(http.StatusOK)
	for path, shown := range map[string][]string{
		"/console/leads/" + id: {"Campaign source", "newsletter", "cpc", "&lt;diwali&gt;"},
		"/console/sources":     {"By medium and campaign", "cpc", "&lt;diwali&gt;", "(none)"},
	} {
		r := b.get(path)
		require.Equal(t, http.StatusOK, r.status, path)
		for _, part := range shown {
			require.Contains(t, r.body, part, path)
		}
		require.NotContains(t, r.body, "asha@rao.example", path)
	}
}

func TestConsoleLead_OfAnotherAccount(t *testing.T) {
	t.Parallel()
	b := browse(t)
	id := b.capture(`{"phone":"9876543210"}`).at("data", "leadId").(string)
	b.signIn(b.stranger(""))
	foreign, none := b.get("/console/leads/"+id), b.get("/console/leads/01JQKXZ8V4W9H6M3T2R5N7P0AB")
	require.Equal(t, http.StatusNotFound, foreign.status)
	require.Equal(t, none.body, foreign.body)
}

// One view has applied the lead, and another one is behind.
func TestConsoleLead_ViewsBehind(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"touch", "lead"} {
		b := signedIn(t)
		made := b.capture(`{"name":"Asha Rao","phone":"9876543210","metadata":{"source":"website"}}`)
		id := made.at("data", "leadId").(string)
		for _, path := range []string{leads + "/" + id, leads + "/" + id + "/sources"} {
			b.as(http.MethodGet, after(path, made), "").is(http.StatusOK)
		}
		pgtest.Exec(t, b.pool, `DELETE FROM views.`+table+` WHERE account = $1`, b.account)
		r := b.get("/console/leads/" + id)
		require.Equal(t, http.StatusOK, r.status, table)
		require.Contains(t, r.body, "A••• R•••")
	}
}

// An account may have at most half of the live pages.
func TestLivePage_LimitPerAccount(t *testing.T) {
	t.Parallel()
	b := browse(t, func(o *httpapi.Options) { o.LivePages = 4 })
	b.provision("other", account.Settings{})
	follow := func(b *browser) (status int, leave context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.server.URL+"/console/usage", nil)
		require.NoError(t, err)
		request.Header.Set("Accept", "text/event-stream")
		response, err := b.client.Do(request)
		require.NoError(t, err)
		t.Cleanup(func() { response.Body.Close() })
		if response.StatusCode == http.StatusTooManyRequests {
			require.Equal(t, "1", response.Header.Get("Retry-After"))
		}
		return response.StatusCode, cancel
	}
	b.signIn(b.jwt)
	otherBrowser := b.service.browser()
	otherBrowser.signIn(b.mint("other", ""))
	status, leave := follow(b)
	require.Equal(t, http.StatusOK, status)
	status, _ = follow(b)
	require.Equal(t, http.StatusOK, status)
	status, _ = follow(b)
	require.Equal(t, http.StatusTooManyRequests, status)
	status, _ = follow(otherBrowser)
	require.Equal(t, http.StatusOK, status)
	leave()
	require.Eventually(t, func() bool {
		status, _ := follow(b)
		return status == http.StatusOK
	}, time.Minute, 5*time.Millisecond)
}

func TestConsoleLead_AsOfEachEvent(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id := b.capture(`{"phone":"9876543210","metadata":{"source":"website"}}`).at("data", "leadId").(string)
	for _, status := range []string{"contacted", "won"} {
		b.as(http.MethodPatch, "/api/v1/crm/leads/"+id, fmt.Sprintf(`{"status":%q}`, status))
	}
	for revision, status := range []string{"new", "contacted", "won"} {
		r := b.get(fmt.Sprintf("/console/leads/%s?revision=%d", id, revision))
		now, _, _ := strings.Cut(r.body, ">Timeline<")
		require.Contains(t, now, `<span class="state `+status+`">`)
		require.Contains(t, r.body, `<td class="old">contacted</td><td class="new">won</td>`)
	}
	require.Equal(t, http.StatusNotFound, b.get("/console/leads/"+id+"?revision=3").status)
	revealed := b.post("/console/leads/" + id + "/reveal?revision=1")
	require.Contains(t, revealed.body, "As of event 1")
	require.Contains(t, revealed.body, `href="/console/leads/`+id+`?revision=1">Mask</a>`)
}

func TestConsoleTokens_Lifecycle(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	r := b.post("/console/tokens", "name", "", "expiresInDays", "400")
	require.Equal(t, http.StatusBadRequest, r.status)
	require.Equal(t, 2, strings.Count(r.body, `class="fault"`))

	value := regexp.MustCompile(`<code id="value" class="value">(leadlog_[0-9A-Za-z]+)</code>`)
	id := regexp.MustCompile(`/console/tokens/([0-9A-Z]{26})/rotate`)
	r = b.post("/console/tokens", "name", "The <form>", "expiresInDays", "30")
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, r.body, "1 of 5 slots used")
	require.Contains(t, r.body, "The &lt;form&gt;")
	first, token := value.FindStringSubmatch(r.body)[1], id.FindStringSubmatch(r.body)[1]
	works := func(credential string) int {
		return b.send(call{
			method: http.MethodPost, path: "/api/v1/crm/leads", credential: credential,
			body: `{"phone":"9876543210","metadata":{"source":"website"}}`,
		}).status
	}
	require.Equal(t, http.StatusCreated, works(first))
	require.NotContains(t, b.get("/console/tokens").body, first, "the secret is shown once")

	require.Contains(t, b.get("/console/tokens/"+token+"/rotate").body, "stops working at once")
	second := value.FindStringSubmatch(b.post("/console/tokens/" + token + "/rotate").body)[1]
	require.Equal(t, []int{http.StatusUnauthorized, http.StatusOK}, []int{works(first), works(second)})

	require.Contains(t, b.get("/console/tokens/"+token+"/delete").body, "cannot be undone")
	require.Equal(t, "/console/tokens", b.post("/console/tokens/"+token+"/delete").goTo)
	require.Equal(t, http.StatusUnauthorized, works(second))
	r = b.get("/console/tokens")
	require.Contains(t, r.body, "0 of 5 slots used")
	require.Contains(t, r.body, "1 deleted token")
	r = b.post("/console/tokens/" + token + "/delete")
	require.Equal(t, http.StatusNotFound, r.status)
	require.Contains(t, r.body, "Token not found or already deleted")
	require.Contains(t, r.body, "Nothing was changed")
	require.NotContains(t, b.get("/console/leads/none").body, "Nothing was changed", "a read has no outcome to state")
}

func TestConsoleTokens_PagesDeleted(t *testing.T) {
	t.Parallel()
	b := unlimited(t).browser()
	b.signIn(b.jwt)
	const tokens = "/api/v1/crm/tokens"
	create := func(name string) (id string) {
		made := b.as(http.MethodPost, tokens, fmt.Sprintf(`{"name":%q,"expiresInDays":30}`, name)).
			is(http.StatusCreated)
		return made.at("data", "tokenId").(string)
	}
	kept := create("kept")
	var last reply
	for n := range 53 {
		last = b.as(http.MethodDelete, tokens+"/"+create(fmt.Sprintf("gone %02d", n)), "").is(http.StatusOK)
	}
	b.as(http.MethodGet, after(tokens, last), "")
	page := b.get("/console/tokens").body
	require.Contains(t, page, "1 of 5 slots used")
	require.Contains(t, page, kept+"/rotate")
	require.Contains(t, page, "gone 03")
	require.NotContains(t, page, "gone 02")
	next := regexp.MustCompile(`href="(\?cursor=[^"]+)" rel="next"`).FindStringSubmatch(page)
	require.NotNil(t, next, "the page links to the next deleted tokens")
	rest := b.get("/console/tokens" + next[1]).body
	require.Contains(t, rest, "1 of 5 slots used")
	for _, name := range []string{"gone 02", "gone 00", "First page"} {
		require.Contains(t, rest, name)
	}
	require.NotContains(t, rest, "gone 03")
}

func TestConsoleWebhooks_Lifecycle(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	r := b.post("/console/webhooks", "url", "http://example.com", "description", "CRM <sync>")
	require.Equal(t, http.StatusBadRequest, r.status)
	require.Equal(t, 2, strings.Count(r.body, `class="fault"`), "errors of the URL and of the missing events")
	require.Contains(t, r.body, "CRM &lt;sync&gt;")

	r = b.post("/console/webhooks", "url", "https://example.com/hook", "events",
		"lead.created", "events", "lead.merged")
	require.Equal(t, http.StatusOK, r.status, r.body)
	secret := regexp.MustCompile(`>(whsec_[^<]+)<`)
	first := secret.FindStringSubmatch(r.body)[1]
	at := regexp.MustCompile(`data-address="(/console/webhooks/[0-9A-Z]{26})"`).FindStringSubmatch(r.body)[1]
	require.Contains(t, r.body,
		`<span title="lead.created">Lead created</span>, <span title="lead.merged">Lead merged</span>`)
	require.NotContains(t, b.get(at).body, first, "the secret is shown once")
	for _, r := range []pageReply{b.get(at + "/deliveries/none"), b.post(at + "/deliveries/none/retry")} {
		require.Equal(t, http.StatusNotFound, r.status, r.body)
		require.Contains(t, r.body, "Delivery not found")
	}

	require.Contains(t, b.get(at+"/secret").body, "24 hours")
	r = b.post(at + "/secret")
	require.NotEqual(t, first, secret.FindStringSubmatch(r.body)[1])
	require.Contains(t, r.body, "Requests are also signed with the previous secret until")

	require.Equal(t, at, b.post(at+"/test").goTo)
	require.Equal(t, at, b.post(at+"/replay", "since", "2026-01-02T03:04").goTo)
	r = b.post(at+"/replay", "since", "2026-01-02T03:04", "until", "2025-01-02T03:04")
	require.Equal(t, http.StatusBadRequest, r.status)
	require.Contains(t, r.body, "must be after since")

	require.Equal(t, http.StatusBadRequest, b.post(at+"/switch", "enabled", "x").status)
	require.Equal(t, at, b.post(at+"/switch", "enabled", "false").goTo)
	require.Contains(t, b.get(at).body, `<span class="state disabled">disabled</span> by a user, since `)
	r = b.post(at + "/test")
	require.Equal(t, http.StatusConflict, r.status)
	require.Contains(t, r.body, "enable it first")
	b.post(at+"/switch", "enabled", "true")
	require.Contains(t, b.get(at).body, `<span class="state">enabled</span> <span class="hint">nothing delivered yet`)

	stranger := b.service.browser().signIn(b.stranger(""))
	for _, path := range []string{at, at + "/secret", at + "/delete"} {
		require.Equal(t, http.StatusNotFound, stranger.get(path).status, path)
	}
	require.Equal(t, http.StatusNotFound, stranger.post(at+"/delete").status)
	require.Contains(t, b.get(at+"/delete").body, "cannot be undone")
	require.Equal(t, "/console/webhooks", b.post(at+"/delete").goTo)
	require.Equal(t, http.StatusNotFound, b.get(at).status)
}

// Timeout and interval of polls for a view that lags.
const (
	soon  = 2 * time.Minute
	pause = 10 * time.Millisecond
)

func TestConsole_TracesAndLogs(t *testing.T) {
	t.Parallel()
	const own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	b := signedIn(t, func(o *httpapi.Options) {
		o.Trace = func(r *http.Request) (*http.Request, string, func(httpapi.Traced)) {
			return r, own, func(httpapi.Traced) {}
		}
	})
	require.Equal(t, http.StatusOK, b.post("/console/tokens", "name", "CI", "expiresInDays", "30").status)
	require.Contains(t, pgtest.Value[string](t, b.pool,
		`SELECT metadata::text FROM log.event_readable WHERE type LIKE 'token.created%' AND metadata->>'account' = $1`,
		b.account), own)
}

// A page shows the first rows of a long report. The totals cover the whole period, and the chart covers its end.
func TestConsoleSources_TotalsOfLongReport(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	pgtest.Exec(t, b.pool, `
		INSERT INTO views.source_day (account, day, source, created, merged, refused)
		SELECT $1, day, 'source' || n, 1, 0, 0
		  FROM generate_series(date '2024-12-01', date '2025-12-31', interval '1 day') AS day,
		  generate_series(1, 13) AS n`, b.account)
	r := b.get("/console/sources?since=2024-12-01&until=2025-12-31")
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, r.body, `<th scope="row">source1</th><td class="num">396</td>`)
	require.Contains(t, r.body, `since 2025-09-03: 1,560 in total`)
	require.Contains(t, r.body, `<th scope="row">2025-12-31</th><td class="num">13</td>`)
	require.Equal(t, 400, strings.Count(r.body, `<tr><th scope="row"><time`))
	require.Contains(t, r.body, "Only the first rows are shown.")
}

// A parameter selects a comparison with the previous period. The page has a note if that period lacks data.
func TestConsole_ComparesPeriods(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	const none = "There are no data to compare with yet."
	require.Contains(t, b.get("/console/?compare=previous").body, none)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	arrive := func(daysAgo, website, whatsapp int) {
		pgtest.Exec(t, b.pool, `INSERT INTO views.source_day (account, day, source, created, merged, refused)
			VALUES ($4, $1, 'website', $2, 0, 1), ($4, $1, 'whatsapp', 0, $3,
			  0)`, today.AddDate(0, 0, -daysAgo), website, whatsapp, b.account)
	}
	named := func(daysAgo int) string { return today.AddDate(0, 0, -daysAgo).Format("Mon 2 Jan 2006") }
	arrive(0, 10, 5)
	arrive(1, 7, 0)
	for _, page := range []string{"/console/", "/console/sources"} {
		r := b.get(page + "?compare=previous").body
		require.Contains(t, r,
			"The first data are of "+today.AddDate(0, 0, -1).Format(time.DateOnly)+". The period before, "+
				today.AddDate(0, 0, -59).Format(time.DateOnly), page)
		require.NotContains(t, r, `class="before"`, page)
	}
	arrive(30, 3, 2)
	r := b.get("/console/").body
	require.NotContains(t, r, `class="before"`)
	require.NotContains(t, r, " %")
	require.Contains(t, r, `href="?compare=previous"`)
	require.Contains(t, r, `aria-label="`+named(0)+`: 16; Website 11; WhatsApp 5"`)
	r = b.get("/console/?compare=previous").body
	require.Contains(t, r, `href="?">Stop comparing`)
	require.Contains(t, r,
		"The first data are of "+today.AddDate(0, 0, -30).Format(time.DateOnly)+", within the period before")
	require.Contains(t, r, `aria-label="`+named(0)+`: 16; Website 11; WhatsApp 5; &#43;166.7 % from 6, `+named(30)+`"`)
	require.Contains(t, r, `aria-label="`+named(2)+`: 0; from 0, `+named(32)+`"`, "a day without arrivals has a label")
	require.Contains(t, r,
		`<span class="hint" data-of="then">&#43;300.0 % from 6, `+today.AddDate(0, 0, -59).Format(time.DateOnly)+" to ")
	require.Contains(t, r, "&#43;300.0 % from 6 in the 30 days before")
	require.Contains(t, r, "8 in all of yesterday")
	require.Equal(t, 1, strings.Count(r, `<path class="before"`))

	r = b.get("/console/sources?compare=previous&source=website").body
	require.Contains(t, r, `href="?source=website">Stop comparing`)
	require.Contains(t, r, `<input type="hidden" name="compare" value="previous">`)
	require.Contains(t, r, `<td class="num">&#43;466.7 % from 3</td>`, "the comparison counts touches, not refusals")
	// The chart of a long period shows its end, which is compared with the end of the previous period.
	since, until := today.AddDate(0, 0, -160), today
	r = b.get(
		"/console/sources?compare=previous&since=" + since.Format(time.DateOnly) + "&until=" +
			until.Format(time.DateOnly),
	).body
	require.NotContains(t, r, `<path class="before"`)
	pgtest.Exec(t, b.pool,
		`INSERT INTO views.source_day (account, day, source, created, merged, refused)
			VALUES ($3, $1, 'website', 4, 0, 0), ($3, $2, 'website', 9, 0, 0)`,
		today.AddDate(0, 0, -161-119), today.AddDate(0, 0, -161-160), b.account)
	r = b.get(
		"/console/sources?compare=previous&since=" + since.Format(time.DateOnly) + "&until=" +
			until.Format(time.DateOnly),
	).body
	require.Contains(t, r,
		`from 4, `+today.AddDate(0, 0, -161-119).Format(time.DateOnly)+" to "+
			today.AddDate(0, 0, -161).Format(time.DateOnly))
	require.Contains(t, r, ` from 13</td>`)
}

// Each active filter has a chip that removes it.
func TestConsole_ChipsRemoveFilters(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	_, form := b.intake(`{"name":"Shop <1>","kind":"form"}`)
	intake := form.at("data", "intakeId").(string)
	made := b.as(http.MethodPost, "/api/v1/crm/tokens", `{"name":"shop","expiresInDays":30}`).is(http.StatusCreated)
	token := made.at("data", "tokenId").(string)
	b.as(http.MethodGet, after("/api/v1/crm/tokens", made), "").is(http.StatusOK)
	chip := regexp.MustCompile(`<a class="chip" href="([^"]+)"><span class="hint">([^<]+)</span> ([^<]+) <span`)
	type chips = map[string]string // addresses by text
	on := func(path string) chips {
		r := b.get(path)
		require.Contains(t, []int{http.StatusOK, http.StatusBadRequest}, r.status, path)
		found := chips{}
		for _, one := range chip.FindAllStringSubmatch(r.body, -1) {
			found[html.UnescapeString(one[2]+" "+one[3])] = html.UnescapeString(one[1])
		}
		require.Equal(t, len(found) > 1, strings.Contains(r.body, `">Remove all</a>`), path)
		return found
	}
	for page, want := range map[string][]string{
		"/leads": nil,
		"/leads?q=%3Cb%3E+x&status=new&source=google_ad&leadTemperature=hot&phone=98765+43210&email=a@b.example&createdSince=2026-01-02&createdUntil=2026-01-03": {
			"Search <b> x", "Status new", "Source Google Ads", "Temperature hot", "Phone 98765 43210",
			"Email a@b.example", "Created from 2026-01-02", "Created to 2026-01-03",
		},
		"/leads?phone=12&status=": {"Phone 12"}, // an invalid phone
		"/sources":                nil,
		"/sources?since=2026-01-02&until=2026-01-03&interval=week&source=google_ad&compare=previous": {
			"From 2026-01-02", "To 2026-01-03", "By Week", "Source Google Ads",
		},
		"/arrivals?state=captured&intakeId=" + intake + "&reason=phone&since=2026-01-02": {
			"Status captured", "Intake Shop <1>", "Field to correct phone", "From 2026-01-02",
		},
		"/audit?type=token.created&tokenId=" + token + "&until=2026-01-03": {
			"Event Token created", "Token shop", "To 2026-01-03",
		},
		"/audit/trail?type=lead.updated&actor=user:ann&subject=x": {
			"Event Lead updated", "User user:ann", "Object x",
		},
		"/sources/attribution?since=2026-01-02&asOf=1&model=linear": {
			"From 2026-01-02", "As of 1",
		},
	} {
		path, _, _ := strings.Cut(page, "?")
		found := on("/console" + page)
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(found)), page)
		for removed, to := range found {
			rest := maps.Clone(found)
			delete(rest, removed)
			require.ElementsMatch(t, slices.Collect(maps.Keys(rest)), slices.Collect(maps.Keys(on("/console"+path+to))),
				"%s without %s", page, removed)
		}
	}
	require.Contains(t, on("/console/sources?since=2026-01-02&compare=previous")["From 2026-01-02"], "compare=previous",
		"other parameters are kept")
	require.Contains(t, b.get("/console/sources?since=2026-01-02&source=api&compare=previous").body,
		`<a href="?compare=previous">Remove all</a>`)
	require.Regexp(t, `<details class="more" open>`, b.get("/console/leads?phone=12").body,
		"an invalid filter is unfolded")
	require.NotRegexp(t, `<details class="more" open>`, b.get("/console/leads?status=new").body)
}

// A value that a filter does not have is refused as by the API: an empty list would look like a result.
func TestConsole_RefusesUnknownFilterValues(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	lead := b.as(http.MethodPost, leads, `{"phone":"9876543210","metadata":{"source":"website"}}`).
		is(http.StatusCreated)
	b.as(http.MethodGet, after(leads, lead), "").is(http.StatusOK)
	hook := b.as(http.MethodPost, endpoints, `{"url":"https://example.com/hook"}`).is(http.StatusCreated)
	b.as(http.MethodGet, after(endpoints, hook), "").is(http.StatusOK)
	endpoint := "/console/webhooks/" + hook.at("data", "webhookId").(string)
	for page, filters := range map[string]map[string]string{
		"/console/leads":               {"source": "WEBSITE", "leadTemperature": "Hot"},
		"/console/leads.csv":           {"source": "website", "leadTemperature": "hot"},
		"/console/sources":             {"interval": "Week", "source": "website"},
		"/console/sources/attribution": {"model": "Linear", "by": "campaign", "interval": "day"},
		"/console/audit":               {"type": "token.created"},
		"/console/audit/trail":         {"type": "Webhook.*"},
		"/console/arrivals":            {"state": "quarantined"},
		"/console/leads/" + lead.at("data", "leadId").(string): {"model": "linear"},
		endpoint: {"state": "failed", "type": "lead.created"},
	} {
		for name, value := range filters {
			require.Equal(t, http.StatusOK, b.get(page+"?"+name+"="+value).status, "%s %s", page, name)
			require.Equal(t, http.StatusOK, b.get(page+"?"+name+"=").status, "%s %s", page, name)
			r := b.get(page + "?" + name + "=bogus")
			require.Equal(t, http.StatusBadRequest, r.status, "%s %s", page, name)
			if page != "/console/sources/attribution" || name != "interval" {
				require.Regexp(t, `must be (one of|a type of event)`, r.body, "%s %s", page, name)
			}
		}
	}
	require.Contains(t, b.get("/console/leads?status=NEW").body, "/console/leads/"+lead.at("data", "leadId").(string),
		"stages are found in any letter case")
	require.Equal(t, http.StatusOK, b.get("/console/leads?status=former").status,
		"a lead may be in a stage that the account has no longer")
}

func TestConsoleAttribution_AsOf(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	before := b.as(http.MethodPost, leads,
		`{"phone":"9876543210","opportunityValue":100,"metadata":{"source":"website",`+
			`"utm_campaign":"<b>diwali</b>"}}`).is(http.StatusCreated)
	won := b.as(http.MethodPatch, leads+"/"+before.at("data", "leadId").(string), `{"status":"won"}`).is(http.StatusOK)
	b.as(http.MethodGet, after(attribution, won), "").is(http.StatusOK)
	r := b.get("/console/sources/attribution?model=linear&by=campaign")
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, r.body,
		`<th scope="row" class="wide">&lt;b&gt;diwali&lt;/b&gt;</th><td class="num">1</td><td class="num">1</td><td `+
			`class="num"><data class="money" value="100" data-currency="INR">INR 100</data></td>`)
	require.Contains(t, r.body,
		`<td class="name">&lt;b&gt;diwali&lt;/b&gt;</td><td class="name"><strong>won</strong></td><td `+
			`class="num">1</td>`)
	require.Contains(t, b.get("/console/sources/attribution?asOf="+before.header.Get("X-Log-Position")).body,
		"No lead was won in this period.")
	for _, asOf := range []string{"x", "999999999", "2999-01-01T00:00:00Z"} {
		require.Equal(t, http.StatusBadRequest, b.get("/console/sources/attribution?asOf="+asOf).status, asOf)
	}
}

func TestConsole_PathsAndCredits(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	made := b.capture(`{"phone":"9876543210","opportunityValue":100,"metadata":{"source":"website"}}`)
	for _, source := range []string{"google_ad", "whatsapp"} {
		b.capture(`{"phone":"9876543210","metadata":{"source":"` + source + `"}}`)
	}
	page := "/console/leads/" + made.at("data", "leadId").(string)
	credits := func(query string) (found []string) {
		for _, row := range regexp.MustCompile(`<td class="num">([0-9.–]+)</td><td class="num">(?:<data `+
			`[^>]+>)?([INR0-9. –]+)(?:</data>)?</td><td `+
			`class="mono">user:ann`).FindAllStringSubmatch(b.get(page+query).body, -1) {
			found = append(found, row[1]+" "+row[2])
		}
		return found
	}
	b.caughtUp()
	require.Contains(t, b.get(page).body, "Once the lead is won")
	require.Empty(t, credits(""))
	won := b.as(http.MethodPatch, leads+"/"+made.at("data", "leadId").(string), `{"status":"won"}`).is(http.StatusOK)
	last := b.capture(`{"phone":"9876543210","metadata":{"source":"chatbot"}}`)
	last.is(http.StatusOK)
	b.caughtUp()
	require.Equal(t, []string{"0 INR 0", "0 INR 0", "1 INR 100", "– –"}, credits(""),
		"the last touch before the conversion gets all credit")
	require.Equal(t, []string{"0.333334 INR 33.3334", "0.333333 INR 33.3333", "0.333333 INR 33.3333", "– –"},
		credits("?model=linear"))
	require.Contains(t, b.get(page+"?model=linear").body, `<option value="linear" selected>`)
	require.Contains(t, b.get(page).body, `<time class="at" datetime="`+won.at("data", "updatedAt").(string))

	steps := regexp.MustCompile(
		`<tr><td class="name">([^<]+)</td><td class="name">(?:<strong>)?([^<]+)(?:</strong>)?</td><td `+
			`class="num">1</td><td class="measure" aria-hidden="true">`,
	).
		FindAllStringSubmatch(b.get("/console/sources/attribution").body, -1)
	require.Len(t, steps, 3)
	for i, want := range []string{"Google Ads WhatsApp", "Website Google Ads", "WhatsApp won"} {
		require.Equal(t, want, steps[i][1]+" "+steps[i][2])
	}
}

func TestReveal_RecordedBeforeShown(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id := b.capture(`{"name":"Asha Rao","phone":"9876543210","city":"Pune"}`).at("data", "leadId").(string)
	b.capture(`{"phone":"9876543299"}`)
	b.caughtUp() // an export of the console does not wait for views
	r := b.post("/console/leads/" + id + "/reveal?raw=0")
	require.Equal(t, http.StatusOK, r.status)
	for _, personal := range []string{"Asha Rao", "&#43;919876543210", "Pune"} {
		require.Contains(t, r.body, personal)
	}
	require.NotContains(t, b.get("/console/leads/"+id).body, "Asha")
	for q, found := range map[string]bool{
		"asha+RAO": true, "9876543210": true, "asha": false, "sha+rao": false, "98765": false, "7654321": false,
	} {
		require.Equal(t, found, strings.Contains(b.get("/console/leads?q="+q).body, id),
			"a search would reveal a masked value part by part: %s", q)
	}
	require.Equal(t, http.StatusBadRequest, b.get("/console/leads.csv?phone=12").status,
		"a refused export is not recorded")
	for _, since := range []string{"x", "0001-01-01T00:30:00%2B14:00"} { // not a time; before the year 1
		require.Equal(t, http.StatusBadRequest, b.get("/console/sources/history.csv?since="+since).status, since)
	}
	require.Equal(t, http.StatusOK, b.get("/console/leads.csv?q=asha+rao").status)
	require.Equal(t, http.StatusOK, b.get("/console/sources/history.ndjson").status)

	require.Eventually(t, func() bool {
		return strings.Count(b.get("/console/audit/trail?type=data.exported").body, "<tr data-key") == 4
	}, soon, pause)
	require.Contains(t, b.get("/console/audit/trail?type=data.revealed&subject="+id).body, "/console/leads/"+id)
	trail := b.get("/console/audit/trail.ndjson").body
	require.Regexp(t,
		`(?s)"what":"lead".*"what":"leads","format":"csv","filter":{"q":"\*\*\*"}}.*"rows":1,`+
			`"complete":true.*"what":"sources","format":"ndjson"}`, trail)

	// Reveals and exports do not change the lead.
	events := b.as(http.MethodGet, "/api/v1/crm/leads/"+id+"/events", "").body["data"].([]any)
	require.Len(t, events, 1)

	stranger := b.service.browser().signIn(b.stranger(""))
	require.Equal(t, http.StatusNotFound, stranger.post("/console/leads/"+id+"/reveal").status)
	require.NotContains(t, stranger.get("/console/audit/trail").body, id)
	blind := b.service.browser().signIn(b.mint(ownAccount, "tokens:read"))
	require.Equal(t, http.StatusForbidden, blind.post("/console/leads/"+id+"/reveal").status)
	require.Equal(t, http.StatusForbidden, blind.get("/console/audit/trail").status)
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
	require.Eventually(t, func() bool {
		return strings.Contains(b.get("/console/audit/trail").body, from)
	}, soon, pause)
}

func TestConsoleLead_LinksJoinedLeads(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	into, from := b.twoLeads()
	b.join(into, from).is(http.StatusOK)
	link := func(id string) string { return `href="/console/leads/` + id + `">` + id + `</a>` }
	page := b.get("/console/leads/" + into).body
	require.Contains(t, page, `Joined leads</span> <a class="mono" `+link(from))
	require.Contains(t, page, `Joined: <a class="mono" `+link(from))
	page = b.get("/console/leads/" + from).body
	require.Contains(t, page, `<a href="/console/leads/`+into+`">Show that lead</a>`)
	require.Contains(t, page, `Joined into <a class="mono" `+link(into))
}

func TestConsoleLead_MasksReleasedContact(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	holder := b.capture(`{"email":"ann@example.com"}`).at("data", "leadId").(string)
	id := b.capture(`{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`).at("data",
		"leadId").(string)
	b.capture(`{"phone":"9876543210","email":"ann@example.com","metadata":{"source":"website"}}`)
	b.capture(`{"phone":"9876543211","email":"asha@example.com","metadata":{"source":"website"}}`)
	for _, contact := range []string{`{"phone":"9876543210"}`, `{"email":"asha@example.com"}`} {
		b.as(http.MethodPost, "/api/v1/crm/leads/"+id+"/contacts/release", contact).is(http.StatusOK)
	}
	masked, revealed := b.get("/console/leads/"+id).body, b.post("/console/leads/"+id+"/reveal").body
	for _, page := range []string{masked, revealed} {
		require.Contains(t, page,
			`The email stays with <a class="mono" href="/console/leads/`+holder+`">`+holder+`</a>.</p>`)
	}
	require.Contains(t, masked, ">The phone &#43;91•••10 was released<")
	require.Contains(t, masked, ">The email a•••@•••.com was released<")
	require.Contains(t, revealed, ">The phone &#43;919876543210 was released<")
}

func TestConsoleLead_MasksActivity(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	id := b.capture(`{"phone":"9876543210","visitorId":"v"}`).at("data", "leadId").(string)
	acted := b.recordActivity("v",
		`{"type":"page_view","url":"https://shop.example/people/asha-rao?q=rao#asha","title":"Orders of Asha Rao",`+
			`"referrer":"https://search.example/asha"}`)
	require.Equal(t, http.StatusAccepted, acted.status, acted.raw)
	b.as(http.MethodGet, after(leads+"/"+id+"/activity", acted), "").is(http.StatusOK)
	masked := b.get("/console/leads/" + id).body
	require.Contains(t, masked, "https://shop.example/•••", "the host is not masked")
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
	verified := func(texts ...string) {
		t.Helper()
		b.caughtUp() // otherwise the cookie of an earlier page may have a later tree
		page := b.get("/console/audit").body
		for _, text := range append(texts, "✓ Verified") {
			require.Contains(t, page, text)
		}
	}
	verified("All 3 events shown are in")
	b.post("/console/tokens", "name", "token 4", "expiresInDays", "30")
	verified("All 4 events shown are in", "Nothing was rewritten since this browser saw 3 events")
	require.Equal(t, 4, strings.Count(b.get("/console/audit").body, "✓ verified"))

	change := func(sql string) {
		pgtest.Exec(t, b.pool, sql+` account = $1`, b.account)
	}
	change(`UPDATE views.token_event SET actor = 'user:bob' WHERE leaf = 1 AND`)
	r := b.get("/console/audit")
	require.Contains(t, r.body, "✗ Not verified")
	require.Equal(t, 1, strings.Count(r.body, "✗ does not match the signed tree"))
	require.Equal(t, 3, strings.Count(r.body, "✓ verified"))
	require.Empty(t, r.header.Values("Set-Cookie"), "a tree that does not verify is not stored in the cookie")
	change(`UPDATE views.token_event SET actor = 'user:ann' WHERE leaf = 1 AND`)
	require.Contains(t, b.get("/console/audit").body, "✓ Verified")

	// An event with a leaf outside of the tree is reported as not proven.
	for _, leaf := range []string{"-1", "1000"} {
		change(`UPDATE views.token_event SET actor = 'user:bob', leaf = ` + leaf + ` WHERE leaf = 1 AND`)
		r = b.get("/console/audit")
		require.NotContains(t, r.body, "✓ Verified", leaf)
		require.Contains(t, r.body, "1 event shown here is not in the tree", leaf)
		require.Equal(t, 3, strings.Count(r.body, "✓ verified"))
		change(`UPDATE views.token_event SET actor = 'user:ann', leaf = 1 WHERE leaf = ` + leaf + ` AND`)
	}
	require.Contains(t, b.get("/console/audit").body, "✓ Verified")

	// A rewritten tree is detected by a browser that stored the earlier tree.
	change(`DELETE FROM views.token_tree WHERE`)
	change(`DELETE FROM views.token_event WHERE`)
	require.Contains(t, b.get("/console/audit").body, "smaller than the one that this browser saw before")
	require.Contains(t, b.service.browser().signIn(b.jwt).get("/console/audit").body, "No events to prove")
}

func TestConsoleUsage_SeparatesBatchLines(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	b.capture(`{"phone":"9876543210"}`)
	b.capture(`{"phone":"9876543210"}`) // refused
	b.sendBatch(
		"{\"phone\":\"9876543211\"}\n{\"phone\":\"12\"}\n{\"phone\":\"9876543210\"}\n{\"phone\":\"9876543212\"}\n",
	)
	require.Eventually(t, func() bool {
		return strings.Contains(b.get("/console/usage.ndjson").body,
			`"captures":2,"batchLines":3,"refused":2,"deliveries":0}`)
	}, soon, pause, "batch lines count, including refused ones")
	days := b.as(http.MethodGet, "/api/v1/crm/usage", "").is(http.StatusOK).at("data").([]any)
	require.Len(t, days, 30)
	today := days[0].(map[string]any)
	require.Equal(t, []any{2.0, 3.0, 2.0, 0.0}, []any{
		today["captures"], today["batchLines"], today["refused"], today["deliveries"],
	})
}

func TestExport_HeadIsNotRecorded(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	b.capture(`{"phone":"9876543210"}`)
	head := b.do(http.MethodHead, "/console/leads.csv", nil)
	require.Equal(t, http.StatusOK, head.status)
	require.Equal(t, "text/csv; charset=utf-8", head.header.Get("Content-Type"))
	list := b.send(call{
		method: http.MethodHead, path: "/api/v1/crm/touches", credential: b.jwt,
		header: map[string]string{"Accept": "text/csv"},
	})
	require.Equal(t, "text/csv; charset=utf-8", list.is(http.StatusOK).header.Get("Content-Type"))
	b.post("/console/tokens", "name", "later", "expiresInDays", "30")
	b.trail("&type=token.created", 1)
	require.Empty(t, b.trail("&type=data.exported", 0))
}

func TestConsole_ExportsEveryPage(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	b.capture(`{"name":"=cmd()","phone":"9876543210","opportunityValue":12,"status":"won"}`)
	b.post("/console/tokens", "name", "form", "expiresInDays", "30")
	b.post("/console/webhooks", "url", "https://example.com/hook", "events", "lead.created")
	for _, file := range [][2]string{ // leads first, because the trail records their export
		{"/leads", "9876543210"}, {"/sources", "api"}, {"/sources/attribution", "1.000000"},
		{"/sources/history", "api"}, {"/tokens", "form"}, {"/audit", "token.created"},
		{"/audit/trail", "user:ann"}, {"/webhooks", "https://example.com/hook"}, {"/projections", "touch"},
		{"/usage", "T00:00:00.000Z"},
	} {
		page, holds := file[0], file[1]
		for ending, kind := range map[string]string{
			".csv": "text/csv; charset=utf-8", ".ndjson": "application/x-ndjson; charset=utf-8",
		} {
			require.Eventually(t, func() bool {
				r := b.get("/console" + page + ending)
				require.Equal(t, http.StatusOK, r.status, page)
				require.Equal(t, kind, r.header.Get("Content-Type"))
				return strings.Contains(r.body, holds)
			}, soon, pause, page+ending)
		}
		file := b.get("/console" + page + ".parquet")
		require.Equal(t, "application/vnd.apache.parquet", file.header.Get("Content-Type"))
		require.True(t, strings.HasPrefix(file.body, "PAR1") && strings.HasSuffix(file.body, "PAR1"), page)
	}
	require.Contains(t, b.get("/console/leads.csv").body, "'=cmd()")
	require.Equal(t, http.StatusBadRequest, b.get("/console/leads.csv?phone=12").status)
}

// The export of a list without its filter has the personal data of everyone.
func TestConsole_FilterNeverDropped(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	b.capture(`{"name":"Asha Rao","phone":"9876543210"}`)
	b.caughtUp() // an export of the console does not wait for views
	for query, field := range map[string]string{
		"status=won%": "status", "q=%zz": "q", "createdSince=%2": "createdSince", "cursor=%": "cursor",
		"status=new&status=won": "status", "shared=true&shared=true": "shared",
	} {
		r := b.get("/console/leads?" + query)
		require.Equal(t, http.StatusBadRequest, r.status, query)
		require.NotContains(t, r.body, "+91", query)
		if field != "cursor" { // an export has no pages
			r = b.get("/console/leads.csv?" + query)
			require.Equal(t, http.StatusBadRequest, r.status, query)
			require.Contains(t, r.body, field, query)
		}
	}
	for _, query := range []string{"status=new;x", "source=website;x&status=new"} {
		require.NotContains(t, b.get("/console/leads.csv?"+query).body, "9876543210", "a semicolon is part of a value")
	}
	require.Contains(t, b.get("/console/leads.csv?status=new&unknown=%zz&%zz=1&&").body, "9876543210")
}

func TestConsoleOverview_FailingIntake(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	path, created := b.createIntake(bearerIntake)
	id := created.at("data", "intakeId").(string)
	require.NotContains(t, b.get("/console/").body, `<section id="failing"`)
	posted := b.deliver(path, `{"id":"1","name":"Asha <1>"}`, validProof).is(http.StatusOK)
	last := posted.at("arrivalId").(string)
	require.NoError(t, b.commands.ReportIntake(t.Context(), intake.Watched{ID: id, Run: &intake.Run{
		Failed: 3, Since: time.Now(), ArrivalID: last, Error: "phone or email is required",
	}}))
	head, err := b.store.Head(t.Context())
	require.NoError(t, err)
	b.as(http.MethodGet, fmt.Sprintf("%s?minPosition=%d", intakes, head), "").is(http.StatusOK)
	shown := b.get("/console/").body
	require.Contains(t, shown, `<section id="failing"`)
	require.Contains(t, shown, "phone or email is required")
	link := "/console/intakes/" + id + "?arrival=" + last
	require.Contains(t, shown, link+"#preview-title")
	require.Contains(t, b.get(link).body, `{&#34;id&#34;:&#34;1&#34;,&#34;name&#34;:&#34;Asha &lt;1&gt;&#34;}</textarea>`)
	head, err = b.store.Head(t.Context())
	require.NoError(t, err)
	revealed := b.as(http.MethodGet,
		fmt.Sprintf("/api/v1/crm/audit/events?type=data.revealed&minPosition=%d", head), "").is(http.StatusOK)
	require.Contains(t, revealed.raw, last)
	stranger := b.service.browser().signIn(b.stranger(""))
	require.Equal(t, http.StatusNotFound, stranger.get(link).status)
}

func TestConsoleIntakes_Lifecycle(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	for _, kind := range []string{
		"form", "google_lead_form", "meta_lead_ads", "typeform", "razorpay", "standard_webhooks", "webhook",
	} {
		require.Contains(t, b.get("/console/intakes").body, "/console/intakes/new?kind="+kind)
		form := b.get("/console/intakes/new?kind=" + kind)
		require.Equal(t, http.StatusOK, form.status, kind)
		for field, of := range map[string]string{
			"origins": "form", "accessToken": "meta_lead_ads", "signature.scheme": "webhook",
		} {
			require.Equal(t, of == kind, strings.Contains(form.body, `name="`+field+`"`), "%s of %s", field, kind)
		}
	}
	require.Equal(t, http.StatusNotFound, b.get("/console/intakes/new?kind=fax").status)
	r := b.post("/console/intakes", "kind", "typeform", "name", "", "expectEvery", "often", "rateLimit",
		"many", "mapping.email", "body.")
	require.Equal(t, http.StatusBadRequest, r.status)
	require.Contains(t, r.body, "must be a number")
	r = b.post("/console/intakes", "kind", "typeform", "name", "Poll <1>", "expectEvery",
		"often", "mapping.email", "body.")
	require.Equal(t, http.StatusBadRequest, r.status)
	require.Equal(t, 2, strings.Count(r.body, `class="fault"`), "%s", r.body)
	require.Contains(t, r.body, "Poll &lt;1&gt;")

	r = b.post("/console/intakes", "kind", "typeform", "name", "Poll", "expectEvery", "24h", "mapping.name", "body.who")
	require.Equal(t, http.StatusOK, r.status, r.body)
	secret := regexp.MustCompile(`<code id="secret" class="value">([^<]+)<`)
	first := secret.FindStringSubmatch(r.body)[1]
	at := regexp.MustCompile(`data-address="(/console/intakes/[0-9A-Z]{26})"`).FindStringSubmatch(r.body)[1]
	shown := b.get(at).body
	require.NotContains(t, shown, first, "the secret is shown once")
	require.Contains(t, shown, "/in/"+strings.TrimPrefix(at, "/console/intakes/")+"<")
	require.Contains(t, shown, "Nothing has arrived yet.")

	r = b.post(at+"/preview", "body",
		`{"who":"Asha","form_response":{"token":"t","answers":[{"type":"email","email":"Asha@Example.com",`+
			`"field":{"id":"a"}}]}}`)
	require.Contains(t, r.body, "This would become a lead")
	require.Contains(t, r.body, "asha@example.com")
	require.Contains(t, b.post(at+"/preview", "body", `{`).body, "This would be quarantined")
	contact, _ := b.intake(`{"name":"Form","kind":"form"}`)
	contact = "/console/intakes/" + contact[strings.LastIndex(contact, "/")+1:]
	require.Contains(t, b.post(contact+"/preview", "body", `{"name":"Asha"}`).body,
		"the person who sends the form is asked to correct it")

	require.Contains(t, b.get(at+"/edit").body, "body.who")
	require.Equal(t, at,
		b.post(at+"/edit", "kind", "typeform", "name", "Survey", "expectEvery", "", "mapping.name", "").goTo)
	shown = b.get(at).body
	require.Contains(t, shown, "<h1>Survey</h1>")
	require.NotContains(t, shown, "body.who")
	require.Equal(t, http.StatusBadRequest, b.post(at+"/switch", "enabled", "x").status)
	require.Equal(t, at, b.post(at+"/switch", "enabled", "false").goTo)
	require.Contains(t, b.get(at).body, `<span class="state paused">`)

	require.Contains(t, b.get(at+"/secret").body, "refused at once")
	r = b.post(at + "/secret")
	require.NotEqual(t, first, secret.FindStringSubmatch(r.body)[1])
	stranger := b.service.browser().signIn(b.stranger(""))
	for _, path := range []string{at, at + "/edit", at + "/secret", at + "/delete"} {
		require.Equal(t, http.StatusNotFound, stranger.get(path).status, path)
	}
	require.Equal(t, http.StatusNotFound, stranger.post(at+"/delete").status)
	require.Contains(t, b.get(at+"/delete").body, "cannot be undone")
	require.Equal(t, "/console/intakes", b.post(at+"/delete").goTo)
	require.Equal(t, http.StatusNotFound, b.get(at).status)

	form := b.post("/console/intakes", "kind", "form", "name", "Contact", "origins",
		"https://example.com\nhttps://www.example.com").body
	require.Contains(t, form, "data-leadlog")
	require.NotContains(t, form, `id="secret"`)
	require.Contains(t, form, "https://example.com, https://www.example.com")

	// The form of a signature posts all fields. Those that the scheme does not have are left out.
	signed := func(scheme, tolerance string) pageReply {
		return b.post("/console/intakes", "kind", "webhook", "name", "Shop", "signature.scheme", scheme,
			"signature.header", "X-Sig", "signature.algorithm", "sha256", "signature.encoding", "hex", "signature.prefix", "",
			"signature.format", "", "signature.timestampHeader", "", "signature.idHeader", "", "signature.signed", "",
			"signature.tolerance", tolerance, "signature.name", "")
	}
	for _, scheme := range []string{"bearer", "basic", "header", "query"} {
		require.Contains(t, signed(scheme, "1m").body, `id="secret"`, scheme)
	}
	require.Contains(t, signed("hmac", "").body, `id="secret"`)
	require.Contains(t, signed("hmac", "1m").body, "has no effect unless signed has {timestamp}")
}

// The story of a lead says when a dated arrival happened, besides when it was recorded.
func TestConsoleLead_DatedArrival(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	admission, err := command.NewDirectory(b.store, time.Now).Admit(t.Context(),
		command.Caller{Account: b.account, Actor: "system:import", Credential: "import"})
	require.NoError(t, err)
	captured, err := b.commands.CaptureLead(t.Context(), command.CaptureLead{
		Admission: admission, Body: map[string]jsontext.Value{"phone": jsontext.Value(`"9876543210"`)},
		ReceivedAt: time.Date(2024, 3, 9, 10, 30, 0, 0, time.UTC),
	})
	require.NoError(t, err)
	b.capture(`{"phone":"9876543210","city":"Pune","metadata":{"source":"chatbot"}}`).is(http.StatusOK)
	b.caughtUp()
	page := b.get("/console/leads/" + captured.Lead.ID).body
	require.Equal(t, 1, strings.Count(page, `class="arrived"`), "an arrival that came when it was recorded has one time")
	require.Regexp(t, `class="arrived">It arrived <time class="at" datetime="2024-03-09T10:30:00[.0]*Z"`, page)
}

func TestConsoleArrivals_Quarantine(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	made := b.as(http.MethodPost, "/api/v1/crm/intakes",
		`{"name":"Shop <1>","kind":"webhook","secret":"the-secret","signature":{"scheme":"bearer"}}`)
	intakeID, address := made.at("data", "intakeId").(string), made.at("data", "url").(string)
	post := func(body string) (at string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.server.URL+address,
			strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer the-secret")
		request.Header.Set("Content-Type", "application/json")
		answer, err := b.client.Do(request)
		require.NoError(t, err)
		defer answer.Body.Close()
		var arrived struct{ ArrivalID string }
		require.NoError(t, json.UnmarshalRead(answer.Body, &arrived, json.MatchCaseInsensitiveNames(true)))
		return "/console/arrivals/" + arrived.ArrivalID
	}
	first, second := post(`{"name":"Asha Rao","phone":"12"}`), post(`{"name":"Bela <b>","email":"bela@"}`)
	third := post(`{"name":"Cara","phone":"13"}`)
	require.Eventually(t, func() bool { return strings.Contains(b.get("/console/arrivals").body, third) }, soon, pause)
	all := b.get("/console/arrivals").body
	require.Contains(t, all, "Shop &lt;1&gt;")
	require.NotContains(t, all, "Asha")
	require.Regexp(t,
		`(?s)reason=phone&amp;intakeId=`+intakeID+`".*?<td class="num">2</td>.*reason=email&amp;intakeId=`+intakeID+
			`".*?<td class="num">1</td>`, all)
	some := b.get("/console/arrivals?state=quarantined&reason=email").body
	require.Contains(t, some, second)
	require.NotContains(t, some, first)
	require.Equal(t, http.StatusBadRequest, b.get("/console/arrivals?since=x").status)
	require.Contains(t, b.get("/console/intakes/"+intakeID).body, first)

	shown := b.get(second).body
	require.Contains(t, shown, "<code>email</code>")
	require.NotContains(t, shown, "Bela")
	revealed := b.post(second + "/reveal").body
	require.Contains(t, revealed, `Bela &lt;b&gt;`)
	require.NotContains(t, revealed, "the-secret")
	require.Eventually(t, func() bool {
		return strings.Count(b.get("/console/audit/trail?type=data.revealed").body, "<tr data-key") == 1
	}, soon, pause)

	wrong := b.post(first+"/resubmit", "phone", "99")
	require.Equal(t, http.StatusBadRequest, wrong.status)
	require.Contains(t, wrong.body, `value="99"`)
	require.Contains(t, wrong.body, `class="fault"`)
	require.Equal(t, first, b.post(first+"/resubmit", "phone", "98765 43210").goTo)
	captured := b.get(first).body
	require.Contains(t, captured, `<span class="state captured">`)
	lead := regexp.MustCompile(`/console(/leads/[0-9A-Z]{26})"`).FindStringSubmatch(captured)
	require.NotNil(t, lead)
	require.Equal(t, "Asha Rao", b.as(http.MethodGet, "/api/v1/crm"+lead[1], "").at("data", "name"))
	require.NotContains(t, captured, "Correct and resubmit")

	require.Contains(t, b.get(second+"/discard").body, "cannot be undone")
	require.Equal(t, second, b.post(second+"/discard").goTo)
	require.Contains(t, b.get(second).body, "The received data was deleted.")
	require.Equal(t, http.StatusConflict, b.post(second+"/resubmit", "email", "bela@example.com").status)

	require.Equal(t, "/console/arrivals?intakeId="+intakeID,
		b.post("/console/arrivals/resubmit", "intakeId", intakeID).goTo)
	require.Contains(t, b.get("/console/arrivals").body, "0 arrivals resubmitted, in progress")

	stranger := b.service.browser().signIn(b.stranger(""))
	for _, path := range []string{third, third + "/discard"} {
		require.Equal(t, http.StatusNotFound, stranger.get(path).status, path)
	}
	for _, path := range []string{third + "/reveal", third + "/discard"} {
		require.Equal(t, http.StatusNotFound, stranger.post(path).status, path)
	}
	require.NotContains(t, stranger.get("/console/arrivals").body, intakeID)
	reader := b.service.browser().signIn(b.mint(ownAccount, "leads:read"))
	require.NotContains(t, reader.get(third).body, "Correct and resubmit")
	require.Equal(t, http.StatusForbidden, reader.post(third+"/resubmit").status)
}

// storySentences returns the sentences of a lead's story on a page, in order.
func storySentences(page string) (sentences []string) {
	tags := regexp.MustCompile(`<[^>]+>`)
	for _, one := range regexp.MustCompile(`<span class="says">(.*?)</span> <time`).FindAllStringSubmatch(page, -1) {
		sentences = append(sentences, html.UnescapeString(tags.ReplaceAllString(one[1], "")))
	}
	return sentences
}

// The history of a lead is shown in sentences, in the selected order, without ids and personal data.
func TestConsoleLead_ShowsStory(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	form := b.as(http.MethodPost, "/api/v1/crm/intakes", `{"name":"Contact <us>","kind":"form"}`).is(http.StatusCreated)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		b.server.URL+form.at("data", "url").(string),
		strings.NewReader(`{"name":"Asha Rao","phone":"9876543210","landing_page":"https://example.com/asha",`+
			`"utm_campaign":"spring"}`))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := b.client.Do(request)
	require.NoError(t, err)
	answer.Body.Close()
	require.Less(t, answer.StatusCode, 300)
	var id string
	require.Eventually(t, func() bool {
		found := regexp.MustCompile(`<tr data-key="([0-9A-Z]{26})"`).FindStringSubmatch(b.get("/console/leads").body)
		if found != nil {
			id = found[1]
		}
		return found != nil
	}, soon, pause)
	b.capture(
		`{"phone":"9876543210","email":"asha@example.com","city":"Pune","visitorId":"v",` +
			`"metadata":{"source":"chatbot"}}`,
	).is(http.StatusOK)
	b.capture(`{"phone":"9876543210","metadata":{"source":"chatbot"}}`).is(http.StatusOK)
	b.recordActivity("v", `{"type":"page_view","url":"https://shop.example/asha?utm_campaign=sale","title":"Asha"}`).
		is(http.StatusAccepted)
	b.recordActivity("v", `{"type":"click","at":"2020-01-02T03:04:05Z"}`).is(http.StatusAccepted)
	at := "/api/v1/crm/leads/" + id
	b.as(http.MethodPatch, at, `{"leadTemperature":"hot","opportunityValue":12000}`).is(http.StatusOK)
	b.as(http.MethodPatch, at, `{"status":"won"}`).is(http.StatusOK)
	b.as(http.MethodPost, at+"/contacts/release", `{"email":"asha@example.com"}`).is(http.StatusOK)
	b.caughtUp()
	want := []string{
		"Clicked",
		"Captured through the form “Contact <us>” on example.com, campaign spring",
		"Captured again through the chatbot: email added, city added",
		"Captured again through the chatbot: no field changed",
		"Viewed a page on shop.example, campaign sale",
		"Changed: temperature hot, value added",
		"Won, worth INR 12,000",
		"The email a•••@•••.com was released",
	}
	page := b.get("/console/leads/" + id).body
	require.Equal(t, want, storySentences(page))
	require.NotContains(t, page, "Asha")
	require.NotContains(t, page, "Pune")
	require.Contains(t, page, `<th scope="row">Temperature</th><td class="old">warm</td><td class="new">hot</td>`)
	require.Equal(t, 2, strings.Count(page, `<h3 class="day">`), "2020 and today")
	require.Contains(t, page, `<h3 class="day">2020-01-02</h3>`)
	story, _, _ := strings.Cut(page, `<details id="calls"`)
	shown := regexp.MustCompile(`(?s)<details.*?</details>|<[^>]*>`).ReplaceAllString(story, "")
	require.NotRegexp(t, `[0-9A-Z]{26}`, shown[strings.Index(shown, "Profile"):], "ids are in folded details")
	slices.Reverse(want)
	require.Equal(t, want, storySentences(b.get("/console/leads/"+id+"?order=newest").body))
	want[0] = "The email asha@example.com was released"
	require.Equal(t, want, storySentences(b.post("/console/leads/"+id+"/reveal?order=newest").body))

	b.as(http.MethodDelete, at, "").is(http.StatusOK)
	require.Equal(t, http.StatusNotFound, b.get("/console/leads/"+id).status, "an erased lead has no story")
}

func TestConsoleLead_StoryOfJoin(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	into, from := b.twoLeads()
	b.join(into, from).is(http.StatusOK)
	b.caughtUp()
	require.Equal(t, []string{
		"Captured through the website",
		"Captured through a Google ad, as a lead that was joined later",
		"Captured through the website, as a lead that was joined later",
		"Another lead was joined into this one: name changed, email added, value added, size added",
	}, storySentences(b.get("/console/leads/"+into).body))
	require.Equal(t, []string{
		"Captured through a Google ad", "Captured again through the website: no field changed",
		"Joined into another lead",
	}, storySentences(b.get("/console/leads/"+from).body))
}

// Each event and each visit of a long story is on exactly one page, in either order.
func TestConsoleLead_PagesOfStory(t *testing.T) {
	t.Parallel()
	b := unlimited(t).browser()
	b.signIn(b.jwt)
	id := b.capture(`{"phone":"9876543210","visitorId":"v","metadata":{"source":"website"}}`).at("data", "leadId").(string)
	for n := range 119 {
		if n%40 == 20 {
			b.recordActivity("v", `{"type":"click"}`).is(http.StatusAccepted)
		}
		b.as(http.MethodPatch, "/api/v1/crm/leads/"+id, fmt.Sprintf(`{"opportunityValue":%d}`, n)).is(http.StatusOK)
	}
	b.caughtUp()
	entry := regexp.MustCompile(`<li id="(event-\d+|activity)`)
	next := regexp.MustCompile(`href="([^"]+)" rel="next"`)
	follow := func(query string) (all []string, pages int) {
		for {
			page := b.get("/console/leads/" + id + query).body
			for _, found := range entry.FindAllStringSubmatch(page, -1) {
				all = append(all, found[1])
			}
			require.Equal(t, pages > 0, strings.Contains(page, `aria-label="Start of the timeline"`))
			pages++
			found := next.FindStringSubmatch(page)
			if found == nil {
				return all, pages
			}
			query = html.UnescapeString(found[1])
		}
	}
	var want []string
	for n := range 120 {
		if n%40 == 21 {
			want = append(want, "activity")
		}
		want = append(want, fmt.Sprintf("event-%d", n))
	}
	oldest, pages := follow("")
	require.Equal(t, want, oldest)
	require.Equal(t, 3, pages)
	newest, pages := follow("?order=newest")
	slices.Reverse(newest)
	require.Equal(t, want, newest)
	require.Equal(t, 3, pages)
}

func TestConsole_FirstSteps(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	overview := func() string {
		b.caughtUp()
		return b.get("/console").body
	}
	require.Regexp(t, `(?s)Create a form</a>.*<button disabled>Send a test lead.*It appears here\.`, overview())
	require.Equal(t, http.StatusSeeOther, b.post("/console/test-lead").status,
		"without a form, the test lead is not sent")
	require.Contains(t, overview(), "It appears here.")

	form := b.as(http.MethodPost, intakes, `{"name":"Site","kind":"form","mapping":{"phone":"'1'","email":"'none'"}}`).
		is(http.StatusCreated).at("data", "intakeId").(string)
	require.Contains(t, overview(), `<button>Send a test lead`)
	b.post("/console/test-lead")
	require.Contains(t, overview(), "is in quarantine", "the form maps the contacts incorrectly")
	b.as(http.MethodPatch, intakes+"/"+form, `{"mapping":{}}`).is(http.StatusOK)
	b.post("/console/test-lead")
	require.Regexp(t,
		`(?s)done</span> <a href="/console/intakes/`+form+`">Site</a>.*done</span>.*done</span> <a `+
			`href="/console/leads/[0-9A-Z]{26}">`, overview())
	b.capture(`{"phone":"9876543210"}`)
	require.NotContains(t, overview(), "Capture your first lead")
}

func TestConsole_DemoData(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	own := b.capture(`{"phone":"9876543210","metadata":{"source":"landing"}}`).is(http.StatusCreated).at("data",
		"leadId").(string)
	require.Contains(t, b.get("/console/demo").body, "Add 40 made-up leads")
	all := func() []any {
		b.caughtUp()
		return b.as(http.MethodGet, leads+"?limit=100", "").is(http.StatusOK).at("data").([]any)
	}
	b.post("/console/demo")
	require.Len(t, all(), 41)
	head := b.last()
	b.post("/console/demo")
	require.Equal(t, head, b.last(), "a repeat appends nothing")

	sources := b.get("/console/sources").body
	require.Regexp(t, `(?s)>WhatsApp</th>.{0,150}<td class="num">\d+ days? \d+ h</td>`, sources,
		"the median time from the first touch, by the touches' own times")

	body := b.get("/console").body
	require.Contains(t, body, "This account has demo data: 40 leads.")
	require.NotContains(t, body, "Capture your first lead")
	won := b.as(http.MethodGet, leads+"?status=won", "").at("data").([]any)
	require.Len(t, won, 7)
	touches := b.as(http.MethodGet, "/api/v1/crm/touches?limit=100", "").is(http.StatusOK).at("data").([]any)
	require.Len(t, touches, 56)
	first, err := time.Parse(time.RFC3339, touches[len(touches)-1].(map[string]any)["at"].(string))
	require.NoError(t, err)
	last, err := time.Parse(time.RFC3339, touches[0].(map[string]any)["at"].(string))
	require.NoError(t, err)
	require.Greater(t, last.Sub(first).Abs(), 20*24*time.Hour)

	// A demo lead with another arrival is not removed.
	kept := won[0].(map[string]any)["email"].(string)
	b.capture(`{"email":"` + kept + `","metadata":{"source":"website"}}`).is(http.StatusOK)
	require.Contains(t, b.get("/console/demo/remove").body, "Remove the demo data")
	remaining := b.removeDemo()
	require.Len(t, remaining, 2)
	require.Equal(t, []any{kept, own}, []any{
		remaining[0].(map[string]any)["email"], remaining[1].(map[string]any)["leadId"],
	})
	require.NotContains(t, b.get("/console").body, "has demo data")
	require.Empty(t, b.as(http.MethodGet, intakes, "").at("data"))
	require.Contains(t, b.get("/console/arrivals?state=quarantined").body, "No arrival")
	b.post("/console/demo/remove")
	require.Len(t, all(), 2)
}

// removeDemo removes the demo data, and returns the remaining leads. A request erases leads for a few seconds, so a
// slow machine needs several requests.
func (b *browser) removeDemo() []any {
	b.t.Helper()
	count := func() (remaining []any, demo bool) {
		b.caughtUp()
		remaining = b.as(http.MethodGet, leads+"?limit=100", "").is(http.StatusOK).at("data").([]any)
		return remaining, strings.Contains(b.get("/console").body, `id="demo" data-live class="notice"`)
	}
	remaining, demo := count()
	for demo {
		b.post("/console/demo/remove")
		before := len(remaining)
		if remaining, demo = count(); demo {
			require.Less(b.t, len(remaining), before)
		}
	}
	return remaining
}

func TestConsole_DemoDataAtOnce(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	press := func(page string) {
		var both errgroup.Group
		for range 4 {
			both.Go(func() error {
				b.post(page)
				return nil
			})
		}
		require.NoError(t, both.Wait())
		b.caughtUp()
	}
	press("/console/demo")
	made := b.as(http.MethodGet, leads+"?limit=100", "").is(http.StatusOK).at("data").([]any)
	require.Len(t, made, 40)
	require.Len(t, b.as(http.MethodGet, intakes, "").at("data"), 1)
	require.Len(t, b.as(http.MethodGet, "/api/v1/crm/touches?limit=100", "").at("data"), 55)

	// A status that a user has set is kept.
	id := made[0].(map[string]any)["leadId"].(string)
	b.as(http.MethodPatch, leads+"/"+id, `{"status":"lost"}`).is(http.StatusOK)
	b.caughtUp()
	b.post("/console/demo")
	require.Equal(t, "lost", b.as(http.MethodGet, leads+"/"+id, "").at("data", "status"))

	// After a kill, the page reports incomplete demo data and offers to continue.
	b.as(http.MethodDelete, leads+"/"+id, "").is(http.StatusOK)
	b.caughtUp()
	require.Contains(t, b.get("/console").body, "Demo data is incomplete: 39 of 40 leads.")
	intake := b.as(http.MethodGet, intakes, "").at("data").([]any)[0].(map[string]any)["intakeId"].(string)
	b.as(http.MethodDelete, intakes+"/"+intake, "").is(http.StatusOK)
	b.caughtUp()
	require.Contains(t, b.get("/console").body, "Demo data is partly removed: 39 leads left.")

	press("/console/demo/remove")
	require.Empty(t, b.removeDemo())
	require.Contains(t, b.get("/console").body, "Capture your first lead")
	b.post("/console/demo")
	require.Contains(t, b.get("/console").body, "40 leads")
}
