package systemtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// fault is a failure of the database, or of the connection to it.
type fault struct {
	begin, end func(*testing.T)
	noWrites   bool // writes fail during the fault; otherwise the service retries them
	someWrites bool // some writes still succeed
}

// faults returns all faults by kind.
func faults(t *testing.T, settings map[string]string, proxy *pgtest.Proxy) map[string]map[string]fault {
	direct := settings["LEADLOG_DATABASE_URL"]
	do := func(f func()) func(*testing.T) { return func(*testing.T) { f() } }
	none := do(func() {})
	afterLoss := func(t *testing.T) {
		require.Eventually(t, func() bool { return proxy.Losing() == 0 }, soon, time.Millisecond)
	}
	// failing makes a number of statements on a table fail. Its end waits for the first failure.
	failing := func(table, sqlstate string, times int, lost bool) fault {
		return fault{noWrites: lost, begin: func(t *testing.T) {
			failStatements(t, direct, table, sqlstate, times)
		}, end: func(t *testing.T) {
			require.Eventually(t, func() bool {
				return queryInt(t, settings, `SELECT 1 FROM public.faults WHERE is_called`) == 1
			}, soon, time.Millisecond)
			execute(t, direct, `DROP FUNCTION public.fail CASCADE`)
		}}
	}
	database := func(setting, reset string) fault {
		config, err := pgx.ParseConfig(direct)
		require.NoError(t, err)
		name := "ALTER DATABASE " + pgx.Identifier{config.Database}.Sanitize() + " "
		server := pgtest.OtherDatabase(t, direct)
		return fault{noWrites: true, begin: func(t *testing.T) {
			execute(t, server, name+setting)
			proxy.Reset() // the setting applies to new sessions
		}, end: func(t *testing.T) {
			execute(t, server, name+reset)
			proxy.Reset()
		}}
	}
	const always = 1 << 30
	return map[string]map[string]fault{
		"connections": {
			"connections are refused": {
				noWrites: true, begin: do(proxy.Refuse), end: func(t *testing.T) { proxy.Accept(t) },
			},
			"connections are reset":     {begin: do(proxy.Reset), end: none},
			"connections are half open": {noWrites: true, begin: do(proxy.HalfOpen), end: do(proxy.EndHalfOpen)},
			"the database is read only": database("SET default_transaction_read_only = on",
				"RESET default_transaction_read_only"),
			"the database is full of sessions": database("CONNECTION LIMIT 0", "CONNECTION LIMIT -1"),
		},
		"messages": {
			"a request is lost halfway": {
				begin: do(func() { proxy.LoseRequest("lead.created.v1") }), end: afterLoss,
			},
			"an answer is lost": {
				begin: do(func() { proxy.LoseAnswer("lead.created.v1") }), end: afterLoss,
			},
			"a transaction is lost halfway": {begin: do(func() { proxy.LoseRequest("commit") }), end: afterLoss},
			"a commit's answer is lost":     {begin: do(func() { proxy.LoseAnswer("commit") }), end: afterLoss},
			"answers are slow by half a second": {
				begin: do(func() { proxy.Slow(500 * time.Millisecond) }), end: do(func() { proxy.Slow(0) }),
			},
			"answers are slow by ten seconds": {
				noWrites: true, begin: do(func() { proxy.Slow(10 * time.Second) }), end: do(func() { proxy.Slow(0) }),
			},
		},
		"statements": {
			"appends cannot be serialized":    failing("log.event", "40001", 5, false),
			"appends meet deadlocks":          failing("log.event", "40P01", 5, false),
			"views cannot be serialized":      failing("views.lead", "40001", 5, false),
			"deliveries cannot be serialized": failing("delivery.queue", "40001", 5, false),
			"secrets cannot be serialized":    failing("secret.webhook", "40001", always, false),
			"secrets meet a full disk":        failing("secret.webhook", "58030", always, false),
			"appends time out":                failing("log.event", "sleep", always, true),
			"the log meets a full disk":       failing("log.event", "53100", always, true),
			"the views meet a full disk":      failing("views.lead", "53100", always, false),
			"files cannot be written":         failing("log.event", "58030", always, true),
		},
	}
}

// failStatements makes the next writes to a table fail with a SQLSTATE, or block if the SQLSTATE is "sleep".
func failStatements(t *testing.T, url, table, sqlstate string, times int) {
	t.Helper()
	failure := fmt.Sprintf(`RAISE EXCEPTION 'on purpose' USING ERRCODE = '%s'`, sqlstate)
	if sqlstate == "sleep" {
		failure = `PERFORM pg_sleep(3600)`
	}
	execute(t, url, fmt.Sprintf(`
		CREATE SEQUENCE IF NOT EXISTS public.faults;
		ALTER SEQUENCE public.faults RESTART;
		CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		    IF nextval('public.faults') <= %d THEN %s; END IF;
		    RETURN NULL;
		END $$;
		CREATE TRIGGER fault AFTER INSERT OR UPDATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION public.fail()`,
		times, failure, table))
}

