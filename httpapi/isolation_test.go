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
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection/view"
)

// stranger is the id of the other account. Each text that it sends contains this name, and no text of the own account
// does.
const stranger = "zq7stranger"

// tenants are two accounts on one service.
type tenants struct {
	own, other service
	names      map[string]*strings.Replacer // ids for names in paths: own, other and missing
	secrets    []string                     // texts that no answer to the own account may contain
}

// newTenants creates two accounts. The own account has one resource of each kind, and the other account at least two.
func newTenants(t *testing.T) *tenants {
	t.Helper()
	s := startAlone(t, func(o *httpapi.Options) { o.RateLimit = 0 })
	s.fanOut()
	s.publishTree()
	s.provision(stranger, account.Settings{Features: []string{account.FeatureAPI}})
	w := &tenants{own: *s, other: *s}
	w.other.account, w.other.jwt = stranger, s.mint(stranger, "")
	other := w.other.createResources()
	w.names = map[string]*strings.Replacer{
		"own": w.own.createResources(), "other": other, "missing": strings.NewReplacer(
			"{leadId}", missingID, "{tokenId}", missingID, "{webhookId}", missingID, "{deliveryId}", missingID,
			"{arrivalId}", missingID, "{intakeId}", missingID, "{eventId}", missingID, "{erasedLeadId}", missingID,
			"{accountId}", "zq8missing", "{visitorId}", "v-missing", "{position}", "999999999", "{from}", "1"),
	}
	for _, name := range []string{
		"{leadId}", "{tokenId}", "{webhookId}", "{deliveryId}", "{arrivalId}", "{intakeId}", "{eventId}",
		"{erasedLeadId}",
	} {
		w.secrets = append(w.secrets, other.Replace(name))
	}
	w.secrets = append(w.secrets, stranger, "9988776655")
	w.populate(other)
	s.caughtUp()
	return w
}

// populate creates several pages in each list of the other account.
func (w *tenants) populate(ids *strings.Replacer) {
	w.other.t.Helper()
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", tokens, `{"name":"` + stranger + `","expiresInDays":30}`, 201},
		{"POST", tokens + "/{tokenId}/rotate", ``, 200},
		{
			"PUT", spending, `{"rows":[{"day":"2026-11-27","key":{"utmSource":"` + stranger + `"},"amount":1},
				{"day":"2026-11-28","key":{"utmSource":"` + stranger + `"},"amount":2}]}`, 200,
		},
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
		r := w.other.as(c.method, ids.Replace(c.path), c.body)
		require.Equal(w.other.t, c.status, r.status, "%s %s: %s", c.method, c.path, r.raw)
	}
}

const missingID = "01ARZ3NDEKTSV4RRFFQ69G5FAV" // a valid id that does not exist

// caughtUp waits until all views and deliveries are up to date, with those that the fan-out deferred. A view that has
// not started has no checkpoint.
func (s *service) caughtUp() {
	s.t.Helper()
	s.awaitViews(s.t)
	require.Eventually(s.t, func() bool {
		var deferred bool
		err := s.pool.QueryRow(s.t.Context(), `SELECT EXISTS (SELECT FROM delivery.deferred)`).Scan(&deferred)
		return err == nil && !deferred
	}, time.Minute, 10*time.Millisecond)
}

func (c *connections) awaitViews(t testing.TB) {
	t.Helper()
	head := storetest.Head(t, c.store)
	require.Eventually(t, func() bool {
		var current, behind int
		err := c.pool.QueryRow(t.Context(), `
			SELECT count(*) FILTER (WHERE position >= $1), count(*) FILTER (WHERE position < $1)
			  FROM (SELECT position FROM views.checkpoint UNION ALL SELECT position
			    FROM delivery.checkpoint) AS c`, int64(head)).
			Scan(&current, &behind)
		return err == nil && behind == 0 && current >= len(view.All())
	}, time.Minute, 10*time.Millisecond)
}

// TestIsolation_OtherAccountNotFound calls every operation of the document with the own credential, once with ids of
// the other account and once with missing ids. Both answers must be equal, and no call may read or change data of the
// other account.
func TestIsolation_OtherAccountNotFound(t *testing.T) {
	t.Parallel()
	w := newTenants(t)
	before := w.otherAccountAnswers()
	for _, o := range operations() {
		if scopes, _ := o.scopes(); len(scopes) == 0 {
			w.requireNothingOfOther(t, w.own.request(call{method: o.method, path: o.path}))
			if strings.HasPrefix(o.path, publicPrefix) || strings.Contains(o.path, "{tile}") {
				continue // not bound to an account: intakes accept posts by their own proof, and the tree is public
			}
		}
		for _, c := range w.variants(t, o) {
			w.requireSameAnswers(t, o, c, w.paths(o))
			w.requireSameAnswers(t, o, c, w.queries(t, o))
			w.requireSameAnswersByBody(t, o, c)
		}
	}
	w.own.caughtUp()
	require.Equal(t, before, w.otherAccountAnswers())
}

