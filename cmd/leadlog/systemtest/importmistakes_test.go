package systemtest

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnImportThatCannotBegin(t *testing.T) {
	t.Parallel()
	settings := production(t)
	provisioned(t, settings)
	plain := launch(t, settings, "account", "set", "plain")
	require.Zero(t, plain.finish(t), plain.err)
	good := written(t, "leads.csv", "name,phone\nAsha,9876543210\n")
	for name, c := range map[string]struct {
		code int
		said string
		args []string
	}{
		"no such file":             {1, "no such file", []string{"/nowhere.csv", "--account", "acme"}},
		"no file":                  {1, "must be a file", []string{"/dev/null", "--account", "acme"}},
		"another account":          {2, `--account="nobody": must be an account: there is none`, []string{good, "--account", "nobody"}},
		"an account without it":    {1, "account plain: feature crm_api is not enabled", []string{good, "--account", "plain"}},
		"a spreadsheet":            {1, "save it as CSV", []string{written(t, "leads.xlsx", "PK\x03\x04\x14\x00"), "--account", "acme"}},
		"a spreadsheet by a name":  {1, "save it as CSV", []string{written(t, "leads.csv", "\xd0\xcf\x11\xe0\xa1\xb1"), "--account", "acme"}},
		"an unknown format":        {2, "Try: leadlog import --help", []string{good, "--account", "acme", "--format", "xml"}},
		"no account":               {2, "--account", []string{good}},
		"an unknown column":        {2, `there is no column "Fax"`, []string{good, "--account", "acme", "--map", "Fax=phone"}},
		"an unknown field":         {2, `there is no field "tel"`, []string{good, "--account", "acme", "--map", "phone=tel"}},
		"a bad delimiter":          {2, `--delimiter="ab"`, []string{good, "--account", "acme", "--delimiter", "ab"}},
		"a bad encoding":           {2, `--encoding="klingon"`, []string{good, "--account", "acme", "--encoding", "klingon"}},
		"an array":                 {1, "JSON array", []string{written(t, "leads.json", " [{}]"), "--account", "acme"}},
		"a map for JSON":           {2, "about CSV", []string{written(t, "leads.json", "{}"), "--account", "acme", "--map", "a=b"}},
		"an empty table":           {1, "must name the columns", []string{written(t, "leads.csv", ""), "--account", "acme"}},
		"an outcome for nobody":    {1, "--outcome", []string{good, "--account", "acme", "--outcome", "/nowhere/out.csv"}},
		"a quote that nobody ends": {1, "nobody closes", []string{written(t, "leads.csv", "a,b\n\"x"+strings.Repeat(",y\n", 1<<20)), "--account", "acme"}},
	} {
		p := launch(t, settings, append([]string{"import"}, c.args...)...)
		require.Equal(t, c.code, p.finish(t), "%s: %s", name, p.err)
		require.Contains(t, p.err.String(), c.said, name)
	}
	first := launch(t, settings, "import", good, "--account", "acme")
	require.Zero(t, first.finish(t), first.err)
	other := maps.Clone(settings)
	other["LEADLOG_CLAIM_KEY"] = "bm90IHRoZSBzYW1lIGtleSBhcyBpdCB3YXMgYmVmb3I="
	p := launch(t, other, "import", good, "--account", "acme")
	require.Equal(t, 1, p.finish(t))
	require.Contains(t, p.err.String(), "LEADLOG_CLAIM_KEY")
}
