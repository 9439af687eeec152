package httpapi_test

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection/view"
)

// stranger is the other account. Every text that it writes contains this name, and no text of ours does.
const stranger = "zq7stranger"

// tenants are two accounts on one service.
type tenants struct {
	ours, theirs service
	names        map[string]*strings.Replacer // of what the paths name: ours, theirs and missing
	secrets      []string                     // what no answer to ours may hold
}

// tenancy creates two accounts with one of everything, and two or more of theirs.
func tenancy(t *testing.T) *tenants {
	t.Helper()
	s := start(t, func(o *httpapi.Options) { o.RateLimit = 0 })
	s.fanOut()
	s.keepTree()
	s.provision(stranger, account.Settings{Features: []string{account.FeatureAPI}})
	w := &tenants{ours: *s, theirs: *s}
	w.theirs.account, w.theirs.jwt = stranger, s.mint(stranger, "")
	theirs := w.theirs.settle()
	w.names = map[string]*strings.Replacer{
		"ours": w.ours.settle(), "theirs": theirs, "missing": strings.NewReplacer(
			"{leadId}", missingID, "{tokenId}", missingID, "{webhookId}", missingID, "{deliveryId}", missingID, "{arrivalId}", missingID, "{intakeId}", missingID,
			"{eventId}", missingID, "{erasedLeadId}", missingID,
			"{accountId}", "zq8nobody", "{visitorId}", "v-missing", "{position}", "999999999", "{from}", "1"),
	}
	for _, name := range []string{"{leadId}", "{tokenId}", "{webhookId}", "{deliveryId}", "{arrivalId}", "{intakeId}", "{eventId}", "{erasedLeadId}"} {
		w.secrets = append(w.secrets, theirs.Replace(name))
	}
	w.secrets = append(w.secrets, stranger, "9988776655")
	w.furnish(theirs)
	s.caughtUp()
	return w
}

// furnish fills every list of theirs with several pages.
func (w *tenants) furnish(ids *strings.Replacer) {
	w.theirs.t.Helper()
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", tokens, `{"name":"` + stranger + `","expiresInDays":30}`, 201},
		{"POST", tokens + "/{tokenId}/rotate", ``, 200},
		{"POST", intakes, `{"name":"` + stranger + `","kind":"form"}`, 201},
		{"POST", endpoints, `{"url":"https://example.com/` + stranger + `","description":"` + stranger + `"}`, 201},
		{"PATCH", leads + "/{leadId}", `{"name":"` + stranger + `"}`, 200},
		{"POST", leads, `{"phone":"9123456780","metadata":{"source":"website","note":"` + stranger + `"}}`, 200},
		{"POST", leads, `{"phone":"9988776655","email":"` + stranger + `@example.com","name":"` + stranger + `"}`, 201},
		{"POST", leads, `{"phone":"9988776655"}`, 409},
		{"POST", leads, `{"phone":"9988776655"}`, 409},
		{"POST", visitors + "{visitorId}/activity", `{"type":"click","title":"` + stranger + `"}`, 202},
		{"POST", visitors + "{visitorId}/activity", `{"type":"custom","title":"` + stranger + `"}`, 202},
	} {
		r := w.theirs.as(c.method, ids.Replace(c.path), c.body)
		require.Equal(w.theirs.t, c.status, r.status, "%s %s: %s", c.method, c.path, r.raw)
	}
}

const missingID = "01ARZ3NDEKTSV4RRFFQ69G5FAV" // a valid id that does not exist

// caughtUp waits until all views and deliveries are up to date. A view that has not started has no checkpoint.
func (s *service) caughtUp() {
	s.t.Helper()
	head, err := s.store.Head(s.t.Context())
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		var current, behind int
		err := s.pool.QueryRow(s.t.Context(), `
			SELECT count(*) FILTER (WHERE position >= $1), count(*) FILTER (WHERE position < $1)
			  FROM (SELECT position FROM views.checkpoint UNION ALL SELECT position FROM delivery.checkpoint) AS c`, int64(head)).
			Scan(&current, &behind)
		return err == nil && behind == 0 && current >= len(view.All())
	}, time.Minute, 10*time.Millisecond)
}

