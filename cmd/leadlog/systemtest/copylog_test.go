package systemtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// inbox is a webhook receiver that counts accepted deliveries by id. It rejects bodies that contain the text rejects,
// if it is set.
type inbox struct {
	*httptest.Server
	mu          sync.Mutex
	accepted    map[string]int
	refused     map[string]string // bodies
	rejects     string
	bodyChanged bool // a body differed between attempts
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	b := &inbox{accepted: map[string]int{}, refused: map[string]string{}}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		defer b.mu.Unlock()
		id := r.Header.Get("webhook-id")
		if earlier, again := b.refused[id]; again && earlier != string(body) {
			b.bodyChanged = true
		}
		if b.rejects != "" && strings.Contains(string(body), b.rejects) {
			b.refused[id] = string(body)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		b.accepted[id]++
	}))
	t.Cleanup(b.Close)
	return b
}

// waitFor waits for a number of deliveries, each accepted once.
func (b *inbox) waitFor(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.accepted) >= n
	}, soon, 10*time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(t, b.accepted, n)
	for id, times := range b.accepted {
		require.Equal(t, 1, times, id)
	}
	require.False(t, b.bodyChanged, "every attempt sends the same bytes")
}

func (b *inbox) refuse(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rejects = what
}

func (b *inbox) hasRefused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rejects != "" && slices.ContainsFunc(slices.Collect(maps.Values(b.refused)), func(body string) bool {
		return strings.Contains(body, b.rejects)
	})
}

// readView reads leads, their sources, and the events of tokens, without positions and hashes over positions.
func readView(t *testing.T, base, jwt, since string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, path := range []string{
		"/api/v1/crm/leads", "/api/v1/crm/sources/history", "/api/v1/crm/audit/tokens",
		"/api/v1/crm/sources/report?interval=month",
	} {
		sign := "?"
		if strings.Contains(path, "?") {
			sign = "&"
		}
		got := mustCall(t, "GET", base+path+sign+"minPosition="+since, jwt, "").is(t, 200)
		for _, item := range got.body["data"].([]any) {
			delete(item.(map[string]any), "position")
			delete(item.(map[string]any), "lineHash") // hash of a line with its position
		}
		all[path] = got.body["data"]
	}
	return all
}

func withLog(settings map[string]string, log string) map[string]string {
	settings = maps.Clone(settings)
	settings["LEADLOG_EVENTSTORE_URL"] = log
	return settings
}

