package systemtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/httpapi"
)

// executable is the path of the leadlog that the tests start. TestMain builds it.
var executable string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// Most of these tests wait for started processes, and use little processor time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	if err := readSources(); err != nil {
		fmt.Fprintln(os.Stderr, "the sources of leadlog:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "leadlog-systemtest-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	executable = filepath.Join(dir, "leadlog")
	if out, err := build(executable).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return pgtest.Run(m)
}

// readSources reads the directories of leadlog's packages. go test returns a cached result unless a file changed that
// the tests read, and it does not know what go build reads.
func readSources() error {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}",
		mainPackage).Output()
	if err != nil {
		return err
	}
	for dir := range strings.FieldsSeq(string(out)) {
		if _, err := os.ReadDir(dir); err != nil {
			return err
		}
	}
	return nil
}

const mainPackage = "github.com/leadlog/leadlog/cmd/leadlog"

// build returns the command that builds leadlog, with the race detector if the tests have it. The program is then
// several times slower.
func build(to string) *exec.Cmd {
	args := []string{"build", "-o", to}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{
		Key: "-race", Value: "true",
	}) {
		args = append(args, "-race")
	}
	return exec.Command("go", append(args, mainPackage)...)
}

// soon is the timeout of waits for a process. No test measures time by it.
const soon = 3 * time.Minute

// command returns leadlog with these arguments and only these settings.
func command(settings map[string]string, args ...string) *exec.Cmd {
	cmd := exec.Command(executable, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.Getenv("TMPDIR")}
	for name, value := range settings {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// program is a leadlog process.
type program struct {
	cmd      *exec.Cmd
	out, err *buffer
	exited   chan struct{}
}

// launch starts leadlog with these arguments and only these settings. The process is stopped at the end of the test.
func launch(t *testing.T, settings map[string]string, args ...string) *program {
	t.Helper()
	out := &buffer{}
	p := launchTo(t, out, settings, args...)
	p.out = out
	return p
}

// launchTo calls launch with another stdout.
func launchTo(t *testing.T, out io.Writer, settings map[string]string, args ...string) *program {
	t.Helper()
	return start(t, out, command(settings, args...))
}

// start starts a program, which is stopped at the end of the test.
func start(t *testing.T, out io.Writer, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{cmd: cmd, out: &buffer{}, err: &buffer{}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, p.err
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // ProcessState has the result
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // on SIGTERM, dev stops its PostgreSQL; the process may have ended
		select {
		case <-p.exited:
		case <-time.After(soon):
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
		if wrote := p.err.String(); t.Failed() {
			t.Logf("%q ended with: %s", p.cmd.Args[1:], wrote[max(0, len(wrote)-16<<10):])
		}
	})
	return p
}

// wait waits for the end of the program and returns its exit code, or -1 if a signal ended it.
func (p *program) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(soon):
		require.Fail(t, "leadlog did not end", p.err.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// exits waits for the end of the program, which must exit with this code.
func (p *program) exits(t *testing.T, code int) *program {
	t.Helper()
	require.Equal(t, code, p.wait(t), "%q: %s %s", p.cmd.Args[1:], p.out, p.err)
	return p
}

func (p *program) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// stop ends a service by SIGTERM, which must succeed.
func (p *program) stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	p.exits(t, 0)
}

// waitFor waits until the output of the program matches a pattern, and returns the first group.
func (p *program) waitFor(t *testing.T, from *buffer, pattern string) string {
	t.Helper()
	expression := regexp.MustCompile(pattern)
	var found []string
	require.Eventually(t, func() bool {
		select {
		case <-p.exited:
			return true
		default:
		}
		found = expression.FindStringSubmatch(from.String())
		return found != nil
	}, soon, 10*time.Millisecond, "waiting for %s", pattern)
	if found == nil {
		found = expression.FindStringSubmatch(from.String())
	}
	require.NotNil(t, found, "leadlog ended without writing %s:\n%s\n%s", pattern, p.out, p.err)
	return found[1]
}

// answer is an HTTP response.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

func (a answer) data() map[string]any {
	data, _ := a.body["data"].(map[string]any)
	return data
}

// is requires a status, and returns the answer.
func (a answer) is(t *testing.T, status int) answer {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	return a
}

// httpClient closes connections that are idle for a second. The service closes unused ones after five, and a request
// that is sent on one at that time gets no answer.
var httpClient = &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Second, MaxIdleConnsPerHost: 16}}

