package httpapi_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
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
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/openapi"
	"github.com/leadlog/leadlog/httpapi/pagescript"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/schema"
)

// description is the OpenAPI document, which requests and answers are validated against.
type description struct {
	open   *openapi3.T // unchanged: requests may have additional properties
	mux    *chi.Mux    // routes a request as the service does
	closed closed
}

// closed compiles schemas of the document without additional properties, because answers may have none.
// kin-openapi would compile a schema for each answer, which takes longer than the request.
type closed struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

// schema returns the schema at a JSON pointer into the document.
func (c *closed) schema(pointer string) *jsonschema.Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	schema := c.compiled[pointer]
	if schema == nil {
		var err error
		schema, err = c.compiler.Compile("openapi.json" + pointer)
		check(err)
		c.compiled[pointer] = schema
	}
	return schema
}

// escape encodes a name as a part of a JSON pointer in a URL.
func escape(name string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
}

// The number of a tile contains slashes, which OpenAPI cannot describe.
var tilePath, tileParameter = strings.NewReplacer("{tile}", "*"), strings.NewReplacer("/*", "/{tile}", "*", "tile")

var described = sync.OnceValue(func() *description {
	var raw map[string]any
	check(json.Unmarshal(openapi.Document(""), &raw))
	d := &description{open: loaded(widened(raw)), mux: chi.NewMux(), closed: closed{
		compiler: jsonschema.NewCompiler(), compiled: make(map[string]*jsonschema.Schema),
	}}
	closeObjects(raw)
	d.closed.compiler.AssertFormat()
	check(d.closed.compiler.AddResource("openapi.json", raw))
	for path, item := range d.open.Paths.Map() {
		for method := range item.Operations() {
			d.mux.MethodFunc(method, tilePath.Replace(path), func(http.ResponseWriter, *http.Request) {})
		}
	}
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.PlainBodyDecoder)
	openapi3filter.RegisterBodyDecoder("text/csv", openapi3filter.PlainBodyDecoder)
	return d
})

// widened returns the document with everything that requests may have. It names one type for what a caller should send,
// and the service takes others too.
func widened(raw map[string]any) any {
	text, err := json.Marshal(raw)
	check(err)
	var wider map[string]any
	check(json.Unmarshal(text, &wider))
	schemas := wider["components"].(map[string]any)["schemas"].(map[string]any)
	for _, name := range []string{"LeadArrival", "LeadChange", "ContactRelease"} {
		properties := schemas[name].(map[string]any)["properties"].(map[string]any)
		for _, field := range []string{"phone", "opportunityValue"} {
			if property, has := properties[field].(map[string]any); has {
				property["type"] = []any{"string", "number", "null"}
			}
		}
	}
	return wider
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func loaded(raw any) *openapi3.T {
	text, err := json.Marshal(raw)
	check(err)
	document, err := openapi3.NewLoader().LoadFromData(text)
	check(err)
	return document
}

func closeObjects(value any) {
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			closeObjects(one)
		}
	case map[string]any:
		_, isObject := value["properties"].(map[string]any)
		if _, open := value["additionalProperties"]; isObject && !open && value["type"] != nil {
			value["additionalProperties"] = false
		}
		for one := range maps.Values(value) {
			closeObjects(one)
		}
	}
}

// asDescribed fails the test if the path, the status, a header or a member of the body of an answer is not in the
// document. The document must also allow each request with a 2xx answer.
func asDescribed(t *testing.T, base string, next http.Handler) http.Handler {
	d := described()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, base+"/console") { // pages are not part of the API
			next.ServeHTTP(w, r)
			return
		}
		// Validation of large bodies is slow, and smaller ones have the same members.
		sent, seen := capped{max: 64 << 10}, &recorder{ResponseWriter: w, body: capped{max: 256 << 10}}
		passed := r.WithContext(r.Context()) // a copy, because the server reads the rest of its own request's body
		passed.Body = readCloser{io.TeeReader(r.Body, &sent), r.Body}
		next.ServeHTTP(seen, passed)
		if sent.exceeded || seen.body.exceeded {
			return
		}
		request := r.Clone(r.Context())
		request.Body = io.NopCloser(bytes.NewReader(bytes.TrimPrefix(sent.Bytes(), []byte("\xef\xbb\xbf"))))
		if err := d.checkExchange(request, base, seen); err != nil {
			t.Errorf("the answer %[3]d to %[1]s %[2]s does not match the document: %[4]v", r.Method,
				r.URL.Path, seen.status, err)
		}
	})
}