func TestCopyLog_ToEventStoreDBAndBack(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	receiver := newInbox(t)
	settings := serveSettings(t)
	settings["LEADLOG_WEBHOOK_RETRY_SCHEDULE"] = "300ms,300ms,300ms,300ms" + strings.Repeat(",1s", 60)
	jwt := provision(t, settings)
	launch(t, settings, "import", writeFile(t, "leads.csv", "name,phone\nAsha,98764 00000\n"), "--account", "acme").
		exits(t, 0)
	p, base := serve(t, settings)
	number, deliveries := 0, 0
	// capture appends a lead from two sources, a refused arrival, activity of a visitor, and a token that is created
	// and deleted. These have four deliveries.
	capture := func() (position string) {
		t.Helper()
		number, deliveries = number+1, deliveries+4
		body := `{"phone":"98765%05d","email":"p%d@example.com","visitorId":"v-%[2]d","metadata":{"source":"%[3]s"}}`
		for _, c := range []struct {
			source string
			status int
		}{{"api", 201}, {"website", 200}, {"api", 409}} {
			mustCall(t, "POST", base+"/api/v1/crm/leads", jwt,
				fmt.Sprintf(body, number, number, c.source)).is(t, c.status)
		}
		mustCall(t, "POST", base+fmt.Sprintf("/api/v1/crm/visitors/v-%d/activity", number), jwt,
			`{"type":"page_view","url":"https://example.com/"}`).is(t, 202)
		token := mustCall(t, "POST", base+"/api/v1/crm/tokens", jwt, `{"name":"CI","expiresInDays":3}`).is(t, 201)
		deleted := mustCall(t, "DELETE", base+"/api/v1/crm/tokens/"+token.data()["tokenId"].(string), jwt, "").
			is(t, 200)
		return deleted.header.Get("X-Log-Position")
	}
	mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+receiver.URL+`"}`).is(t, 201)
	capture()
	receiver.waitFor(t, deliveries)
	proven := map[string]audit.Leaf{}
	requireAllProven := func() {
		t.Helper()
		var actors []string
		for _, lead := range mustCall(t, "GET", base+"/api/v1/crm/leads", jwt, "").is(t, 200).body["data"].([]any) {
			actors = append(actors,
				requireEvidence(t, settings, base, jwt, lead.(map[string]any)["leadId"].(string), proven))
		}
		require.Len(t, actors, 1+number)
		require.Contains(t, actors, "system:import", "the row of a file")
		require.Len(t, proven, 1+2*number, "a copy changes no event")
	}
	requireAllProven()

	original, eventStore, otherPostgres := settings["LEADLOG_DATABASE_URL"], esdbtest.Empty(t), pgtest.Database(t)
	for _, move := range []struct{ from, to string }{
		{original, eventStore}, {eventStore, otherPostgres}, {otherPostgres, eventStore}, {eventStore, original},
	} {
		receiver.refuse(fmt.Sprintf("98765%05d", number+1))
		position := capture()
		require.Eventually(t, receiver.hasRefused, soon, 10*time.Millisecond)
		receiver.waitFor(t, deliveries-2) // the deliveries of the lead are pending

		blocked := launch(t, settings, "copy-log", "--from", move.from, "--to", move.to).exits(t, 1)
		require.Contains(t, blocked.err.String(), "a service runs on these views")
		before := readView(t, base, jwt, position)
		p.stop(t)

		moving := launch(t, settings, "copy-log", "--from", move.from, "--to", move.to).exits(t, 0)
		require.Regexp(t, `both logs: \d+ events, tree root [0-9A-Za-z+/]{43}=\nmoved the checkpoints of \d+ views`,
			moving.out.String())
		require.Zero(t, pgtest.Value[int](t, pgtest.Pool(t, original), `
			SELECT count(*) FROM pg_class WHERE relnamespace = 'views'::regnamespace AND relkind = 'r'
			AND reltuples < 0`), "PostgreSQL knows of the rows")
		again := launch(t, settings, "copy-log", "--from", move.from, "--to", move.to).exits(t, 0)
		require.Contains(t, again.out.String(), "no view had to be moved")

		stale := launch(t, withLog(settings, move.from), "serve").exits(t, 1)
		require.Contains(t, stale.err.String(), "the view is of another log")

		settings = withLog(settings, move.to)
		p, base = serve(t, settings)
		require.Equal(t, before, readView(t, base, jwt, ""), "the views are not rebuilt")
		receiver.refuse("")
		receiver.waitFor(t, deliveries)
		requireAllProven()
		capture()
		receiver.waitFor(t, deliveries)
		launch(t, settings, "verify").exits(t, 0)
	}
}

// requireEvidence requires that the evidence of each event of a lead proves its content, without the service, and that
// the leaves are those that were proven before, by event. It returns the actor of the first event.
func requireEvidence(
	t *testing.T, settings map[string]string, base, jwt, leadID string, proven map[string]audit.Leaf,
) (actor string) {
	t.Helper()
	route := base + "/api/v1/crm/leads/" + leadID + "/events"
	for i, listed := range mustCall(t, "GET", route, jwt, "").is(t, 200).body["data"].([]any) {
		e := listed.(map[string]any)
		if i == 0 {
			actor = e["actor"].(string)
		}
		evidence := text(t, route+"/"+e["id"].(string)+"/evidence", jwt)
		var answer struct {
			Data audit.Evidence `json:"data"`
		}
		require.NoError(t, json.Unmarshal([]byte(evidence), &answer))
		trust := merkle.Trust{PublicKey: logKey(t, settings, answer.Data.Receipt)}
		_, receipt, err := audit.OpenEvidence([]byte(evidence), trust)
		require.NoError(t, err)
		require.Equal(t, e["id"], receipt.Leaf.ID)
		if before, again := proven[receipt.Leaf.ID]; again {
			require.Equal(t, before, receipt.Leaf)
		}
		proven[receipt.Leaf.ID] = receipt.Leaf
	}
	return actor
}