func call(ctx context.Context, method, url, bearer, body string) (answer, error) {
	return callWith(ctx, method, url, bearer, body, nil)
}

// callWith calls with headers. Empty headers are omitted.
func callWith(ctx context.Context, method, url, bearer, body string, headers map[string]string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range headers {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	request.GetBody = nil // one call is one request: net/http would repeat a request with an idempotency key
	response, err := httpClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	got := answer{status: response.StatusCode, header: response.Header}
	if err := json.Unmarshal(raw, &got.body); err != nil {
		return answer{}, fmt.Errorf("%s %s answered %q: %w", method, url, raw, err)
	}
	return got, nil
}

// mustCall calls, and repeats a GET while its view has not reached minPosition. Such a 503 has Retry-After: 1.
func mustCall(t *testing.T, method, url, bearer, body string) answer {
	t.Helper()
	for late := time.Now().Add(soon); ; {
		got, err := call(t.Context(), method, url, bearer, body)
		require.NoError(t, err)
		if method != "GET" || got.status != 503 || got.header.Get("Retry-After") != "1" || time.Now().After(late) {
			return got
		}
	}
}

// request is an HTTP request.
type request struct {
	method, path, body string
	bearer             string // instead of a JWT
	key                string // Idempotency-Key
	from               string // X-Forwarded-For, for a service that trusts its proxy
}

func (r request) send(ctx context.Context, base, jwt string) (answer, error) {
	return callWith(ctx, r.method, base+r.path, cmp.Or(r.bearer, jwt), r.body, map[string]string{
		"Idempotency-Key": r.key, "X-Forwarded-For": r.from,
	})
}

// buffer collects output and may be read concurrently.
type buffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}

