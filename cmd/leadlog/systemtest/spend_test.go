package systemtest

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

const (
	metaCosts = "\ufeff" + `Reporting starts,Reporting ends,Campaign name,Ad set name,Day,Amount spent (INR)
2026-01-01,2026-01-02,Diwali,Pune,2026-01-01,1010.5
2026-01-01,2026-01-02,Diwali,Delhi,2026-01-01,0.25
2026-01-01,2026-01-02,,,,1010.75
`
	googleCosts = `Campaign report
"January 1, 2026 - January 2, 2026"
Day,Campaign,Currency code,Cost
2026-01-01,Brand,INR,"1,234.50"
2026-01-02,Brand,INR,500.00
Total: Account, --,INR,"1,734.50"
`
)

// The exports of two platforms are imported, corrected and imported again; a report as of before has the same bytes.
func TestSpendImport_ReportsCosts(t *testing.T) {
	t.Parallel()
	settings, _, _ := startService(t)
	dir := t.TempDir()
	result := func(code int, name, content string, flags ...string) (string, string) {
		args := append([]string{"spend", "import", file(t, dir, name, content), "--account", "acme"}, flags...)
		return outputOf(t, code, settings, args...)
	}
	out, _ := result(0, "meta.csv", metaCosts, "--dry-run")
	require.Equal(t, "1 days and keys, 2026-01-01 to 2026-01-01, 1010.75 INR, 1 would change; nothing was written\n", out)
	out, printed := result(0, "meta.csv", metaCosts)
	require.Equal(t, "1 days and keys, 2026-01-01 to 2026-01-01, 1010.75 INR, 1 changed\n", out)
	require.Contains(t, printed, "export of Meta Ads Manager")
	require.Contains(t, printed, "left out as totals: line 4")
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err := zip.Write([]byte(googleCosts))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	for _, changed := range []string{"2", "0"} {
		out, _ = result(0, "google.csv.gz", packed.String())
		require.Equal(t, "2 days and keys, 2026-01-01 to 2026-01-02, 1734.5 INR, "+changed+" changed\n", out)
	}

	report := func(name string, flags ...string) string {
		path := filepath.Join(dir, name)
		_, _ = outputOf(t, 0, settings, append([]string{
			"report", "attribution", "--account", "acme", "--by", "campaign", "--cost", "--out", path,
		}, flags...)...)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
	before := report("before.json")
	require.Contains(t, before, `"cost": "2745.2500"`)
	_, rest, _ := strings.Cut(before, `"asOf": `)
	position, _, _ := strings.Cut(rest, ",")

	renamed := strings.NewReplacer("Diwali", "Diwali 2", "1010.5,", "2000,", "1010.5\n", "2000\n").Replace(metaCosts)
	out, printed = result(0, "meta.csv", renamed)
	require.Equal(t, "1 days and keys, 2026-01-01 to 2026-01-01, 2000.25 INR, 1 changed\n", out)
	require.Contains(t, printed, "1 other amounts of the same source")
	_, printed = result(0, "meta.csv", renamed, "--replace")
	require.NotContains(t, printed, "other amounts")
	require.Contains(t, report("after.json"), `"cost": "3734.7500"`)
	require.Equal(t, before, report("again.json", "--as-of", position), "the same bytes")
	outputOf(t, 0, settings, "verify", filepath.Join(dir, "after.json"))

	out, printed = result(1, "bad.csv", strings.Replace(metaCosts, "1010.5", "much", 1))
	require.Empty(t, out)
	require.Contains(t, printed, "line 2: Amount spent (INR) is not a number such as 1250.50\n")
	result(1, "usd.csv", strings.ReplaceAll(metaCosts, "INR", "USD"))
	result(2, "meta.csv", metaCosts, "--set", "amount=1")
	result(2, "meta.csv", metaCosts, "--map", "Dayy=day")
	require.Equal(t, before, report("again.json", "--as-of", position))
	outputOf(t, 2, settings, "spend", "import", filepath.Join(dir, "meta.csv"), "--account", "absent")
}

// A person uploads costs, enters a row, and sees them beside conversions.
func TestConsole_CostsInBrowser(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	_, base := serve(t, settings)
	mustCall(t, "POST", base+leadsPath, jwt, `{"name":"Asha","phone":"9876543210","status":"won","opportunityValue":5000,`+
		`"metadata":{"source":"google_ad","utm_campaign":"Brand"}}`).is(t, 201)

	c := openChromium(t, base)
	c.open("/console/sources/spend")
	c.do(chromedp.SetValue("#jwt", jwt, chromedp.ByQuery))
	c.press("Sign in")
	c.waitText("main", "No costs yet")
	c.do(chromedp.SetUploadFiles("#file", []string{writeFile(t, "google.csv", googleCosts)}, chromedp.ByQuery))
	c.press("Set the costs")
	c.waitText("main", "2 amounts read, 2 changed.")
	c.do(chromedp.SetValue("#row-source", "google_ad", chromedp.ByQuery),
		chromedp.SetValue("#row-campaign", "Brand", chromedp.ByQuery),
		chromedp.SetValue("#row-amount", "1,000.50", chromedp.ByQuery))
	c.press("Set the amount")
	c.waitText("main", "1 amount read, 1 changed.")
	c.do(chromedp.SetUploadFiles("#file", []string{writeFile(t, "bad.csv", "day,source,amount\n1,x,y\n")},
		chromedp.ByQuery))
	c.press("Set the costs")
	c.waitText("main", "line 2: amount is not a number such as 1250.50")
	c.open("/console/sources/attribution?by=campaign")
	c.waitText("#attribution", "Return on cost")
	c.visitPages([][2]string{{"spend", "/sources/spend"}, {"attribution-costs", "/sources/attribution?by=campaign"}})
}
