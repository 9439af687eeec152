package console

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/attribution"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
)

func TestNames_CoverCatalogue(t *testing.T) {
	t.Parallel()
	for what, ids := range map[string][]string{
		"source": lead.Sources(), "kind of intake": intake.Kinds(), "state of an arrival": arrival.States(),
		"state of a delivery":   query.DeliveryStates(),
		"state":                 {"enabled", "disabled", intake.Active, intake.Silent, intake.Failing, intake.Paused, "expired", "deleted"},
		"type of the audit log": query.TrailTypes(), "token event": query.TokenEventTypes(),
		"type sent": query.DeliveryTypes(), "model": attribution.Models(),
		"key":      attribution.Keys(),
		"interval": {query.Day, query.Week, query.Month},
	} {
		require.NotEmpty(t, ids, what)
		for _, id := range ids {
			require.NotEmpty(t, names[id], "%s %s", what, id)
			require.NotContains(t, names[id], "_", what)
		}
	}
	for _, why := range []string{webhook.ByOwner, webhook.Gone, webhook.Failing} {
		require.NotEmpty(t, reasonNames[why], why)
	}
	require.NotEmpty(t, viewNames[schema.FanOut])
	for _, one := range view.All() {
		require.NotEmpty(t, viewNames[one.Name()], one.Name())
	}
	for _, name := range lead.FieldNames() {
		require.NotEmpty(t, fieldNames[name], name)
	}
	var offered []string
	for _, kind := range kindsOfIntake {
		offered = append(offered, kind.Kind)
	}
	require.Equal(t, intake.Kinds(), offered)
	require.Equal(t, "in review", words("in_review"))
	require.Equal(t, "received", stage("received"), "the account's own, not the state of an arrival")
}

// Every member of a record of the audit log has a display name. Members of token and lead events are renamed or left
// out in the log.
func TestNames_CoverRecords(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"expiresInDays", "previousExpiresAt", "from", "field", "leads", "secret"} {
		require.NotEmpty(t, settingNames[name], name)
	}
	for _, stored := range event.TrailTypes() {
		if strings.HasPrefix(stored, "token.") || strings.HasPrefix(stored, "lead.") {
			continue
		}
		text, err := os.ReadFile("../../eventstore/event/testdata/" + stored + ".json")
		require.NoError(t, err)
		var members map[string]jsontext.Value
		require.NoError(t, json.Unmarshal(text, &members))
		for name := range members {
			if name != "changed" && name != "slot" { // not shown
				require.NotEmpty(t, settingNames[name], "%s of %s", name, stored)
			}
		}
	}
}

func TestShort_KeepsSuffix(t *testing.T) {
	t.Parallel()
	require.Equal(t, "…J4Q9ZK", short("01JD8XK3V7W2M5N6P0J4Q9ZK"))
	require.Equal(t, "admin", short("admin"))
	require.Equal(t, "token:…J4Q9ZK", actor("token:01JD8XK3V7W2M5N6P0J4Q9ZK"))
	require.Equal(t, "user:ann.of.accounting", actor("user:ann.of.accounting"))
}

// odd matches words and phrases that are correct but not terms of the field.
var odd = regexp.MustCompile(`(?i)\b(whoever|nobody|somebody|believed?|unborn|heir|departed|bequeath|patience|folded ` +
	`from|what became of|what was posted|in hand|at hand|the moment|gives? up|passes by|lets nobody|token ` +
	`audit|projections?)\b`)

var (
	action  = regexp.MustCompile(`\{\{[^}]*\}\}`)
	address = regexp.MustCompile(`(id|href|action|class|name|for|data-[a-z]+|aria-[a-z]+by)="[^"]*"`)
)

// copied reports whether a string of the source is text for users: several words, or a title.
func copied(literal string) bool {
	return strings.Contains(literal, " ") || unicode.IsUpper(rune(literal[1]))
}

func TestCopy_UsesPlainTerms(t *testing.T) {
	t.Parallel()
	require.Regexp(t, odd, "What became of it")
	pages, err := fs.Glob(templateFiles, "templates/*.html")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		source, err := fs.ReadFile(templateFiles, page)
		require.NoError(t, err)
		require.Empty(t,
			odd.FindAllString(address.ReplaceAllString(action.ReplaceAllString(string(source), ""), ""), -1), page)
	}
	files, err := fs.Glob(os.DirFS("."), "*.go")
	require.NoError(t, err)
	for _, file := range slices.DeleteFunc(files, func(name string) bool {
		return strings.HasSuffix(name, "_test.go")
	}) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && copied(text.Value) {
				require.NotRegexp(t, odd, text.Value, file)
			}
			return true
		})
	}
}
