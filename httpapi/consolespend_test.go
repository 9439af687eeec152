package httpapi_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// costs posts a file of costs with the fields of its form.
func (b *browser) costs(file string, pairs ...string) pageReply {
	b.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for i := 0; i < len(pairs); i += 2 {
		require.NoError(b.t, form.WriteField(pairs[i], pairs[i+1]))
	}
	part, err := form.CreateFormFile("file", "report.csv")
	require.NoError(b.t, err)
	_, err = io.WriteString(part, file)
	require.NoError(b.t, err)
	require.NoError(b.t, form.Close())
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost,
		b.server.URL+"/console/sources/spend/file", &body)
	require.NoError(b.t, err)
	request.Header.Set("Content-Type", form.FormDataContentType())
	request.Header.Set("Origin", b.server.URL)
	response, err := b.client.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	return pageReply{status: response.StatusCode, body: string(text), goTo: response.Header.Get("Location")}
}

const googleCosts = "Campaign report\n\"January 1, 2026 - January 2, 2026\"\nDay,Campaign,Currency code,Cost\n" +
	"2026-01-01,Brand,INR,\"1,000.50\"\n2026-01-02,Brand,INR,20\nTotal: Account, --,INR,\"1,020.50\"\n"

func TestConsoleSpend_FileAndRow(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	require.Contains(t, b.get("/console/sources/spend").body, "No costs yet.")
	set := b.costs(googleCosts)
	require.Equal(t, "/console/sources/spend?changed=2&line=6&others=0&rows=2&totals=1", set.goTo, set.body)
	b.caughtUp()
	shown := b.get(set.goTo).body
	require.Contains(t, shown, "2 amounts read, 2 changed. Left out as totals: line 6.</p>")
	require.Contains(t, shown, `<td class="wide">Brand</td>`)
	require.Contains(t, shown, "INR 1,000.5</data>")
	require.Equal(t, "/console/sources/spend?changed=0&line=6&others=0&rows=2&totals=1",
		b.costs(googleCosts).goTo, "the same again")

	renamed := bytes.ReplaceAll([]byte(googleCosts), []byte("Brand"), []byte("Renamed"))
	require.Equal(t, "/console/sources/spend?changed=2&line=6&others=2&rows=2&totals=1", b.costs(string(renamed)).goTo)
	require.Equal(t, "/console/sources/spend?changed=2&line=6&others=0&rows=2&totals=1",
		b.costs(string(renamed), "replace", "true").goTo)
	own := b.costs("day,campaign,amount\n2026-01-04,a,1\n2026-01-04,a,2\n" + strings.Repeat("Total,,3\n", 12))
	require.Contains(t, b.get(own.goTo).body, "1 amount read, 1 changed. Left out as totals: lines 4, 5, 6, 7, 8, 9, 10, "+
		"11, 12, 13 and 2 more. Lines added to others of their day and key: 1. The file names no currency: its amounts "+
		"are taken as INR.</p>")

	require.Equal(t, "/console/sources/spend?changed=1&others=0&rows=1", b.post("/console/sources/spend", "day",
		"2026-01-03", "source", "facebook_ad", "utmCampaign", "Diwali", "amount", "₹1,234.50").goTo)
	b.caughtUp()
	require.Contains(t, b.get("/console/sources/spend?since=2026-01-03&until=2026-01-03").body, "INR 1,234.5</data>")
	require.Contains(t, b.get("/console/sources/spend.csv?since=2026-01-03").body,
		"2026-01-03,facebook_ad,,,Diwali,1234.5,")

	trail := b.as(http.MethodGet, "/api/v1/crm/audit/events?type=spend.set&limit=1", "").is(http.StatusOK)
	require.Contains(t, trail.at("data").([]any)[0].(map[string]any)["actor"], "user:")
}

func TestConsoleSpend_Rejects(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	wrong := b.costs("day,source,amount\n2026-01-01,Google,x\n2026-01-01,api,1\n")
	require.Equal(t, http.StatusBadRequest, wrong.status)
	require.Contains(t, wrong.body, "line 2: source must be one of")
	require.Contains(t, wrong.body, "line 2: amount is not a number such as 1250.50")
	require.Contains(t, b.costs("day,campaign,amount\n02/01/2026,a,1\n").body, "say which")
	require.Equal(t, http.StatusSeeOther, b.costs("day,campaign,amount\n02/01/2026,a,1\n", "dates", "day-first").status)
	row := b.post("/console/sources/spend", "day", "2026-13-01", "amount", "-1", "utmCampaign", "kept")
	require.Equal(t, http.StatusBadRequest, row.status)
	for _, text := range []string{
		"must be a day such as 2026-01-31", "must not be negative", `value="kept"`,
	} {
		require.Contains(t, row.body, text)
	}
	row = b.post("/console/sources/spend", "day", "2026-01-01", "source", "api", "amount", "$100")
	require.Equal(t, http.StatusBadRequest, row.status)
	require.Contains(t, row.body, "is in $, and the account&#39;s currency is INR")
	require.Contains(t, b.post("/console/sources/spend", "day", "2026-01-01", "amount", "1").body,
		"must have one to four")
	b.caughtUp()
	require.Equal(t, 1, b.count(`SELECT count(*) FROM views.spend WHERE account = $1`, b.account),
		"only the good file")

	reader := b.browser().signIn(b.mint(ownAccount, "leads:read"))
	require.NotContains(t, reader.get("/console/sources/spend").body, "By hand")
	require.Equal(t, http.StatusForbidden, reader.costs(googleCosts).status)
	require.Equal(t, http.StatusForbidden,
		reader.post("/console/sources/spend", "day", "2026-01-01", "source", "api", "amount", "1").status)
	require.Equal(t, http.StatusBadRequest, b.get("/console/sources/spend?asOf=x").status)
}

func TestConsoleAttribution_ShowsCosts(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	captured := b.capture(`{"name":"Asha","phone":"9876543210","status":"won","opportunityValue":3000,` +
		`"metadata":{"source":"google_ad","utm_campaign":"Brand"}}`)
	today := captured.at("data", "createdAt").(string)[:len(time.DateOnly)]
	page := "/console/sources/attribution?by=campaign&since=" + today + "&until=" + today
	b.caughtUp()
	require.NotContains(t, b.get(page).body, "Return on cost")
	b.post("/console/sources/spend", "day", today, "source", "google_ad", "utmCampaign", "Brand", "amount", "1000")
	b.caughtUp()
	shown := b.get(page).body
	require.Contains(t, shown, "Return on cost")
	require.Contains(t, shown, `INR 1,000</data></td><td class="num"><data class="money" value="1000" `+
		`data-currency="INR">INR 1,000</data></td><td class="num">3</td>`, "cost, cost per conversion and return")
	require.Contains(t, shown, "cost=true")
	require.Contains(t, shown, "report attribution --cost")
	require.Contains(t, b.get("/console/sources/attribution.csv?by=campaign&since="+today+"&until="+today).body,
		"Brand,1,1.000000,3000.0000,1000.0000,1000.0000,3.0000")
}