func (d *description) checkExchange(r *http.Request, base string, seen *recorder) error {
	input := &openapi3filter.RequestValidationInput{Request: r, Options: &openapi3filter.Options{
		MultiError: true, SkipSettingDefaults: true,
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}}
	route, found := d.find(r, base, input)
	if !found || seen.status == http.StatusMethodNotAllowed { // the path may also match a route with an id
		return d.checkUndescribed(r, seen)
	}
	request := *r
	if r.Method == http.MethodHead {
		request.Method = http.MethodGet
	}
	operation := d.open.Paths.Value(route).GetOperation(request.Method)
	if seen.status/100 == 2 {
		input.Request = &request
		input.Route = &routers.Route{
			Spec: d.open, Path: route, Method: request.Method, PathItem: d.open.Paths.Value(route),
			Operation: operation,
		}
		normalize(&request, operation)
		if route == "/in/{intakeId}" { // takes what its sender posts
			request.Body, request.ContentLength = http.NoBody, 0
			input.Options.ExcludeRequestBody = true
		}
		if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
			return fmt.Errorf("the request: %w", err)
		}
	}
	response := operation.Responses.Status(seen.status)
	if response == nil {
		return fmt.Errorf("the status is not described")
	}
	pointer := cmp.Or(response.Ref,
		"#/paths/"+escape(route)+"/"+strings.ToLower(request.Method)+"/responses/"+strconv.Itoa(seen.status))
	return d.checkAnswer(r, response.Value, pointer, seen)
}

// checkAnswer requires that an answer matches the response at a location of the document.
func (d *description) checkAnswer(r *http.Request, response *openapi3.Response, pointer string, seen *recorder) error {
	for name, header := range response.Headers {
		if err := d.checkHeader(header, cmp.Or(header.Ref, pointer+"/headers/"+escape(name)),
			seen.Header().Values(name)); err != nil {
			return fmt.Errorf("the header %s: %w", name, err)
		}
	}
	if err := undescribed(seen.Header(), response.Headers); err != nil || r.Method == http.MethodHead ||
		len(response.Content) == 0 || seen.Header().Get("Content-Encoding") != "" {
		return err
	}
	media := response.Content.Get(seen.Header().Get("Content-Type"))
	for name, one := range response.Content {
		if one == media && media.Schema != nil {
			return d.checkBody(media, pointer+"/content/"+escape(name)+"/schema", seen)
		}
	}
	return fmt.Errorf("the media type %s is not described", seen.Header().Get("Content-Type"))
}

func (d *description) checkHeader(header *openapi3.HeaderRef, pointer string, values []string) error {
	if len(values) == 0 {
		if header.Value.Required {
			return fmt.Errorf("it is missing")
		}
		return nil
	}
	var value any = values[0]
	if header.Value.Schema.Value.Type.Is("integer") {
		var err error
		if value, err = strconv.Atoi(values[0]); err != nil {
			return err
		}
	}
	return d.closed.schema(pointer + "/schema").Validate(value)
}

// checkBody requires that a body, or each of its JSON lines, matches the document.
func (d *description) checkBody(media *openapi3.MediaType, place string, seen *recorder) error {
	var value any
	if !strings.HasPrefix(seen.Header().Get("Content-Type"), "application/json") {
		value = seen.body.String()
	} else if err := json.Unmarshal(seen.body.Bytes(), &value); err != nil {
		return err
	}
	if err := d.closed.schema(place).Validate(value); err != nil {
		return err
	}
	name, lines := media.Extensions["x-line"].(string)
	if !lines {
		return nil
	}
	for line := range bytes.Lines(seen.body.Bytes()) {
		var one any
		if err := json.Unmarshal(line, &one); err != nil {
			return err
		}
		if err := d.closed.schema("#/components/schemas/" + name).Validate(one); err != nil {
			return err
		}
	}
	return nil
}