func execute(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	pgtest.Exec(t, conn, statement)
}

// Callers send requests during a sequence of faults. After each fault, refused captures are repeated with their keys.
// Each capture must be stored once.
func TestFaults_Connections(t *testing.T) { testFaults(t, "connections") }
func TestFaults_Messages(t *testing.T)    { testFaults(t, "messages") }
func TestFaults_Statements(t *testing.T)  { testFaults(t, "statements") }

func testFaults(t *testing.T, kind string) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	way := pgtest.NewProxy(t, settings["LEADLOG_DATABASE_URL"])
	all := faults(t, settings, way)[kind]
	c := newFaultService(t, settings, way.URL(), jwt)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { c.runFault(t, all[name]).requireStoredOnce(t) })
	}
	launch(t, settings, "verify").exits(t, 0)
}

// newFaultService starts a service with another address of its database. It creates a token, and an endpoint for new
// leads.
func newFaultService(t *testing.T, settings map[string]string, address, jwt string) *chaos {
	t.Helper()
	behind := maps.Clone(settings)
	behind["LEADLOG_DATABASE_URL"] = address
	p, base := serve(t, behind)
	c := &chaos{settings: settings, receiver: newReceiver(t)}
	c.calling.Store(&running{program: p, base: base, jwt: jwt})
	mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+c.receiver.URL+`","events":["lead.created"]}`).
		is(t, 201)
	mustCall(t, "POST", base+tokensPath, jwt, `{"name":"to be rotated","expiresInDays":30}`).is(t, 201)
	return c
}

// The service has two addresses of its database. The first host refuses connections, and later does not respond.
func TestFaults_FailsOverToOtherHost(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	one, other := pgtest.NewProxy(t, settings["LEADLOG_DATABASE_URL"]),
		pgtest.NewProxy(t, settings["LEADLOG_DATABASE_URL"])
	other.Refuse()
	c := newFaultService(t, settings, one.URL(other), jwt)
	back := func(t *testing.T) {
		one.EndHalfOpen()
		one.Accept(t)
		other.Refuse()
	}
	t.Run("refused", func(t *testing.T) {
		c.runFault(t, fault{end: back, begin: func(t *testing.T) {
			other.Accept(t)
			one.Refuse()
		}}).requireStoredOnce(t)
	})
	t.Run("silent", func(t *testing.T) {
		c.runFault(t, fault{end: back, begin: func(t *testing.T) {
			other.Accept(t)
			one.HalfOpen()
		}}).requireStoredOnce(t)
	})
	launch(t, settings, "verify").exits(t, 0)
}

// faultRun has the callers of a service with a failing database.
type faultRun struct {
	*chaos
	changes []request
	phase   atomic.Int32 // before, during and after the fault

	mu             sync.Mutex
	people         []person       // answered 201
	unacknowledged []request      // captures with another answer
	answers        [3]map[int]int // number of answers to captures within a phase, by status
}

// Phases of a faultRun.
const (
	before int32 = iota
	during
	after
)

// runFault runs callers before, during and after a fault, until captures succeed again.
func (c *chaos) runFault(t *testing.T, f fault) *faultRun {
	t.Helper()
	s := &faultRun{chaos: c, answers: [3]map[int]int{{}, {}, {}}, changes: c.changeRequests(t)}
	ctx, stop := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	defer calling.Wait()
	defer stop()
	for range 4 {
		calling.Go(func() { s.capture(ctx) })
	}
	calling.Go(func() { s.change(ctx) })
	calling.Go(func() { s.read(ctx) })
	s.await(t, before, 201)
	f.begin(t)
	s.phase.Store(during)
	if f.noWrites {
		s.await(t, during, 503)
		s.mu.Lock()
		captured := s.answers[during][201]
		s.mu.Unlock()
		require.True(t, captured == 0 || f.someWrites, "captured without a database")
	} else {
		s.await(t, during, 201)
	}
	f.end(t)
	s.phase.Store(after)
	s.await(t, after, 201)
	return s
}

