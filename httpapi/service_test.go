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
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/forget"
	"github.com/leadlog/leadlog/projection/resubmit"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/secret"
	"github.com/leadlog/leadlog/projection/view"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/logtree"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	jwtSecret  = "0123456789abcdef0123456789abcdef"
	ownAccount = "acme"
)

// service is one process of the API, on its own database.
type service struct {
	t        *testing.T
	url      string // of the database
	events   string // address of the log
	server   *httptest.Server
	pool     *pgxpool.Pool
	store    openStore
	commands *command.Handlers
	log      *syncBuffer
	account  string
	jwt      string // JWT of the account, with all scopes except admin
}

// start serves an account with the feature crm_api, with changed options.
func start(t *testing.T, change ...func(*httpapi.Options)) *service {
	t.Helper()
	url := migrated(t)
	return provisioned(serveOn(t, url, logOf(t, url), change...))
}

// startOn is start with the log at an address.
func startOn(t *testing.T, events string) *service {
	t.Helper()
	return provisioned(serveOn(t, migrated(t), events))
}

func provisioned(s *service) *service {
	s.t.Helper()
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}})
	return s
}

// migrated returns the address of a new migrated database.
func migrated(t *testing.T) string {
	t.Helper()
	return pgtest.DatabaseFrom(t, "httpapi", func(ctx context.Context, url string) error {
		if err := postgres.Migrate(ctx, url); err != nil {
			return err
		}
		return schema.Migrate(ctx, url)
	})
}

// serve starts one process of the service on a database that also has the log.
func serve(t *testing.T, url string) *service {
	t.Helper()
	return serveOn(t, url, url)
}

// serveOn starts one process of the service on a database, with the log at an address.
func serveOn(t *testing.T, url, events string, change ...func(*httpapi.Options)) *service {
	t.Helper()
	return serveViews(t, url, events, view.All(), change...)
}

// serveViews is serveOn with only some of the views.
func serveViews(t *testing.T, url, events string, views []projection.Projector, change ...func(*httpapi.Options)) *service {
	t.Helper()
	s := &service{t: t, url: url, events: events, log: &syncBuffer{}}
	log := slog.New(slog.NewJSONHandler(s.log, nil))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	pool := pgtest.Pool(t, url)
	s.pool = pool
	s.store = openLog(t, events, pool, log)
	directory := command.NewDirectory(s.store, time.Now)
	box, err := sealbox.New([]byte(jwtSecret))
	require.NoError(t, err)
	intakes := secret.NewIntakes(pool, box)
	directory.ServeIntakes(intakes)
	claims := claim.NewNames([]byte(jwtSecret))
	s.commands = command.NewHandlers(command.Options{
		Store: s.store, Claims: claims, Directory: directory,
		Secrets: noSecrets{}, IntakeSecrets: intakes, Log: log,
	})
	if len(views) > 0 {
		project(t, url, s.store, views, log)
	}
	verifier, err := httpapi.NewHS256([]byte(jwtSecret), httpapi.VerifierOptions{})
	require.NoError(t, err)
	signer, err := audit.NewSigner([]byte(jwtSecret))
	require.NoError(t, err)
	options := httpapi.Options{
		Commands: s.commands, Eraser: s.eraser(), Resubmissions: resubmit.Queue{Pool: pool, Store: s.store}, Directory: directory, Query: query.New(pool, s.store, query.WithClaims(claims), query.WithErasedForm(sealed.AsErased)), JWT: verifier, Log: log, PreviewFilter: previewing(s.store),
		Uses: sampling(t, s.store, log), Tree: signer, LogTree: logtree.Reader{Pool: pool, Log: s.store.below, Origin: logOrigin},
		RateLimit: 10, RateBurst: 100, Quotas: slowLender{quota.Postgres{Pool: pool}}, Metrics: prometheus.NewRegistry(),
	}
	for _, c := range change {
		c(&options)
	}
	s.server = httptest.NewUnstartedServer(nil)
	s.server.Config = httpapi.NewServer("", asDescribed(t, basePath(options), httpapi.New(options)))
	s.server.Start()
	t.Cleanup(s.server.Close)
	s.account, s.jwt = ownAccount, s.mint(ownAccount, "")
	return s
}

// basePath returns the prefix of all paths.
func basePath(o httpapi.Options) string {
	if trimmed := strings.Trim(o.BasePath, "/"); trimmed != "" {
		return "/" + trimmed
	}
	return ""
}

// project runs projectors until the test ends.
func project(t *testing.T, url string, store eventstore.Store, views []projection.Projector, log *slog.Logger) {
	t.Helper()
	runner, err := projection.New(projection.Options{URL: url, Store: store, Projectors: views, Log: log})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { runner.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// sampling records uses of tokens until the test ends.
func sampling(t *testing.T, store eventstore.Store, log *slog.Logger) *command.Uses {
	t.Helper()
	uses := command.NewUses(store, time.Now, log)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { uses.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return uses
}

// eraser returns an eraser on the service's stores.
func (s *service) eraser() forget.Eraser {
	return forget.Eraser{Keys: s.store, Views: forget.Database{Pool: s.pool}}
}

func (s *service) mint(account, scope string) string {
	s.t.Helper()
	text, err := httpapi.MintHS256([]byte(jwtSecret), httpapi.Minting{
		Account: account, Subject: "ann", Scope: scope, TTL: time.Hour,
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

func (s *service) provision(id string, settings account.Settings) {
	s.t.Helper()
	_, _, err := s.commands.ConfigureAccount(s.t.Context(), command.ConfigureAccount{
		Caller: command.Caller{Actor: "system:test", Credential: "jwt:test"}, AccountID: id, Settings: settings,
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

// send makes a request and requires that a JSON answer has the envelope. It repeats a GET that is refused because a view is behind.
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
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") && len(raw) > 0 {
		require.NoError(s.t, json.Unmarshal(raw, &r.body), r.raw)
	}
	return r, nil
}

// as is send with the JWT of the account.
func (s *service) as(method, path, body string) reply {
	s.t.Helper()
	return s.send(call{method: method, path: path, credential: s.jwt, body: body})
}

// writtenSince returns the types of the events after a position, without records of reads of leads. It requires that the log has at
// most one such record a minute for each caller and lead.
func (s *service) writtenSince(after eventstore.Position) (types []string) {
	s.t.Helper()
	seen := map[string]bool{}
	for _, e := range storetest.Events(s.t, s.store, eventstore.Filter{}) {
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

func (noSecrets) Put(context.Context, string, string) error { return nil }
func (noSecrets) SetHeaders(context.Context, string, map[string]string, time.Time) (bool, error) {
	return true, nil
}
func (noSecrets) Destroy(context.Context, string) error { return nil }
func (noSecrets) Rotate(context.Context, string, string, time.Time) (bool, error) {
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

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// previewing returns the preview of filters as the service configures it.
func previewing(store eventstore.Store) func(context.Context, []query.FeedEvent, string, func(context.Context) (func(), error)) (query.FilterPreview, error) {
	filters := delivery.NewFilters(store, nil)
	return func(ctx context.Context, events []query.FeedEvent, filter string, turn func(context.Context) (func(), error)) (query.FilterPreview, error) {
		var places []delivery.Place
		for _, e := range events {
			places = append(places, delivery.Place{Stream: e.Stream, Revision: e.Revision, Position: e.Position, Type: e.Type})
		}
		preview, err := filters.Preview(ctx, places, filter, turn)
		return query.FilterPreview(preview), err
	}
}