// find returns the operation of a path.
func (d *description) find(r *http.Request, base string, input *openapi3filter.RequestValidationInput) (string, bool) {
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	path, hasBase := strings.CutPrefix(path, base)
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	context := chi.NewRouteContext()
	route := tileParameter.Replace(d.mux.Find(context, method, path))
	if !hasBase || route == "" {
		return "", false
	}
	input.PathParams = make(map[string]string)
	for i, name := range context.URLParams.Keys {
		input.PathParams[tileParameter.Replace(name)] = context.URLParams.Values[i]
	}
	return route, true
}

// checkUndescribed requires that the service refused a request that is not in the document.
func (d *description) checkUndescribed(r *http.Request, seen *recorder) error {
	if r.Method == http.MethodOptions && seen.status == http.StatusNoContent {
		return nil // CORS preflight
	}
	if seen.status != http.StatusNotFound && seen.status != http.StatusMethodNotAllowed {
		return fmt.Errorf("there is no such route in the document")
	}
	name := map[int]string{http.StatusNotFound: "UnknownRoute", http.StatusMethodNotAllowed: "WrongMethod"}[seen.status]
	return d.checkAnswer(r, d.open.Components.Responses[name].Value, "#/components/responses/"+name, seen)
}

// normalize converts a request to the only form in the document.
func normalize(r *http.Request, o *openapi3.Operation) {
	if o.RequestBody != nil && o.RequestBody.Value.Content.Get(r.Header.Get("Content-Type")) == nil {
		for media := range o.RequestBody.Value.Content {
			r.Header.Set("Content-Type", media)
		}
	}
	query := r.URL.Query()
	for _, name := range []string{"since", "until", "asOf", "createdSince", "createdUntil"} {
		if query.Has(name) { // an unescaped plus sign
			query.Set(name, strings.Replace(query.Get(name), " ", "+", 1))
		}
	}
	r.URL.RawQuery = query.Encode()
}

// common are the headers that every answer may have.
var common = map[string]bool{
	"Content-Type": true, "Content-Length": true, "Connection": true, "Vary": true, "Date": true,
	"X-Content-Type-Options": true, "Referrer-Policy": true, "Content-Security-Policy": true, "Cache-Control": true,
	"Access-Control-Allow-Origin": true, "Access-Control-Expose-Headers": true,
}

func undescribed(header http.Header, described openapi3.Headers) error {
	names := make(map[string]bool)
	for name := range described {
		names[http.CanonicalHeaderKey(name)] = true
	}
	for name := range header {
		if !common[name] && !names[name] {
			return fmt.Errorf("the header %s is not described", name)
		}
	}
	return nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// capped is a buffer that keeps nothing of a text that is longer than max.
type capped struct {
	bytes.Buffer
	max      int
	exceeded bool
}

func (c *capped) Write(b []byte) (int, error) {
	if c.exceeded = c.exceeded || c.Len()+len(b) > c.max; c.exceeded {
		c.Buffer = bytes.Buffer{}
		return len(b), nil
	}
	return c.Buffer.Write(b)
}

// recorder records the answer.
type recorder struct {
	http.ResponseWriter
	status int
	body   capped
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	_, _ = w.body.Write(b)
	return w.ResponseWriter.Write(b)
}

func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// operations returns the operations of the document, creations first and deletions last.
func operations() []operation {
	order := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodGet, http.MethodDelete}
	var all []operation
	for path, item := range described().open.Paths.Map() {
		for method, o := range item.Operations() {
			all = append(all, operation{o, method, path})
		}
	}
	slices.SortFunc(all, func(a, b operation) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.method), slices.Index(order, b.method)),
			cmp.Compare(a.path, b.path))
	})
	return all
}