// The test runs every command that appends on the source log. No view follows that log after the copy.
func TestCopyLog_SourceRejectsWrites(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	first := launch(t, settings, "import", writeFile(t, "leads.csv", "name,phone\nAsha,98765 43210\n"),
		"--account", "acme")
	require.Zero(t, first.wait(t), first.err)
	exported := launch(t, settings, "export", "leads", "--account", "acme", "--format", "ndjson")
	require.Zero(t, exported.wait(t), exported.err)
	lead := regexp.MustCompile(`"leadId":"(\w+)"`).FindStringSubmatch(exported.out.String())[1]
	moving := launch(t, settings, "copy-log", "--to", pgtest.Database(t))
	require.Zero(t, moving.wait(t), moving.err)
	source, err := postgres.Open(t.Context(), postgres.Options{
		URL: settings["LEADLOG_DATABASE_URL"], Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(source.Close)
	end := logHead(t, source)

	for _, args := range [][]string{
		{"serve"},
		{"import", writeFile(t, "more.csv", "name,phone\nBela,98765 43211\n"), "--account", "acme"},
		{"account", "set", "acme", "--jwt-not-before", "2026-01-01T00:00:00Z"},
		{"forget", lead, "--account", "acme", "--yes"},
		{"verify", "--heal"},
	} {
		p := launch(t, settings, args...)
		require.Equal(t, 1, p.wait(t), "%v: %s", args, p.out)
		require.Contains(t, p.err.String(), "the view is of another log", args)
		require.Equal(t, end, logHead(t, source), args)
	}
}

func TestCopyLog_FromPrivatePostgres(t *testing.T) {
	t.Parallel()
	settings := devSettings(t)
	delete(settings, "LEADLOG_EVENTSTORE_URL")
	for _, args := range [][]string{
		{"migrate"}, {"account", "set", "acme", "--feature", "crm_api"}, {"replay", "all"},
	} {
		launch(t, settings, args...).exits(t, 0)
	}
	to := pgtest.Database(t)
	moving := launch(t, settings, "copy-log", "--to", to).exits(t, 0)
	require.Contains(t, moving.out.String(), "both logs: 1 events")
	require.Equal(t, 1,
		pgtest.Value[int](t, pgtest.Pool(t, to), `SELECT reltuples FROM pg_class WHERE oid = 'log.event'::regclass`),
		"PostgreSQL knows of the rows")
	settings["LEADLOG_EVENTSTORE_URL"] = to
	launch(t, settings, "verify").exits(t, 0)
}

// The test kills several copies of a log before one completes.
func TestCopyLog_ResumesAfterKill(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	settings := serveSettings(t)
	provision(t, settings)
	quiet := slog.New(slog.DiscardHandler)
	from, err := postgres.Open(t.Context(), postgres.Options{URL: settings["LEADLOG_DATABASE_URL"], Log: quiet})
	require.NoError(t, err)
	t.Cleanup(from.Close)
	const streams, events = 40, 100
	for i := range streams * events {
		e := eventstore.Event{
			ID: ulid.Make(), Type: "test.v1", At: time.Now().UTC().Truncate(time.Millisecond), Data: []byte(`{}`),
		}
		_, err := from.Append(t.Context(), eventstore.Write{
			Stream: fmt.Sprintf("test-%d", i%streams), Expect: eventstore.Any, Events: []eventstore.Event{e},
		})
		require.NoError(t, err)
	}
	server := esdbtest.Start(t)
	to, err := esdb.Open(t.Context(), esdb.Options{URL: server.URL(), Log: quiet})
	require.NoError(t, err)
	t.Cleanup(to.Close)
	kills := 0
	for last := logHead(t, to); ; last = logHead(t, to) {
		p := launch(t, settings, "copy-log", "--from", settings["LEADLOG_DATABASE_URL"], "--to", server.URL())
		require.Eventually(t, func() bool {
			select {
			case <-p.exited:
				return true
			default:
				return kills < 3 && logHead(t, to) > last
			}
		}, soon, time.Millisecond)
		select {
		case <-p.exited:
		default:
			require.NoError(t, kill(p))
			kills++
			p.wait(t)
			continue
		}
		require.Zero(t, p.wait(t), p.err)
		require.Contains(t, p.out.String(), fmt.Sprintf("both logs: %d events", streams*events+1))
		break
	}
	require.Positive(t, kills, "no copy was killed")
}

func logHead(t *testing.T, store eventstore.Store) eventstore.Position {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	head, err := store.Head(ctx)
	require.NoError(t, err)
	return head
}

// A server that accepts connections and sends nothing once blocked copy-log forever, if a flag had its address.
func TestCopyLog_SilentServerTimesOut(t *testing.T) {
	pgtest.System(t)
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	settings := serveSettings(t)
	provision(t, settings)
	address := "postgres://u@" + silent.Addr().String() + "/none?sslmode=disable"
	for _, flag := range []string{"--from", "--to"} {
		p := launch(t, settings, "copy-log", flag, address).exits(t, 1)
		require.Contains(t, p.err.String(), flag+": ")
		require.Contains(t, p.err.String(), "Try: again, when the server (")
	}
}
