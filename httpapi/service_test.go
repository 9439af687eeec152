package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/command/worker/importer"
	"github.com/leadlog/leadlog/command/worker/resubmit"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/secret"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/logtree"
)

const (
	jwtSecret  = "0123456789abcdef0123456789abcdef"
	ownAccount = "acme" // the name of a test's account; service.account is its id
)

// service is a process of the API, as one test uses it. The test has accounts of its own and, on a shared process, a
// client address.
type service struct {
	*process
	names
	t       *testing.T
	server  *httptest.Server
	log     logSince
	began   eventstore.Position // end of the log when the test began
	account string
	jwt     string // JWT of the account, with all scopes except admin
}

// process is one process of the API, without a server.
type process struct {
	*connections
	commands *command.Handlers
	handler  http.Handler
	base     string // prefix of all paths
	output   *syncBuffer
}

// connections are a process's connections to a database and a log.
type connections struct {
	owner   testing.TB // when it ends, they are closed
	url     string     // of the database
	events  string     // address of the log
	pool    *pgxpool.Pool
	store   openStore
	output  *syncBuffer
	queuing sync.Once // of fanOut
}

// start serves an account with the feature crm_api. The tests share one database, and unless options are changed one
// process. A test of TestOnEventStoreDB has a database of its own.
func start(t *testing.T, change ...func(*httpapi.Options)) *service {
	t.Helper()
	if onEventStoreDB(t) {
		return startAlone(t, change...)
	}
	p, n := shared.first(t), newNames()
	if len(change) > 0 {
		p, n.address = p.connections.process(t, change...), loopback
	}
	return p.serve(t, n).provisioned()
}

// unchanged changes no option.
func unchanged(*httpapi.Options) {}

// startAlone is start with a database of its own, for a test that breaks it, or that looks at rows or events of all
// accounts.
func startAlone(t *testing.T, change ...func(*httpapi.Options)) *service {
	t.Helper()
	url := migrated(t)
	return startOn(t, url, logOf(t, url), view.All(), change...)
}

// startOn is startAlone on a database, with a log at an address, and only some of the views.
func startOn(
	t *testing.T, url, events string, views []projection.Projector, change ...func(*httpapi.Options),
) *service {
	t.Helper()
	c := connect(t, url, events)
	c.project(views)
	return c.process(t, change...).serve(t, names{address: loopback}).provisioned()
}

// another returns another process that serves the same account. It has not cached it.
func (s *service) another(change ...func(*httpapi.Options)) *service {
	s.t.Helper()
	if s.owner == s.t {
		return connect(s.t, s.url, s.events).process(s.t, change...).serve(s.t, s.names)
	}
	p := shared.second(s.t)
	if len(change) > 0 {
		p = p.connections.process(s.t, change...)
	}
	return p.serve(s.t, s.names)
}

func (s *service) provisioned() *service {
	s.t.Helper()
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}})
	return s
}

// unlimited is start with an account without limits of requests.
func unlimited(t *testing.T) *service {
	t.Helper()
	s := start(t)
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, RateLimit: new(0.0)})
	return s
}

// migrated returns the address of a new migrated database.
func migrated(t testing.TB) string {
	t.Helper()
	return pgtest.DatabaseFrom(t, "httpapi", func(ctx context.Context, url string) error {
		if err := postgres.Migrate(ctx, url); err != nil {
			return err
		}
		return schema.Migrate(ctx, url)
	})
}

// connect opens the connections of a process.
func connect(t testing.TB, url, events string) *connections {
	t.Helper()
	c := &connections{owner: t, url: url, events: events, pool: pgtest.Pool(t, url), output: &syncBuffer{}}
	c.store = openLog(t, events, c.pool, logTo(c.output))
	return c
}