type operation struct {
	*openapi3.Operation
	method, path string
}

// scopes returns the scopes that a JWT needs for the operation; tokens is true if an API token is accepted too.
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

// anyScope reports whether one of the scopes is enough.
func (o operation) anyScope() bool {
	jwts := 0
	for _, one := range *o.Security {
		if len(one["jwt"]) > 0 {
			jwts++
		}
	}
	return jwts > 1
}

// bodies returns the examples of the request, by media type; one without content if it has no body.
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
			all = append(all, call{
				method: o.method, path: o.path, body: text, header: map[string]string{"Content-Type": media},
			})
		}
	}
	return all
}

// required returns the required query parameters.
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
	s := startAlone(t)
	s.fanOut()
	s.published(s.publishTree(), 1)
	ids := s.createResources()
	form, _ := s.createIntake(`{"name":"Form","kind":"form"}`)
	meta, _ := s.createIntake(
		`{"name":"Meta","kind":"meta_lead_ads","appSecret":"a","verifyToken":"b","accessToken":"c"}`,
	)
	for _, o := range operations() {
		for _, c := range o.bodies(t) {
			if strings.HasPrefix(o.path, publicPrefix) { // intakes without a proof, or with a proof in the query
				c.path = strings.Replace(c.path, "/in/{intakeId}", form, 1)
				if o.method == http.MethodGet {
					c.path = meta + "?hub.verify_token=b"
				}
			}
			c.path = ids.Replace(c.path)
			c.path += o.required(ids)
			c.body = ids.Replace(c.body)
			c.credential = s.jwt
			if scopes, _ := o.scopes(); slices.Contains(scopes, "admin") {
				c.credential = s.mint("admins", "admin")
			}
			// asDescribed validates each answer against the document.
			r := s.request(c)
			require.Equal(t, 2, r.status/100, "%s %s %s: %d %s", c.method, c.path, c.body, r.status, r.raw)
		}
	}
}

// createResources creates one resource for each id in the document's paths, and returns the ids. It waits for a
// delivery.
func (s *service) createResources() *strings.Replacer {
	s.t.Helper()
	tokenID, _ := s.token()
	audited := s.eventually(tokens+"/"+tokenID+"/events", func(r reply) bool {
		return r.status == http.StatusOK && len(r.at("data").([]any)) > 0
	})
	created := audited.at("data").([]any)[0].(map[string]any)
	endpoint := s.as(http.MethodPost, endpoints, `{"url":"https://hooks.example.com/all"}`).is(http.StatusCreated)
	webhookID := endpoint.at("data", "webhookId").(string)
	intake := s.as(http.MethodPost, intakes, `{"name":"Search ads","kind":"google_lead_form"}`).is(http.StatusCreated)
	lead := s.capture(`{"phone":"9123456780","email":"released@example.com","visitorId":"v-81f3"}`).
		is(http.StatusCreated)
	joined := s.capture(`{"email":"twin@example.com"}`).is(http.StatusCreated)
	s.provision("another", account.Settings{})
	erased := s.leadID(s.capture(`{"email":"gone@example.com"}`).is(http.StatusCreated))
	s.caughtUp() // the creation's delivery is queued before the erasure, which cancels it
	s.erase(erased, http.StatusOK)
	s.eventually(leads+"/"+erased+"/erasure-certificate", func(r reply) bool { return r.status == http.StatusOK })
	intakeID := intake.at("data", "intakeId").(string)
	arrived := s.arrive(intakeID, `{}`)
	s.arrive(intakeID, `{}`)
	var deliveryID string
	require.Eventually(s.t, func() bool {
		list, _ := s.as(http.MethodGet, endpoints+"/"+webhookID+"/deliveries", "").at("data").([]any)
		if len(list) > 0 {
			deliveryID = list[0].(map[string]any)["deliveryId"].(string)
		}
		return len(list) > 0
	}, time.Minute, 20*time.Millisecond)
	return strings.NewReplacer(
		"{leadId}", lead.at("data", "leadId").(string), "{tokenId}", tokenID, "{webhookId}", webhookID, "{intakeId}",
		intakeID, "{eventId}", lead.header.Get("X-Event-Id"), "{erasedLeadId}", erased, "{deliveryId}", deliveryID,
		"{accountId}", s.id("another"), "{visitorId}", "v-81f3", "{arrivalId}", arrived.ID,
		"01M7YGZVZWE6S8RYN49QGMF6BK", intakeID,
		"01M7YGZVZWE6S8RYN49QGMF6BJ", joined.at("data", "leadId").(string), // id of the source lead of a join
		"{level}", "0", "{tile}", "000.p/1", "{position}",
		strconv.FormatFloat(created["position"].(float64), 'f', 0, 64), "{from}", "1",
	)
}