// TestIsolation_OtherAccountNotFound requests with our credential, by every operation of the document, ids of theirs and
// ids that do not exist. The answers must be the same, contain nothing of theirs, and change nothing of theirs.
func TestIsolation_OtherAccountNotFound(t *testing.T) {
	t.Parallel()
	w := tenancy(t)
	before := w.everythingOfTheirs()
	for _, o := range operations() {
		if scopes, _ := o.scopes(); len(scopes) == 0 {
			w.holdNothing(t, w.ours.request(call{method: o.method, path: o.path}))
			if strings.HasPrefix(o.path, publicPrefix) || strings.Contains(o.path, "{tile}") {
				continue // of no account: who may post to an intake's address is the intake's to say, and the tree is public
			}
		}
		for _, c := range w.ways(t, o) {
			w.alike(t, o, c, w.paths(o))
			w.alike(t, o, c, w.queries(t, o))
			w.alikeByBody(t, o, c)
		}
	}
	w.ours.caughtUp()
	require.Equal(t, before, w.everythingOfTheirs())
}

// pair is one request in two forms.
type pair struct{ theirs, missing string }

// ways returns the forms of a request of an operation: with each example of a body, an empty one and one that
// is wrong, and for each media type of the answer.
func (w *tenants) ways(t *testing.T, o operation) []call {
	all := o.bodies(t)
	if o.RequestBody != nil {
		all = append(all, call{method: o.method, body: "{}"}, call{method: o.method, body: "no json"})
	}
	if ok := o.Responses.Status(http.StatusOK); ok != nil {
		for media := range ok.Value.Content {
			all = append(all, call{method: o.method, header: map[string]string{"Accept": media}})
		}
	}
	return all
}

var pathNames = regexp.MustCompile(`\{[^}]*\}`)

// paths returns pairs of paths with ids of theirs and missing ids: each id of a path alone, and all together.
func (w *tenants) paths(o operation) []pair {
	required := o.required(w.names["ours"])
	var all []pair
	names := pathNames.FindAllString(o.path, -1)
	for _, one := range names {
		with := func(whose string) string {
			return pathNames.ReplaceAllStringFunc(o.path, func(name string) string {
				if name == one {
					return w.named(whose, name)
				}
				return w.named("ours", name)
			}) + required
		}
		all = append(all, pair{with("theirs"), with("missing")})
	}
	whole := func(whose, query string) string {
		return pathNames.ReplaceAllStringFunc(o.path, func(name string) string { return w.named(whose, name) }) + query
	}
	if len(names) > 1 {
		all = append(all, pair{whole("theirs", required), whole("missing", required)})
	}
	for _, p := range o.Parameters {
		if p.Value.Name == "asOf" { // answered out of the log, and not out of a view
			now := "?asOf=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			all = append(all, pair{whole("theirs", now), whole("missing", now)})
		}
	}
	return all
}

func (w *tenants) named(whose, name string) string {
	if name == "{accountId}" && whose == "theirs" {
		return stranger
	}
	return w.names[whose].Replace(name)
}

// harmless are the query parameters that are not ids.
var harmless = []string{
	"limit", "minPosition", "since", "until", "createdSince", "createdUntil", "asOf", "interval", "dryRun",
	"status", "source", "leadTemperature", "type", "code", "size", "from", "to", "state", "reason",
	"model", "by", "window", "halfLife", "include",
	"types", "wait", "campaign", "medium",
}

// queries returns pairs with ids of theirs and missing ids in a query parameter.
func (w *tenants) queries(t *testing.T, o operation) []pair {
	path := w.names["ours"].Replace(o.path)
	var all []pair
	for _, p := range o.Parameters {
		if p.Value.In != "query" || slices.Contains(harmless, p.Value.Name) {
			continue
		}
		var value pair
		switch p.Value.Name {
		case "after":
			first := w.theirs.as(o.method, w.names["theirs"].Replace(o.path)+"?limit=1", "")
			value = pair{first.at("nextCursor").(string), "eDEuMQ"}
		case "cursor":
			first := w.theirs.as(o.method, w.names["theirs"].Replace(o.path)+"?limit=1", "")
			cursor, _ := first.at("nextCursor").(string)
			require.NotEmpty(t, cursor, "%s of theirs has one part only: %s", o.path, first.raw)
			value = pair{cursor, "eDEuMQ"}
		case "tokenId", "intakeId", "leadId", "position":
			value = pair{w.names["theirs"].Replace("{" + p.Value.Name + "}"), w.names["missing"].Replace("{" + p.Value.Name + "}")}
		case "subject":
			value = pair{w.names["theirs"].Replace("{leadId}"), w.names["missing"].Replace("{leadId}")}
		case "actor":
			value = pair{"user:" + stranger, "user:nobody"}
		case "phone":
			value = pair{"9988776655", "9988776644"}
		case "email":
			value = pair{stranger + "@example.com", "nobody@example.com"}
		case "q":
			value = pair{stranger, "zq8nobody"}
		default:
			t.Errorf("%s %s has a new parameter %s: say here what of another account's it can name, or that it is harmless",
				o.method, o.path, p.Value.Name)
			continue
		}
		all = append(all, pair{path + "?" + p.Value.Name + "=" + value.theirs, path + "?" + p.Value.Name + "=" + value.missing})
	}
	return all
}