// fillLog appends leads of the account acme to the log, numbered from first, each with the claim on its phone and one
// merge. It returns their ids.
func fillLog(
	t *testing.T, settings map[string]string, first, leads int, metadata map[string]jsontext.Value,
) (ids []string) {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Options{
		URL: settings["LEADLOG_DATABASE_URL"], Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer store.Close()
	at := time.Now().UTC().Truncate(time.Millisecond)
	fact := func(data event.Data) eventstore.Event {
		eventType, encoded, err := event.Encode(data)
		require.NoError(t, err)
		return eventstore.Event{ID: ulid.Make(), Type: eventType, At: at, Data: encoded,
			Metadata: event.Metadata{Account: "acme", Actor: "user:ada", Credential: "jwt:ada"}}
	}
	for n := first; n < first+leads; n++ {
		id := ulid.Make().String()
		ids = append(ids, id)
		created := event.LeadCreated{
			ContactUID: ulid.Make().String(),
			LeadFields: event.LeadFields{
				Name: "Filled", Phone: fmt.Sprintf("+9170000%05d", n), Status: "new", Temperature: "warm",
			},
			Source: "website", Metadata: metadata,
		}
		_, err := store.Append(context.WithoutCancel(t.Context()),
			eventstore.Write{Stream: event.ClaimPrefix + "filled-" + id, Expect: eventstore.NoStream,
				Events: []eventstore.Event{
					fact(event.ClaimTaken{Kind: "phone", Holder: id})}},
			eventstore.Write{Stream: event.LeadStream(id), Expect: eventstore.NoStream, Events: []eventstore.Event{
				fact(created),
				fact(event.LeadMerged{
					Source: "whatsapp", NewSource: true, Metadata: metadata, Changed: []string{"metadata"},
				})}})
		require.NoError(t, err)
	}
	return ids
}

// serveSettings returns settings of serve for a new database, which has the schema and the account acme unless the log
// is in EventStoreDB.
func serveSettings(t *testing.T) map[string]string {
	t.Helper()
	settings := emptySettings(t)
	if settings["LEADLOG_EVENTSTORE_URL"] == "" {
		settings["LEADLOG_DATABASE_URL"] = pgtest.DatabaseFrom(t, "systemtest", func(
			ctx context.Context, url string,
		) error {
			template := maps.Clone(settings)
			template["LEADLOG_DATABASE_URL"] = url
			return errors.Join(service.Migrate(ctx, url, url),
				command(template, "account", "set", "acme", "--feature", "crm_api").Run())
		})
		provisioned.Store(settings["LEADLOG_DATABASE_URL"], true)
	}
	return settings
}

// provisioned has the addresses of databases that serveSettings prepared. All tests share it.
var provisioned sync.Map

// emptySettings is serveSettings for a database without the schema.
func emptySettings(t *testing.T) map[string]string {
	t.Helper()
	key := base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))
	return withEventStore(t, map[string]string{
		"LEADLOG_ADDR": "127.0.0.1:0", "LEADLOG_DATABASE_URL": pgtest.Database(t), "LEADLOG_LOG_FORMAT": "json",
		"LEADLOG_JWT_SECRET": "a secret of thirty-two bytes or more", "LEADLOG_CLAIM_KEY": key, "LEADLOG_SEAL_KEY": key,
		"LEADLOG_TREE_KEY": key,
		// webhook receivers of tests are on this machine
		"LEADLOG_RATE_LIMIT": "0", "LEADLOG_WEBHOOK_ALLOW_PRIVATE": "true",
	})
}

// serve starts the service, waits until it listens, and returns its base address.
func serve(t *testing.T, settings map[string]string) (p *program, base string) {
	t.Helper()
	p = launch(t, settings, "serve")
	return p, "http://" + p.waitFor(t, p.err, `"listening","addr":"([^"]+)"`)
}

// waitReady waits until a service is ready, and returns the answer. Checks have two seconds, so one may fail on a busy
// machine.
func waitReady(t *testing.T, base string) (ready answer) {
	t.Helper()
	require.Eventually(t, func() bool {
		ready = mustCall(t, "GET", base+"/readyz", "", "")
		return ready.status == 200
	}, soon, 20*time.Millisecond)
	return ready
}

// provision migrates the database and sets up the account acme, unless serveSettings did. It returns a JWT for the
// account.
func provision(t *testing.T, settings map[string]string) string {
	t.Helper()
	if _, ok := provisioned.Load(settings["LEADLOG_DATABASE_URL"]); ok && settings["LEADLOG_EVENTSTORE_URL"] == "" {
		return mint(t, settings, "acme")
	}
	launch(t, settings, "migrate").exits(t, 0)
	return newAccount(t, settings, "acme")
}

// startService starts a service on a new database, and returns a JWT of the account acme.
func startService(t *testing.T) (settings map[string]string, jwt, base string) {
	t.Helper()
	settings = serveSettings(t)
	jwt = provision(t, settings)
	_, base = serve(t, settings)
	return settings, jwt, base
}

// newAccount sets up an account and returns a JWT for it.
func newAccount(t *testing.T, settings map[string]string, name string) string {
	t.Helper()
	launch(t, settings, "account", "set", name, "--feature", "crm_api").exits(t, 0)
	return mint(t, settings, name)
}

func mint(t *testing.T, settings map[string]string, account string) string {
	t.Helper()
	jwt, err := httpapi.MintHS256([]byte(settings["LEADLOG_JWT_SECRET"]), httpapi.Minting{
		Account: account, Subject: "cli", TTL: time.Hour,
	}, time.Now())
	require.NoError(t, err)
	return jwt
}