// fanOut queues deliveries from now on. Nothing sends them.
func (s *service) fanOut() {
	s.t.Helper()
	s.queuing.Do(func() {
		require.NoError(s.t, delivery.Begin(s.t.Context(), s.pool, s.store))
		epoch, err := s.store.Epoch(s.t.Context())
		require.NoError(s.t, err)
		runner, err := projection.New(projection.Options{
			URL: s.url, Store: s.store, Projectors: []projection.Projector{delivery.FanOut{Epoch: epoch}},
			Schema: schema.Deliveries, Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(s.t, err)
		inBackground(s.owner, runner.Run)
		leases := schema.NewLeases(s.pool.Config().ConnConfig)
		s.owner.Cleanup(leases.Close)
		worker := delivery.FilterWorker{
			Pool: s.pool, Leases: leases, Filters: delivery.NewFilters(s.store, nil),
			Log: slog.New(slog.DiscardHandler),
		}
		inBackground(s.owner, worker.Run) // on a busy machine, the fan-out defers what has a filter
	})
}

// Bodies are not JSON, because the body of a refused caller is not read.
func TestOpenAPI_StatesCredentials(t *testing.T) {
	t.Parallel()
	s := startAlone(t)
	_, value := s.token()
	s.published(s.publishTree(), 1)
	noScope := s.mint(ownAccount, "nothing")
	path := strings.NewReplacer("{", "", "}", "")
	for _, o := range operations() {
		scopes, tokens := o.scopes()
		ask := func(credential string) reply {
			return s.request(call{
				method: o.method, path: path.Replace(o.path), credential: credential, body: "no json",
			})
		}
		if len(scopes) == 0 {
			want := http.StatusOK
			if strings.HasPrefix(o.path, publicPrefix) || strings.Contains(o.path, "{tile}") {
				want = http.StatusNotFound
			}
			require.Equal(t, want, ask("").status, o.path)
			continue
		}
		require.Subset(t, httpapi.Scopes(), scopes, o.path)
		require.Equal(t, http.StatusUnauthorized, ask("").status, o.path)
		refused := ask(noScope)
		if o.anyScope() {
			require.Equal(t, "Scope "+strings.Join(scopes, " or ")+" required", refused.at("message"), o.path)
			for _, scope := range scopes {
				require.NotEqual(t, http.StatusForbidden, ask(s.mint(ownAccount, scope)).status, o.path)
			}
			continue
		}
		require.Equal(t, http.StatusForbidden, refused.status, o.path)
		require.Equal(t, "Scope "+scopes[0]+" required", refused.at("message"), "%s %s", o.method, o.path)
		for i := range scopes {
			others := strings.Join(slices.Delete(slices.Clone(scopes), i, i+1), " ")
			require.Equal(t, "Scope "+scopes[i]+" required",
				ask(s.mint(ownAccount, others+" nothing")).at("message"), o.path)
		}
		byToken := ask(value)
		require.Equal(t, tokens, byToken.status != http.StatusUnauthorized, "%s %s by API token", o.method, o.path)
		if !tokens {
			require.Equal(t, "Missing or invalid token: this route needs a JWT, not an API token",
				byToken.at("message"), o.path)
			require.Equal(t, "Missing or invalid token", ask(value+"x").at("message"), "%s by no token", o.path)
		}
	}
}

func TestMonitoring_Endpoints(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.BasePath = "/crm" })
	for path, media := range map[string]string{
		"/crm/openapi.json": "application/json; charset=utf-8", "/crm/docs": "text/html; charset=utf-8",
	} {
		ask := func(coding string) reply {
			return s.request(call{
				method: http.MethodGet, path: path, header: map[string]string{"Accept-Encoding": coding},
			}).is(http.StatusOK)
		}
		r, packed := ask("identity"), ask("gzip")
		require.Equal(t, "gzip", packed.header.Get("Content-Encoding"))
		require.Equal(t, "Accept-Encoding", packed.header.Get("Vary"))
		require.Less(t, 4*len(packed.raw), len(r.raw))
		require.Equal(t, r.raw, unpacked(t, packed))
		require.Equal(t, media, r.header.Get("Content-Type"))
		require.Equal(t, strconv.Itoa(len(r.raw)), r.header.Get("Content-Length"))
		require.Contains(t, r.raw, "/crm")
		tag := r.header.Get("ETag")
		again := func(tags string) reply {
			return s.request(call{method: http.MethodGet, path: path, header: map[string]string{"If-None-Match": tags}})
		}
		strong := strings.TrimPrefix(tag, "W/")
		for _, tags := range []string{tag, strong, `"another",W/"one" , ` + tag, "*"} {
			require.Empty(t, again(tags).is(http.StatusNotModified).raw, tags)
		}
		for _, tags := range []string{`"another"`, strings.Trim(strong, `"`), ""} {
			require.Equal(t, r.raw, again(tags).is(http.StatusOK).raw, tags)
		}
		require.Equal(t, http.StatusOK, s.request(call{method: http.MethodHead, path: path}).status)
	}
	policy := s.request(call{method: http.MethodGet, path: "/crm/docs"}).header.Get("Content-Security-Policy")
	require.Contains(t, policy, "style-src 'sha256-")
}