// alike sends both requests of each pair.
func (w *tenants) alike(t *testing.T, o operation, c call, pairs []pair) {
	t.Helper()
	for _, p := range pairs {
		c.credential = w.ours.jwt
		c.path = p.missing
		want := w.ours.request(c)
		c.path = p.theirs
		got := w.ours.request(c)
		require.Equal(t, plain(want), plain(got), "%s %s (%s)", o.method, o.path, p.theirs)
		w.holdNothing(t, got)
	}
}

// alikeByBody requests ours with a body in which the ids of the example are replaced by theirs.
func (w *tenants) alikeByBody(t *testing.T, o operation, c call) {
	t.Helper()
	if !ulids.MatchString(c.body) {
		return
	}
	c.path, c.credential = w.names["ours"].Replace(o.path), w.ours.jwt
	example := c.body
	for _, name := range []string{"{leadId}", "{tokenId}", "{webhookId}", "{deliveryId}", "{arrivalId}", "{intakeId}", "{eventId}", "{erasedLeadId}"} {
		c.body = ulids.ReplaceAllString(example, missingID)
		want := w.ours.request(c)
		c.body = ulids.ReplaceAllString(example, w.named("theirs", name))
		got := w.ours.request(c)
		require.Equal(t, plain(want), plain(got), "%s %s: %s", o.method, o.path, c.body)
		w.holdNothing(t, got)
	}
}

func (w *tenants) holdNothing(t *testing.T, r reply) {
	t.Helper()
	for _, secret := range w.secrets {
		require.NotContains(t, r.raw, secret)
		for _, values := range r.header {
			require.NotContains(t, strings.Join(values, " "), secret)
		}
	}
}

var (
	ulids     = regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`)
	timesISO  = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)
	visitorID = regexp.MustCompile(`"visitorId":"[^"]*"`)
)

// plain returns an answer without the parts that differ in every answer.
func plain(r reply) map[string]any {
	raw := timesISO.ReplaceAllString(ulids.ReplaceAllString(r.raw, "ID"), "TIME")
	header := r.header.Clone()
	for _, name := range []string{"X-Request-Id", "Date", "X-Log-Position", "Content-Length"} {
		header.Del(name)
	}
	return map[string]any{"status": r.status, "header": header, "body": visitorID.ReplaceAllString(raw, `"visitorId":""`)}
}

// everythingOfTheirs is all answers about what they have.
func (w *tenants) everythingOfTheirs() map[string]string {
	all := make(map[string]string)
	for _, o := range operations() {
		if scopes, _ := o.scopes(); o.method != http.MethodGet || len(scopes) == 0 || slices.Contains(scopes, "admin") {
			continue
		}
		r := w.theirs.as(o.method, w.names["theirs"].Replace(o.path)+o.required(w.names["theirs"]), "")
		require.Equal(w.theirs.t, http.StatusOK, r.status, "%s: %s", o.path, r.raw)
		all[o.path] = asOfMember.ReplaceAllString(newest.ReplaceAllString(r.raw, ""), `"asOf":0`)
		if o.path == "/api/v1/crm/audit/events" {
			all[o.path] = readings.ReplaceAllString(all[o.path], "")
		}
		if o.path == eventsPath {
			all[o.path] = feedEnd.ReplaceAllString(r.raw, "")
		}
	}
	return all
}

// asOfMember is the head of the log, which X-Log-Position shows too.
var asOfMember = regexp.MustCompile(`"asOf":\d+`)