// process starts a process with changed options. Its log output is that of the connections, unless a test that does not
// own them starts it.
func (c *connections) process(t testing.TB, change ...func(*httpapi.Options)) *process {
	t.Helper()
	p := &process{connections: c, output: c.output}
	if t != c.owner {
		p.output = &syncBuffer{}
	}
	log := logTo(p.output)
	directory := command.NewDirectory(c.store, time.Now)
	box, err := sealbox.New([]byte(jwtSecret))
	require.NoError(t, err)
	intakes := secret.Intakes{Store: secret.New(c.pool, box)}
	directory.ServeIntakes(intakes)
	claims := claim.NewNames([]byte(jwtSecret))
	p.commands = command.NewHandlers(command.Options{
		Store: c.store, Claims: claims, Directory: directory,
		Secrets: noSecrets{}, IntakeSecrets: intakes, Log: log,
	})
	verifier, err := httpapi.NewHS256([]byte(jwtSecret), httpapi.VerifierOptions{})
	require.NoError(t, err)
	signer, err := merkle.NewSigner(logOrigin, []byte(jwtSecret))
	require.NoError(t, err)
	options := httpapi.Options{
		Commands: p.commands, Eraser: c.eraser(), Resubmissions: resubmit.Queue{Pool: c.pool, Store: c.store},
		Imports:   importer.Runs{Pool: c.pool},
		Directory: directory,
		Query:     query.New(c.pool, c.store, query.WithClaims(claims), query.WithErasedForm(sealed.AsErased)),
		JWT:       verifier, Log: log, PreviewFilter: previewing(c.store),
		Uses: sampling(t, c.store, log), Tree: signer,
		LogTree:   logtree.Reader{Pool: c.pool, Log: c.store.below, Origin: logOrigin, Open: c.store.OpenWithNonce},
		RateLimit: 10, RateBurst: 100, Quotas: slowLender{quota.NewPostgres(c.pool)},
		Metrics: prometheus.NewRegistry(), OwnWriteTimeout: time.Minute, // a busy machine's views are behind
	}
	for _, c := range change {
		c(&options)
	}
	p.base, p.handler = basePath(options), httpapi.New(options)
	return p
}