// changeRequests returns one request for each kind of write: lead, token, endpoint and visitor.
func (c *chaos) changeRequests(t *testing.T) []request {
	t.Helper()
	lead, _, _ := c.retry(t.Context(), request{
		method: "POST", path: leadsPath, body: `{"phone":"9876543210","metadata":{"source":"website"}}`,
	}, 200, 201)
	require.Empty(t, c.failures())
	one := func(path, id string) string {
		listed, _, _ := c.retry(t.Context(), request{
			method: "GET", path: path + "?minPosition=" + lead.header.Get("X-Log-Position"),
		}, 200)
		return path + "/" + listed.body["data"].([]any)[0].(map[string]any)[id].(string)
	}
	endpoint := one("/webhooks/endpoints", "webhookId")
	return []request{
		{method: "PATCH", path: leadsPath + "/" + lead.data()["leadId"].(string), body: `{"name":"Asha"}`},
		{method: "POST", path: one(tokensPath, "tokenId") + "/rotate"},
		{method: "POST", path: endpoint + "/secret/rotate"},
		{method: "PATCH", path: endpoint, body: `{"description":"one that lives"}`},
		{method: "POST", path: "/api/v1/crm/visitors/v1/activity", body: `{"type":"page_view"}`},
	}
}

// await waits for a capture that began and ended in a phase to have a status.
func (s *faultRun) await(t *testing.T, phase int32, status int) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.answers[phase][status] > 0 || s.failed()
	}, soon, time.Millisecond, "phase %d, %d", phase, status)
	require.Empty(t, s.failures())
}

// capture captures one person after another.
func (s *faultRun) capture(ctx context.Context) {
	for ctx.Err() == nil {
		n := s.chaos.people.Add(1)
		r := request{
			method: "POST", path: leadsPath, key: fmt.Sprintf("fault-%d", n),
			body: fmt.Sprintf(`{"email":"person%d@example.com"}`, n),
		}
		phase := s.phase.Load()
		got, ok := s.call(ctx, r, 201)
		s.mu.Lock()
		if got.status == 201 {
			s.people = append(s.people, person{requests: []request{r}, answers: []answer{got}})
		} else {
			s.unacknowledged = append(s.unacknowledged, r)
		}
		if ok && phase == s.phase.Load() {
			s.answers[phase][got.status]++
		}
		s.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

// change sends the requests in changes.
func (s *faultRun) change(ctx context.Context) {
	for ctx.Err() == nil {
		for _, r := range s.changes {
			s.call(ctx, r, 200, 202)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *faultRun) read(ctx context.Context) {
	for ctx.Err() == nil {
		for _, path := range []string{
			leadsPath, tokensPath, "/webhooks/endpoints", "/api/v1/crm/sources/report?interval=day",
			"/api/v1/crm/audit/tree", "/readyz",
		} {
			s.call(ctx, request{method: "GET", path: path}, 200)
		}
		if got, err := (request{method: "GET", path: "/healthz"}).send(ctx, s.chaos.calling.Load().base,
			""); err == nil && got.status != 200 {
			s.failf("/healthz answered %d", got.status)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// call sends one request. Its status must be a wanted one, or 503 with Retry-After.
func (s *faultRun) call(ctx context.Context, r request, want ...int) (got answer, ok bool) {
	service := s.chaos.calling.Load()
	got, err := r.send(ctx, service.base, service.jwt)
	switch {
	case err != nil && ctx.Err() != nil:
		return answer{}, false
	case err != nil:
		s.failf("%s %s: %v", r.method, r.path, err)
	case got.status == 503 && got.header.Get("Retry-After") == "" && r.path != "/readyz":
		s.failf("%s %s answered 503 without Retry-After", r.method, r.path)
	case got.status != 503 && !slices.Contains(want, got.status):
		s.failf("%s %s answered %d %v", r.method, r.path, got.status, got.body)
	}
	return got, err == nil
}

// requireStoredOnce repeats unacknowledged captures with their keys, and requires each person to be captured once.
func (s *faultRun) requireStoredOnce(t *testing.T) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for _, r := range s.unacknowledged {
		group.Go(func() error {
			got, _, ok := s.retry(t.Context(), r, 201)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.people = append(s.people, person{requests: []request{r}, answers: []answer{got}})
			if !ok {
				return fmt.Errorf("repeated after a 503: %v", s.failures())
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	t.Logf("%d captured, %d of them unacknowledged at first", len(s.people), len(s.unacknowledged))
	for _, p := range s.people {
		group.Go(func() error {
			facts, err := s.facts(t.Context(), leadsPath+"/"+p.id(), p.position())
			if want := map[string]string{p.position(): "lead.created"}; err == nil && !maps.Equal(facts, want) {
				err = fmt.Errorf("lead %s was captured at %s, the log has %v", p.id(), p.position(), facts)
			}
			if _, _, ok := s.retry(t.Context(), request{
				method: "GET", path: leadsPath + "/" + p.id() + "?minPosition=" + p.position(),
			}, 200); err == nil && !ok {
				err = fmt.Errorf("lead %s is in no view: %v", p.id(), s.failures())
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	ids := map[string]bool{}
	for _, p := range s.people {
		ids[p.id()] = true
	}
	require.Len(t, ids, len(s.people))
	s.checkWebhooks(t, &load{people: s.people})
}