// newest matches the size of the log in a receipt, and the time of a certificate.
var newest = regexp.MustCompile(`(?s)\nindex .*|"proof":"[^"]*"|"issuedAt":"[^"]*"`)

// readings are the audit records of these reads.
var readings = regexp.MustCompile(`,\{"id":"[^"]*","type":"data\.(?:revealed|searched)"[^}]*\}\}`)

// feedEnd is the cursor of the end of the log.
var feedEnd = regexp.MustCompile(`"nextCursor":"[^"]*"}$`)

// TestIsolation_IdenticalAccounts sends the same requests to two accounts, with the same people, visitors and idempotency
// keys, by every operation of the document. Both must get the same answers.
func TestIsolation_IdenticalAccounts(t *testing.T) {
	t.Parallel()
	w := tenancy(t)
	w.furnishOurs()
	for _, o := range operations() {
		if scopes, _ := o.scopes(); len(scopes) == 0 {
			continue // the same for everybody
		}
		for i, c := range o.bodies(t) {
			c = w.keyed(t, o, c, i)
			example := c.body
			ask := func() (want, got reply) {
				w.ours.caughtUp() // with what the example before did: a delivery of theirs may be queued, and ours not yet
				c.body = w.names["theirs"].Replace(example)
				c.path, c.credential = w.names["theirs"].Replace(o.path)+o.required(w.names["theirs"]), w.theirs.jwt
				want = w.theirs.request(c)
				c.body = w.names["ours"].Replace(example)
				c.path, c.credential = w.names["ours"].Replace(o.path)+o.required(w.names["ours"]), w.ours.jwt
				return want, w.ours.request(c)
			}
			want, got := ask()
			for range 100 { // what runs in the background, such as resubmissions, may append between the two
				if o.method != http.MethodGet || reflect.DeepEqual(shape(t, want), shape(t, got)) {
					break
				}
				want, got = ask()
			}
			require.Equal(t, want.status, got.status, "%s %s: %s", o.method, o.path, got.raw)
			require.Equal(t, shape(t, want), shape(t, got), "%s %s:\n%s\n%s", o.method, o.path, want.raw, got.raw)
			require.Equal(t, want.header.Get("Idempotent-Replayed"), got.header.Get("Idempotent-Replayed"), o.path)
			w.holdNothing(t, got)
		}
	}
}

// furnishOurs creates for us what they have, with other names.
func (w *tenants) furnishOurs() {
	twin := &tenants{theirs: w.ours}
	twin.furnish(w.names["ours"])
	w.secrets = slices.DeleteFunc(w.secrets, func(s string) bool { return s == stranger || s == "9988776655" })
	w.ours.caughtUp()
}

// keyed adds the headers that an operation may have.
func (w *tenants) keyed(t *testing.T, o operation, c call, n int) call {
	for _, p := range o.Parameters {
		if p.Value.In != "header" {
			continue
		}
		require.Equal(t, "Idempotency-Key", p.Value.Name, "%s %s has a new header: say here what it may be", o.method, o.path)
		header := map[string]string{p.Value.Name: "key-" + string(rune('a'+n))}
		for name, value := range c.header {
			header[name] = value
		}
		c.header = header
	}
	return c
}

// shape returns the structure of an answer: its members, the lengths of lists, booleans, codes and
// messages.
func shape(t *testing.T, r reply) any {
	t.Helper()
	if !strings.Contains(r.header.Get("Content-Type"), "json") {
		return strings.Count(newest.ReplaceAllString(r.raw, ""), "\n")
	}
	var lines []any
	for line := range strings.Lines(r.raw) {
		var value any
		require.NoError(t, json.Unmarshal([]byte(line), &value), r.raw)
		lines = append(lines, outline("", value))
	}
	if strings.HasPrefix(r.asked.path, eventsPath) { // the lines of a batch come to the log in any order
		events := lines[0].(map[string]any)["data"].([]any)
		slices.SortFunc(events, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return lines
}

func outline(name string, value any) any {
	switch value := value.(type) {
	case string:
		if name == "code" || name == "message" {
			return ulids.ReplaceAllString(value, "ID")
		}
		return ""
	case float64:
		if name == "status" {
			return value
		}
		return 0.0
	case []any:
		for i, one := range value {
			value[i] = outline("", one)
		}
	case map[string]any:
		for key, one := range value {
			value[key] = outline(key, one)
		}
	}
	return value
}