// serve starts a server of the process for a test. The log output is printed if the test fails.
func (p *process) serve(t *testing.T, n names) *service {
	t.Helper()
	s := &service{process: p, names: n, t: t, log: logSince{p.output, p.output.len()}, account: n.id(ownAccount)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	var err error
	s.began, err = p.store.Head(t.Context())
	require.NoError(t, err)
	s.server = httptest.NewUnstartedServer(nil)
	s.server.Config = httpapi.NewServer("", from(n.address, asDescribed(t, p.base, p.handler)))
	s.server.Start()
	// The server closes an unused connection after five seconds. A request that is sent on it then gets no answer.
	s.server.Client().Transport.(*http.Transport).IdleConnTimeout = time.Second
	t.Cleanup(s.server.Close)
	s.jwt = s.mint(ownAccount, "")
	return s
}

// basePath returns the prefix of all paths.
func basePath(o httpapi.Options) string {
	if trimmed := strings.Trim(o.BasePath, "/"); trimmed != "" {
		return "/" + trimmed
	}
	return ""
}

// project keeps views up to date until the owner ends.
func (c *connections) project(views []projection.Projector) {
	c.owner.Helper()
	if len(views) == 0 {
		return
	}
	runner, err := projection.New(projection.Options{
		URL: c.url, Store: c.store, Projectors: views, Log: logTo(c.output),
	})
	require.NoError(c.owner, err)
	inBackground(c.owner, runner.Run)
}

// inBackground runs a function until the test ends.
func inBackground(t testing.TB, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// sampling records uses of tokens until the test ends.
func sampling(t testing.TB, store eventstore.Store, log *slog.Logger) *command.Uses {
	t.Helper()
	uses := command.NewUses(store, time.Now, log)
	inBackground(t, uses.Run)
	return uses
}

// eraser returns an eraser on the process's stores.
func (c *connections) eraser() forget.Eraser {
	return forget.Eraser{Keys: c.store, Views: forget.Database{Pool: c.pool}}
}

// mint returns a JWT of an account, by its name or id.
func (s *service) mint(account, scope string) string {
	s.t.Helper()
	text, err := httpapi.MintHS256([]byte(jwtSecret), httpapi.Minting{
		Account: s.id(account), Subject: "ann", Scope: scope, TTL: time.Hour,
	}, time.Now())
	require.NoError(s.t, err)
	return text
}

// stranger returns a JWT of another account, without the feature to capture.
func (s *service) stranger(scope string) string {
	s.t.Helper()
	s.provision("other", account.Settings{})
	return s.mint("other", scope)
}

// provision configures an account, by its name or id.
func (s *service) provision(name string, settings account.Settings) {
	s.t.Helper()
	_, _, err := s.commands.ConfigureAccount(s.t.Context(), command.ConfigureAccount{
		Caller: command.Caller{Actor: "system:test", Credential: "jwt:test"}, AccountID: s.id(name), Settings: settings,
	})
	require.NoError(s.t, err)
}

// call is a request. Zero fields are omitted.
type call struct {
	method, path string
	credential   string
	body         string
	header       map[string]string
}

// reply is an answer; body is its decoded JSON.
type reply struct {
	t      *testing.T
	asked  call
	status int
	header http.Header
	raw    string
	body   map[string]any
}

// send makes a request and requires that a JSON answer has the envelope. It repeats a GET that is refused because a
// view is behind.
func (s *service) send(c call) reply {
	s.t.Helper()
	r := s.request(c)
	for late := time.Now().Add(time.Minute); c.method == http.MethodGet && r.status == http.StatusServiceUnavailable &&
		r.header.Get("Retry-After") == "1" && time.Now().Before(late); {
		r = s.request(c)
	}
	if strings.HasPrefix(r.header.Get("Content-Type"), "application/json") && len(r.raw) > 0 {
		require.NotNil(s.t, r.body, r.raw)
		require.Contains(s.t, r.body, "success")
		require.True(s.t, strings.HasPrefix(r.raw, `{"success":`), "success comes first: %s", r.raw)
	}
	return r
}

func (s *service) request(c call) reply {
	s.t.Helper()
	r, err := s.attempt(c)
	require.NoError(s.t, err)
	return r
}

// attempt is request for a call whose connection may be closed before the answer.
func (s *service) attempt(c call) (reply, error) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), c.method, s.server.URL+c.path, strings.NewReader(c.body))
	require.NoError(s.t, err)
	if c.credential != "" {
		request.Header.Set("Authorization", "Bearer "+c.credential)
	}
	if c.body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range c.header {
		request.Header.Set(name, value)
	}
	response, err := s.server.Client().Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{t: s.t, asked: c, status: response.StatusCode, header: response.Header, raw: string(raw)}
	plain := response.Header.Get("Content-Encoding") == ""
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") && len(raw) > 0 && plain {
		require.NoError(s.t, json.Unmarshal(raw, &r.body), r.raw)
	}
	return r, nil
}

// as is send with the JWT of the account.
func (s *service) as(method, path, body string) reply {
	s.t.Helper()
	return s.send(call{method: method, path: path, credential: s.jwt, body: body})
}

// written returns the events of the account since the test began.
func (s *service) written() []eventstore.Recorded {
	s.t.Helper()
	events, _, err := eventstore.ReadRange(s.t.Context(), s.store, eventstore.Range{
		After: s.began, Until: storetest.Head(s.t, s.store), Account: s.account, Limit: 1e6,
	})
	require.NoError(s.t, err)
	return events
}

// last returns the position of the latest event of the account.
func (s *service) last() eventstore.Position {
	s.t.Helper()
	events := s.written()
	require.NotEmpty(s.t, events)
	return events[len(events)-1].Position
}

// writtenSince returns the types of the account's events after a position, without records of reads of leads. It
// requires that there is at most one such record a minute for each caller and lead.
func (s *service) writtenSince(after eventstore.Position) (types []string) {
	s.t.Helper()
	seen := map[string]bool{}
	for _, e := range s.written() {
		if e.Type == (event.DataRevealed{}).EventType() {
			reading := e.At.Format("15:04") + e.Metadata.Actor + string(e.Data)
			require.False(s.t, seen[reading], "recorded twice in a minute: %s", reading)
			seen[reading] = true
		} else if e.Position > after {
			types = append(types, e.Type)
		}
	}
	return types
}

