package httpapi_test

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/schema"
)

// operations are those of the document: first what creates, last what deletes.
func operations() []operation {
	order := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodGet, http.MethodDelete}
	var all []operation
	for path, item := range described().open.Paths.Map() {
		for method, o := range item.Operations() {
			all = append(all, operation{o, method, path})
		}
	}
	slices.SortFunc(all, func(a, b operation) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.method), slices.Index(order, b.method)), cmp.Compare(a.path, b.path))
	})
	return all
}

type operation struct {
	*openapi3.Operation
	method, path string
}

// scopes are what a JWT needs for the operation; tokens tells whether an API token will do too.
func (o operation) scopes() (scopes []string, tokens bool) {
	if o.Security == nil {
		return nil, false
	}
	for _, one := range *o.Security {
		_, token := one["apiToken"]
		scopes, tokens = append(scopes, one["jwt"]...), tokens || token
	}
	return scopes, tokens
}

// bodies are the examples of the request, by media type; one without content when it has no body.
func (o operation) bodies(t *testing.T) []call {
	if o.RequestBody == nil {
		return []call{{method: o.method, path: o.path}}
	}
	var all []call
	for media, content := range o.RequestBody.Value.Content {
		for _, name := range slices.Sorted(maps.Keys(content.Examples)) {
			value := content.Examples[name].Value.Value
			text, isText := value.(string)
			if !isText {
				encoded, err := json.Marshal(value)
				require.NoError(t, err)
				text = string(encoded)
			}
			all = append(all, call{method: o.method, path: o.path, body: text, header: map[string]string{"Content-Type": media}})
		}
	}
	return all
}