// pair is a path with an id of the other account and with a missing id.
type pair struct{ other, missing string }

// variants returns the requests of an operation: one for each example of a body, for an empty and an invalid body, and
// for each media type of the answer.
func (w *tenants) variants(t *testing.T, o operation) []call {
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

// paths returns pairs of paths in which each id, or every id, is replaced.
func (w *tenants) paths(o operation) []pair {
	required := o.required(w.names["own"])
	var all []pair
	names := pathNames.FindAllString(o.path, -1)
	for _, one := range names {
		with := func(whose string) string {
			return pathNames.ReplaceAllStringFunc(o.path, func(name string) string {
				if name == one {
					return w.named(whose, name)
				}
				return w.named("own", name)
			}) + required
		}
		all = append(all, pair{with("other"), with("missing")})
	}
	substitute := func(whose, query string) string {
		return pathNames.ReplaceAllStringFunc(o.path, func(name string) string { return w.named(whose, name) }) + query
	}
	if len(names) > 1 {
		all = append(all, pair{substitute("other", required), substitute("missing", required)})
	}
	for _, p := range o.Parameters {
		if p.Value.Name == "asOf" { // answered from the log instead of a view
			now := "?asOf=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
			all = append(all, pair{substitute("other", now), substitute("missing", now)})
		}
	}
	return all
}

func (w *tenants) named(whose, name string) string {
	if name == "{accountId}" && whose == "other" {
		return stranger
	}
	return w.names[whose].Replace(name)
}

// harmless are the query parameters that are not ids.
var harmless = []string{
	"consent", "current", "limit", "minPosition", "since", "until", "createdSince", "createdUntil", "asOf", "interval",
	"dryRun", "status", "source", "leadTemperature", "type", "code", "size", "from", "to", "state", "reason",
	"model", "by", "window", "halfLife", "include", "cost",
	"types", "wait", "campaign", "medium", "shared",
}

// queries returns pairs with a replaced id in each query parameter.
func (w *tenants) queries(t *testing.T, o operation) []pair {
	path := w.names["own"].Replace(o.path)
	var all []pair
	for _, p := range o.Parameters {
		if p.Value.In != "query" || slices.Contains(harmless, p.Value.Name) {
			continue
		}
		var value pair
		switch p.Value.Name {
		case "after":
			first := w.other.as(o.method, w.names["other"].Replace(o.path)+"?limit=1", "")
			value = pair{first.at("nextCursor").(string), "eDEuMQ"}
		case "cursor":
			first := w.other.as(o.method, w.names["other"].Replace(o.path)+"?limit=1", "")
			cursor, _ := first.at("nextCursor").(string)
			require.NotEmpty(t, cursor, "%s of the other account has only one page: %s", o.path, first.raw)
			value = pair{cursor, "eDEuMQ"}
		case "tokenId", "intakeId", "leadId", "position":
			value = pair{
				w.names["other"].Replace("{" + p.Value.Name + "}"),
				w.names["missing"].Replace("{" + p.Value.Name + "}"),
			}
		case "subject":
			value = pair{w.names["other"].Replace("{leadId}"), w.names["missing"].Replace("{leadId}")}
		case "actor":
			value = pair{"user:" + stranger, "user:missing"}
		case "phone":
			value = pair{"9988776655", "9988776644"}
		case "email":
			value = pair{stranger + "@example.com", "missing@example.com"}
		case "q":
			value = pair{stranger, "zq8missing"}
		default:
			t.Errorf("%s %s has a new parameter %s: add its value for another account here, or add it to harmless",
				o.method, o.path, p.Value.Name)
			continue
		}
		all = append(all, pair{
			path + "?" + p.Value.Name + "=" + value.other, path + "?" + p.Value.Name + "=" + value.missing,
		})
	}
	return all
}

// requireSameAnswers sends both requests of each pair and requires the same answer.
func (w *tenants) requireSameAnswers(t *testing.T, o operation, c call, pairs []pair) {
	t.Helper()
	for _, p := range pairs {
		c.credential = w.own.jwt
		c.path = p.missing
		want := w.own.request(c)
		c.path = p.other
		got := w.own.request(c)
		require.Equal(t, normalized(want), normalized(got), "%s %s (%s)", o.method, o.path, p.other)
		w.requireNothingOfOther(t, got)
	}
}

// requireSameAnswersByBody replaces the ids in a body by ids of the other account and by missing ids, and requires the
// same answer.
func (w *tenants) requireSameAnswersByBody(t *testing.T, o operation, c call) {
	t.Helper()
	if !ulids.MatchString(c.body) {
		return
	}
	c.path, c.credential = w.names["own"].Replace(o.path), w.own.jwt
	example := c.body
	for _, name := range []string{
		"{leadId}", "{tokenId}", "{webhookId}", "{deliveryId}", "{arrivalId}", "{intakeId}", "{eventId}",
		"{erasedLeadId}",
	} {
		c.body = ulids.ReplaceAllString(example, missingID)
		want := w.own.request(c)
		c.body = ulids.ReplaceAllString(example, w.named("other", name))
		got := w.own.request(c)
		require.Equal(t, normalized(want), normalized(got), "%s %s: %s", o.method, o.path, c.body)
		w.requireNothingOfOther(t, got)
	}
}

func (w *tenants) requireNothingOfOther(t *testing.T, r reply) {
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

// normalized returns an answer without the parts that differ between any two answers.
func normalized(r reply) map[string]any {
	raw := timesISO.ReplaceAllString(ulids.ReplaceAllString(r.raw, "ID"), "TIME")
	header := r.header.Clone()
	for _, name := range []string{"X-Request-Id", "Date", "X-Log-Position", "Content-Length"} {
		header.Del(name)
	}
	return map[string]any{
		"status": r.status, "header": header, "body": visitorID.ReplaceAllString(raw, `"visitorId":""`),
	}
}

// otherAccountAnswers returns the answers to every read of the other account.
func (w *tenants) otherAccountAnswers() map[string]string {
	all := make(map[string]string)
	for _, o := range operations() {
		if scopes, _ := o.scopes(); o.method != http.MethodGet || len(scopes) == 0 || slices.Contains(scopes, "admin") {
			continue
		}
		r := w.other.as(o.method, w.names["other"].Replace(o.path)+o.required(w.names["other"]), "")
		require.Equal(w.other.t, http.StatusOK, r.status, "%s: %s", o.path, r.raw)
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
var newest = regexp.MustCompile(`(?s)\nindex .*|"(?:proof|receipt)":"[^"]*"|"issuedAt":"[^"]*"`)

// readings are the audit records of these reads.
var readings = regexp.MustCompile(`,\{"id":"[^"]*","type":"data\.(?:revealed|searched)"[^}]*\}\}`)

// feedEnd is the cursor of the end of the log.
var feedEnd = regexp.MustCompile(`"nextCursor":"[^"]*"}$`)

// TestIsolation_IdenticalAccounts sends the same requests to two accounts, with the same people, visitors and
// idempotency keys, by every operation of the document. Both must get the same answers.
func TestIsolation_IdenticalAccounts(t *testing.T) {
	t.Parallel()
	w := newTenants(t)
	w.populateOwn()
	for _, o := range operations() {
		if scopes, _ := o.scopes(); len(scopes) == 0 {
			continue // the operation has no account
		}
		for i, c := range o.bodies(t) {
			c = w.keyed(t, o, c, i)
			example := c.body
			sendBoth := func() (want, got reply) {
				w.own.caughtUp() // waits for effects of the previous example, such as queued deliveries
				c.body = w.names["other"].Replace(example)
				c.path, c.credential = w.names["other"].Replace(o.path)+o.required(w.names["other"]), w.other.jwt
				want = w.other.request(c)
				c.body = w.names["own"].Replace(example)
				c.path, c.credential = w.names["own"].Replace(o.path)+o.required(w.names["own"]), w.own.jwt
				return want, w.own.request(c)
			}
			want, got := sendBoth()
			for range 100 { // background work, such as resubmissions, may append between the two requests
				if o.method != http.MethodGet || reflect.DeepEqual(shape(t, want), shape(t, got)) {
					break
				}
				want, got = sendBoth()
			}
			require.Equal(t, want.status, got.status, "%s %s: %s", o.method, o.path, got.raw)
			require.Equal(t, shape(t, want), shape(t, got), "%s %s:\n%s\n%s", o.method, o.path, want.raw, got.raw)
			require.Equal(t, want.header.Get("Idempotent-Replayed"), got.header.Get("Idempotent-Replayed"), o.path)
			w.requireNothingOfOther(t, got)
		}
	}
}

// populateOwn creates the resources of the other account in the own account.
func (w *tenants) populateOwn() {
	swapped := &tenants{other: w.own}
	swapped.populate(w.names["own"])
	w.secrets = slices.DeleteFunc(w.secrets, func(s string) bool { return s == stranger || s == "9988776655" })
	w.own.caughtUp()
}

// keyed adds the headers that an operation may have.
func (w *tenants) keyed(t *testing.T, o operation, c call, n int) call {
	for _, p := range o.Parameters {
		if p.Value.In != "header" {
			continue
		}
		require.Equal(t, "Idempotency-Key", p.Value.Name,
			"%s %s has a new header: add its value here", o.method, o.path)
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
	if strings.HasPrefix(r.asked.path, eventsPath) { // the lines of a batch are appended in any order
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