// concurrently sends n requests at once.
func concurrently(n int, send func(i int) reply) []reply {
	replies := make([]reply, n)
	var sending sync.WaitGroup
	for i := range n {
		sending.Go(func() { replies[i] = send(i) })
	}
	sending.Wait()
	return replies
}

// capture captures a lead with the JWT of the account.
func (s *service) capture(body string) reply {
	s.t.Helper()
	return s.as(http.MethodPost, "/api/v1/crm/leads", body)
}

// token creates an API token and returns its id and value.
func (s *service) token() (id, value string) {
	s.t.Helper()
	r := s.as(http.MethodPost, "/api/v1/crm/tokens", `{"name":"form","expiresInDays":30}`).is(http.StatusCreated)
	return r.at("data", "tokenId").(string), r.at("data", "plainToken").(string)
}

// is requires a status, and returns the reply.
func (r reply) is(status int) reply {
	r.t.Helper()
	require.Equal(r.t, status, r.status, "%s %s %.200s: %s", r.asked.method, r.asked.path, r.asked.body, r.raw)
	return r
}

// at returns a value inside the body.
func (r reply) at(path ...string) any {
	var value any = r.body
	for _, key := range path {
		object, _ := value.(map[string]any)
		value = object[key]
	}
	return value
}

// after adds minPosition to a path, so that the answer shows the effect of a write.
func after(path string, write reply) string {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + "minPosition=" + write.header.Get("X-Log-Position")
}

// fieldsNamed returns the fields of a 400 in order.
func (r reply) fieldsNamed() []string {
	var names []string
	list, _ := r.body["errors"].([]any)
	for _, one := range list {
		names = append(names, one.(map[string]any)["field"].(string))
	}
	return names
}

// slowLender ignores the deadline of a call, because a process whose call times out uses a local quota.
type slowLender struct{ quota.Lender }

func (p slowLender) Lend(ctx context.Context, key string, limit quota.Limit, want int) (quota.Lease, error) {
	return p.Lender.Lend(context.WithoutCancel(ctx), key, limit, want)
}

// noSecrets is a store of secrets that stores nothing.
type noSecrets struct{}

func (noSecrets) Put(context.Context, string, string) error                          { return nil }
func (noSecrets) Restore(context.Context, string, string, eventstore.Revision) error { return nil }
func (noSecrets) SetHeaders(context.Context, string, string, map[string]string, eventstore.Revision) (bool, error) {
	return true, nil
}
func (noSecrets) Destroy(context.Context, string) error { return nil }
func (noSecrets) Rotate(context.Context, string, string, time.Time, eventstore.Revision) (bool, error) {
	return true, nil
}

// syncBuffer is a log that may be read and written concurrently.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Len()
}

// logSince is a log output from an offset on.
type logSince struct {
	*syncBuffer
	offset int
}

func (l logSince) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buffer.Bytes()[l.offset:])
}

func logTo(output *syncBuffer) *slog.Logger { return slog.New(slog.NewJSONHandler(output, nil)) }

// previewing returns the preview of filters as the service configures it.
func previewing(store eventstore.Store) func(
	context.Context, []query.FeedEvent, []string, string, func(context.Context) (func(), error),
) (query.FilterPreview, error) {
	filters := delivery.NewFilters(store, nil)
	return func(
		ctx context.Context, events []query.FeedEvent, types []string, filter string,
		turn func(context.Context) (func(), error),
	) (query.FilterPreview, error) {
		var sources []delivery.Source
		for _, e := range events {
			sources = append(sources, delivery.Source{
				Stream: e.Stream, Revision: e.Revision, Position: e.Position,
				Message: webhook.Message{Type: e.Type},
			})
		}
		preview, err := filters.Preview(ctx, sources, types, filter, turn)
		return query.FilterPreview(preview), err
	}
}
