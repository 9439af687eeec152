package systemtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport_VerifyAndDiff(t *testing.T) {
	t.Parallel()
	settings, jwt, base := startService(t)
	created := mustCall(t, "POST", base+leadsPath, jwt,
		`{"phone":"9876543210","opportunityValue":100,"metadata":{"source":"website"}}`).is(t, 201)
	mustCall(t, "POST", base+leadsPath, jwt, `{"phone":"9876543210","metadata":{"source":"google_ad"}}`).is(t, 200)
	path := base + leadsPath + "/" + created.data()["leadId"].(string)
	won := mustCall(t, "PATCH", path, jwt, `{"status":"won"}`).is(t, 200)

	dir := t.TempDir()
	make := func(name string, flags ...string) string {
		file := filepath.Join(dir, name)
		args := append([]string{"report", "attribution", "--account", "acme", "--out", file}, flags...)
		_, printed := outputOf(t, 0, settings, args...)
		require.Contains(t, printed, "conversions")
		return file
	}
	read := func(file string) string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	asOf := won.header.Get("X-Log-Position")
	linear := make("linear.json", "--model", "linear", "--half-life", "12h", "--include", "visits", "--as-of", asOf)
	require.Contains(t, read(linear), `"conversions": "0.500000",`)
	mustCall(t, "PATCH", path, jwt, `{"opportunityValue":50}`).is(t, 200)
	mustCall(t, "DELETE", path, jwt, "").is(t, 200)
	require.Equal(t, read(linear),
		read(make("again.json", "--model", "linear", "--half-life", "12h", "--include", "visits", "--as-of", asOf)),
		"the same bytes")
	out, _ := outputOf(t, 0, settings, "verify", linear)
	require.Equal(t, "account acme: the log gives this report, as of position "+asOf+"\n", out)

	forged := file(t, dir, "forged.json", strings.Replace(read(linear), `"50.0000"`, `"51.0000"`, 1))
	out, printed := outputOf(t, 1, settings, "verify", forged)
	require.Equal(t,
		`row "google_ad": touches 1, conversions 0.500000, value 51.0000 -> touches 1, conversions 0.500000, `+
			`value 50.0000`+"\n", out)
	require.Contains(t, printed, "the log yields a different report")
	outputOf(t, 1, settings, "verify", file(t, dir, "cut.json", read(linear)[:100]))

	out, _ = outputOf(t, 0, settings, "report", "diff", linear, filepath.Join(dir, "again.json"))
	require.Equal(t, "the reports are equal\n", out)
	now := make("now.json", "--model", "linear", "--half-life", "12h", "--include", "visits")
	out, printed = outputOf(t, 1, settings, "report", "diff", linear, now)
	require.Regexp(t,
		`^row "google_ad": touches 1, conversions 0.500000, value 50.0000 -> touches 1, conversions 0.500000, value 25.0000
  lead.updated \w{26} at position \d+, lead \w{26}
row "website": .*
  lead.updated .*
$`, out)
	require.Contains(t, printed, "the reports differ")

	last := make("last.json")
	campaign := make("campaign.json", "--by", "campaign")
	for _, args := range [][]string{
		{"report", "diff", last}, {"report", "diff", last, campaign},
		{"report", "diff", last, file(t, dir, "none.json", "{}")}, {"report", "diff", last, "nowhere"},
		{"report"}, {"report", "attribution", "--account", "acme"}, {"verify", "--heal", last},
		{"report", "attribution", "--account", "missing", "--out", last},
		{"report", "attribution", "--account", "acme", "--out", last, "--model", "best"},
		{"report", "attribution", "--account", "acme", "--out", last, "--window", "366d"},
		{"report", "attribution", "--account", "acme", "--out", last, "--as-of", "999999999"},
	} {
		outputOf(t, 2, settings, args...)
	}
}