// unpacked returns the text of an answer with gzip.
func unpacked(t *testing.T, packed reply) string {
	t.Helper()
	reader, err := gzip.NewReader(strings.NewReader(packed.raw))
	require.NoError(t, err)
	text, err := io.ReadAll(reader)
	require.NoError(t, err)
	return string(text)
}

func TestScript_Headers(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.BasePath = "/crm" })
	ask := func(header map[string]string) reply {
		return s.request(call{method: http.MethodGet, path: "/crm/in/leadlog.js", header: header})
	}
	plain := ask(map[string]string{"Accept-Encoding": "identity"}).is(http.StatusOK)
	require.Equal(t, string(pagescript.Text()), plain.raw)
	for name, value := range map[string]string{
		"Content-Type": "text/javascript; charset=utf-8", "Cross-Origin-Resource-Policy": "cross-origin",
		"Access-Control-Allow-Origin": "*", "Cache-Control": "public, max-age=3600, stale-while-revalidate=86400",
		"Vary": "Accept-Encoding", "Set-Cookie": "",
	} {
		require.Equal(t, value, plain.header.Get(name))
	}
	packed := ask(map[string]string{"Accept-Encoding": "br, gzip"}).is(http.StatusOK)
	require.Equal(t, "gzip", packed.header.Get("Content-Encoding"))
	require.Less(t, len(packed.raw), 4<<10)
	require.Equal(t, plain.raw, unpacked(t, packed))
	require.Empty(t, ask(map[string]string{"If-None-Match": packed.header.Get("ETag")}).is(http.StatusNotModified).raw)
	require.Equal(t, "GET, HEAD",
		s.request(call{
			method: http.MethodPost, path: "/crm/in/leadlog.js",
		}).is(http.StatusMethodNotAllowed).header.Get("Allow"))
}