// required are the query parameters that cannot be left out.
func (o operation) required(ids *strings.Replacer) string {
	query := make(url.Values)
	for _, p := range o.Parameters {
		if p.Value.In == "query" && p.Value.Required {
			query.Set(p.Value.Name, ids.Replace("{"+p.Value.Name+"}"))
		}
	}
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

func TestOpenAPI_ExamplesAreAnswered(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.fanOut()
	ids := s.settle()
	for _, o := range operations() {
		for _, c := range o.bodies(t) {
			c.path = ids.Replace(c.path)
			c.path += o.required(ids)
			c.body = ids.Replace(c.body)
			c.credential = s.jwt
			if scopes, _ := o.scopes(); slices.Contains(scopes, "admin") {
				c.credential = s.mint("admins", "admin")
			}
			// That the answer is as described is seen by everything that the service answers in these tests.
			r := s.request(c)
			require.Equal(t, 2, r.status/100, "%s %s %s: %d %s", c.method, c.path, c.body, r.status, r.raw)
		}
	}
}

// settle makes one of everything that the paths of the document name, and tells what it is called. It waits for a
// delivery.
func (s *service) settle() *strings.Replacer {
	s.t.Helper()
	tokenID, _ := s.token()
	audited := s.eventually(tokens+"/"+tokenID+"/events", func(r reply) bool { return r.status == http.StatusOK && len(r.at("data").([]any)) > 0 })
	created := audited.at("data").([]any)[0].(map[string]any)
	endpoint := s.as(http.MethodPost, endpoints, `{"url":"https://hooks.example.com/all"}`).is(http.StatusCreated)
	webhookID := endpoint.at("data", "webhookId").(string)
	lead := s.capture(`{"phone":"9123456780","email":"released@example.com","visitorId":"v-81f3"}`).is(http.StatusCreated)
	twin := s.capture(`{"email":"twin@example.com"}`).is(http.StatusCreated)
	s.provision("another", account.Settings{})
	var deliveryID string
	require.Eventually(s.t, func() bool {
		list, _ := s.as(http.MethodGet, endpoints+"/"+webhookID+"/deliveries", "").at("data").([]any)
		if len(list) > 0 {
			deliveryID = list[0].(map[string]any)["deliveryId"].(string)
		}
		return len(list) > 0
	}, time.Minute, 20*time.Millisecond)
	return strings.NewReplacer(
		"{leadId}", lead.at("data", "leadId").(string), "{tokenId}", tokenID, "{webhookId}", webhookID,
		"{deliveryId}", deliveryID, "{accountId}", "another", "{visitorId}", "v-81f3",
		"01M7YGZVZWE6S8RYN49QGMF6BJ", twin.at("data", "leadId").(string), // who is joined
		"{position}", strconv.FormatFloat(created["position"].(float64), 'f', 0, 64), "{from}", "1",
	)
}

// fanOut queues deliveries for as long as the test runs. Nothing sends them.
func (s *service) fanOut() {
	s.t.Helper()
	pool := pgtest.Pool(s.t, s.url)
	require.NoError(s.t, delivery.Begin(s.t.Context(), pool, s.store))
	epoch, err := s.store.Epoch(s.t.Context())
	require.NoError(s.t, err)
	runner, err := projection.New(projection.Options{
		URL: s.url, Store: s.store, Projectors: []projection.Projector{delivery.FanOut{Epoch: epoch}},
		Schema: schema.Deliveries, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { runner.Run(ctx) })
	s.t.Cleanup(func() { cancel(); running.Wait() })
}

// Bodies are no JSON: of a caller who is not let in nothing is read.
func TestOpenAPI_StatesCredentials(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, value := s.token()
	nothing := s.mint(ownAccount, "nothing")
	path := strings.NewReplacer("{", "", "}", "")
	for _, o := range operations() {
		scopes, tokens := o.scopes()
		ask := func(credential string) reply {
			return s.request(call{method: o.method, path: path.Replace(o.path), credential: credential, body: "no json"})
		}
		if len(scopes) == 0 {
			require.Equal(t, http.StatusOK, ask("").status, o.path)
			continue
		}
		require.Subset(t, httpapi.Scopes(), scopes, o.path)
		require.Equal(t, http.StatusUnauthorized, ask("").status, o.path)
		refused := ask(nothing)
		require.Equal(t, http.StatusForbidden, refused.status, o.path)
		require.Equal(t, "Scope "+scopes[0]+" required", refused.at("message"), "%s %s", o.method, o.path)
		for i := range scopes {
			others := strings.Join(slices.Delete(slices.Clone(scopes), i, i+1), " ")
			require.Equal(t, "Scope "+scopes[i]+" required", ask(s.mint(ownAccount, others+" nothing")).at("message"), o.path)
		}
		require.Equal(t, tokens, ask(value).status != http.StatusUnauthorized, "%s %s by API token", o.method, o.path)
	}
}

func TestMonitoring_Endpoints(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.BasePath = "/crm" })
	for path, media := range map[string]string{"/crm/openapi.json": "application/json; charset=utf-8", "/crm/docs": "text/html; charset=utf-8"} {
		r := s.request(call{method: http.MethodGet, path: path}).is(http.StatusOK)
		require.Equal(t, media, r.header.Get("Content-Type"))
		require.Equal(t, strconv.Itoa(len(r.raw)), r.header.Get("Content-Length"))
		require.Contains(t, r.raw, "/crm")
		tag := r.header.Get("ETag")
		again := func(tags string) reply {
			return s.request(call{method: http.MethodGet, path: path, header: map[string]string{"If-None-Match": tags}})
		}
		for _, tags := range []string{tag, "W/" + tag, `"another",W/"one" , ` + tag, "*"} {
			require.Empty(t, again(tags).is(http.StatusNotModified).raw, tags)
		}
		for _, tags := range []string{`"another"`, strings.Trim(tag, `"`), ""} {
			require.Equal(t, r.raw, again(tags).is(http.StatusOK).raw, tags)
		}
		require.Equal(t, http.StatusOK, s.request(call{method: http.MethodHead, path: path}).status)
	}
	policy := s.request(call{method: http.MethodGet, path: "/crm/docs"}).header.Get("Content-Security-Policy")
	require.Contains(t, policy, "style-src 'sha256-")
}
