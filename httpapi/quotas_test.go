package httpapi_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/httpapi/openapi"
	"github.com/leadlog/leadlog/httpapi/quota"
	"github.com/leadlog/leadlog/projection/secret"
	"github.com/leadlog/leadlog/query"
)

// stopped stops the service's clock and keeps its quotas in memory, so that they are not refilled.
func stopped(o *httpapi.Options) {
	now := time.Now()
	o.Now, o.Quotas = func() time.Time { return now }, nil
}

// credentialed yields every operation of the API that requires a credential, with ids in its path.
func credentialed(t *testing.T, each func(method, path string)) {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(openapi.Document(""))
	require.NoError(t, err)
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.Security == nil || len(*operation.Security) > 0 {
				each(method, regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, missingID))
			}
		}
	}
}

// requireLimited requires that a request was refused by a limit.
func (r reply) requireLimited() {
	r.t.Helper()
	r.is(http.StatusTooManyRequests)
	wait, err := strconv.Atoi(r.header.Get("Retry-After"))
	require.NoError(r.t, err)
	require.Positive(r.t, wait)
}

// On every route, an account without quota is refused before the body is read.
func TestQuota_EveryRoute(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	rate, burst := 0.001, 1
	s.provision(ownAccount, account.Settings{
		Features: []string{account.FeatureAPI}, RateLimit: &rate, RateBurst: &burst,
	})
	s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	s.recordActivity("v", `{"type":"page_view"}`).is(http.StatusAccepted)
	s.as(http.MethodPost, tokens, `{"name":"form","expiresInDays":30}`).is(http.StatusCreated)
	for range 5 {
		require.NotEqual(t, http.StatusTooManyRequests,
			s.request(call{method: http.MethodGet, path: leads, credential: s.jwt}).status)
	}
	before := s.last()
	walked := 0
	credentialed(t, func(method, path string) {
		walked++
		credential := s.jwt
		if strings.HasPrefix(path, "/api/v1/admin/") {
			credential = s.mint(ownAccount, "admin")
		}
		s.request(call{
			method: method, path: path, credential: credential, body: "no JSON",
			header: map[string]string{"Content-Type": "text/plain"},
		}).requireLimited()
	})
	require.Greater(t, walked, 35)
	require.Equal(t, before, s.last())
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	s.send(call{
		method: http.MethodPost, path: leads, credential: s.mint("other", ""), body: `{"phone":"9876543210"}`,
	}).is(http.StatusCreated)
}

func TestQuota_Console(t *testing.T) {
	t.Parallel()
	b := signedIn(t, stopped)
	rate, burst := 0.001, 2
	b.provision(ownAccount, account.Settings{RateLimit: &rate, RateBurst: &burst})
	for range 10 {
		require.Equal(t, http.StatusOK, b.get("/console/tokens").status)
	}
	require.Equal(t, http.StatusTooManyRequests, b.get("/console/tokens").status)
	require.Equal(t, http.StatusTooManyRequests, b.get("/console/leads/"+missingID).status)
	b.as(http.MethodGet, tokens, "").requireLimited()
	require.Equal(t, http.StatusOK, b.post("/console/tokens", "name", "a", "expiresInDays", "30").status)
	require.Equal(t, http.StatusNotFound, b.post("/console/leads/"+missingID+"/reveal").status)
	require.Equal(t, http.StatusTooManyRequests, b.post("/console/tokens", "name", "b", "expiresInDays", "30").status)
	require.Equal(t, http.StatusTooManyRequests, b.get("/console/leads.csv").status,
		"an export appends a record, so it counts as a write")
	b.as(http.MethodPost, tokens, `{"name":"c","expiresInDays":30}`).requireLimited()
}

// Changes once had no limit: 300 of them appended 25 MB in eleven seconds.
func TestQuota_Changes(t *testing.T) {
	t.Parallel()
	s := start(t, stopped)
	s.provision(ownAccount, account.Settings{Features: []string{account.FeatureAPI}, RateBurst: new(10)})
	path := leads + "/" + s.capture(`{"phone":"9876543210"}`).at("data", "leadId").(string)
	answered := map[int]int{}
	for i := range 30 {
		var fields []string
		for field := range 45 {
			fields = append(fields, fmt.Sprintf(`"f%d":"%03d%s"`, field, i, strings.Repeat("x", 1900)))
		}
		answered[s.as(http.MethodPatch, path, `{"customFields":{`+strings.Join(fields, ",")+`}}`).status]++
	}
	require.Equal(t, map[int]int{http.StatusOK: 10, http.StatusTooManyRequests: 20}, answered)
}

// Appended bytes of all commands count. A batch stops at the line that exceeds the limit, and then all writes are
// refused.
func TestQuota_Bytes(t *testing.T) {
	t.Parallel()
	const budget = 4 << 20
	bucket := &usedBytes{left: budget}
	s := start(t, func(o *httpapi.Options) { o.Quotas = bucket })
	id, value := s.token()
	var lines strings.Builder
	const sent = 24
	for i := range sent {
		fmt.Fprintf(&lines, `{"phone":"98765%05d","customFields":{%s}}`+"\n", i, largeFields(i))
	}
	answered := map[int]int{}
	for _, status := range statuses(s.sendBatch(lines.String()).lines(t)) {
		answered[status]++
	}
	taken := answered[http.StatusCreated]
	require.Equal(t, map[int]int{http.StatusCreated: taken, http.StatusTooManyRequests: sent - taken}, answered)
	require.Greater(t, taken, budget/(400<<10))
	require.Less(t, taken, budget/(250<<10))
	require.Equal(t, quota.Limit{Rate: 1 << 20, Burst: 32 << 20}, bucket.limit)
	refused := s.metric(`leadlog_rate_limited_total{limit="bytes"}`)
	require.Equal(t, strconv.Itoa(sent-taken), refused)
	limited := s.capture(`{"phone":"9876543210"}`)
	limited.requireLimited()
	require.Equal(t, `"bytes";q=33554432;w=32`, limited.header.Get("RateLimit-Policy"))
	require.Regexp(t, `^"bytes";r=0;t=[1-9][0-9]*$`, limited.header.Get("RateLimit"))
	s.send(call{
		method: http.MethodPost, path: leads, credential: value, body: `{"phone":"9876543210"}`,
	}).requireLimited()
	s.as(http.MethodPost, leads+"/batch", `{"phone":"9876543210"}`).requireLimited()
	s.recordActivity("v", `{"type":"page_view"}`).requireLimited()
	s.as(http.MethodDelete, tokens+"/"+id, "").requireLimited()
	s.as(http.MethodGet, tokens, "").is(http.StatusOK)
	require.Equal(t, strconv.Itoa(sent-taken+5), s.metric(`leadlog_rate_limited_total{limit="bytes"}`))
}

// usedBytes grants a fixed number of bytes without refill, and any amount of other quotas.
type usedBytes struct {
	mu    sync.Mutex
	left  int
	limit quota.Limit // latest limit of bytes
}

func (u *usedBytes) Lend(_ context.Context, key string, limit quota.Limit, want int) (quota.Lease, error) {
	if !strings.HasPrefix(key, "bytes ") {
		return quota.Lease{Granted: want, Left: float64(limit.Burst)}, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	granted := max(0, min(want, u.left))
	u.left, u.limit = u.left-granted, limit
	return quota.Lease{Granted: granted, Left: float64(u.left)}, nil
}

// largeFields are custom fields of 335 KiB. Composed characters would make them twice as large, and normalizing them
// slow.
func largeFields(i int) string {
	var fields []string
	for field := range 43 {
		fields = append(fields, fmt.Sprintf(`"f%d":"%s"`, field, strings.Repeat("😀", 1990)+strconv.Itoa(i)))
	}
	return strings.Join(fields, ",")
}

// readingStore counts the events that are read from the streams of leads, and may block reads.
type readingStore struct {
	eventstore.Store
	events  atomic.Int64
	hold    chan struct{} // nil: reads are not blocked
	blocked chan string   // streams of blocked reads
}

func (s *readingStore) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		if s.hold != nil && strings.HasPrefix(stream, event.LeadPrefix) {
			s.blocked <- stream
			<-s.hold
		}
		for recorded, err := range s.Store.Read(ctx, stream, from) {
			if strings.HasPrefix(stream, event.LeadPrefix) {
				s.events.Add(1)
			}
			if !yield(recorded, err) {
				return
			}
		}
	}
}

// reading starts a service on a readingStore, without limits of requests.
func reading(t *testing.T) (*service, *readingStore) {
	t.Helper()
	log := &readingStore{}
	s := start(t)
	log.Store = s.store
	directory := command.NewDirectory(log, time.Now)
	box, err := sealbox.New([]byte(jwtSecret))
	require.NoError(t, err)
	intakes := secret.Intakes{Store: secret.New(s.pool, box)}
	directory.ServeIntakes(intakes)
	claims := claim.NewNames([]byte(jwtSecret))
	verifier, err := httpapi.NewHS256([]byte(jwtSecret), httpapi.VerifierOptions{})
	require.NoError(t, err)
	signer, err := merkle.NewSigner(logOrigin, []byte(jwtSecret))
	require.NoError(t, err)
	quiet := slog.New(slog.DiscardHandler)
	commands := command.NewHandlers(command.Options{
		Store: log, Claims: claims, Directory: directory, Secrets: noSecrets{}, IntakeSecrets: intakes, Log: quiet,
	})
	second := *s
	second.server = httptest.NewServer(httpapi.New(httpapi.Options{
		Commands: commands, Eraser: s.eraser(), Directory: directory,
		Query: query.New(s.pool, log, query.WithClaims(claims)), JWT: verifier, Log: quiet,
		Tree: signer, ConsoleKey: []byte(jwtSecret),
	}))
	t.Cleanup(second.server.Close)
	return &second, log
}

// A small request once read a long stream to its end to detect an erasure or to fold the lead.
func TestStream_LongLead(t *testing.T) {
	t.Parallel()
	s, log := reading(t)
	const length = 400
	body := func(i int) string {
		return fmt.Sprintf(`{"phone":"9876543210","n":%d,"metadata":{"source":"website"}}`, i)
	}
	keyed := func() reply {
		return s.send(call{
			method: http.MethodPost, path: leads, credential: s.jwt, body: body(length / 2),
			header: map[string]string{"Idempotency-Key": "k"},
		})
	}
	var lines strings.Builder
	for i := range length / 2 {
		fmt.Fprintln(&lines, body(i))
	}
	require.NotContains(t, statuses(s.sendBatch(lines.String()).lines(t)), http.StatusConflict)
	first := keyed().is(http.StatusOK)
	last := s.sendBatch(lines.String())
	require.NotContains(t, statuses(last.lines(t)), http.StatusConflict)
	id := first.at("data", "leadId").(string)
	path := leads + "/" + id
	halfway := url.QueryEscape(first.at("data", "updatedAt").(string))
	b := s.browser()
	b.signIn(s.jwt)
	read := func(most int64, send func()) {
		t.Helper()
		log.events.Store(0)
		send()
		require.LessOrEqual(t, log.events.Load(), most)
	}
	page := func() {
		seen := b.get("/console/leads/" + id)
		require.Equal(t, http.StatusOK, seen.status)
		require.Len(t, regexp.MustCompile(`[?;]raw=\d+`).FindAllString(seen.body, -1), 50)
	}
	read(2, func() {
		require.Len(t, s.as(http.MethodGet, path+"/events?limit=1", "").is(http.StatusOK).at("data"), 1)
	})
	// The folded state is cached.
	asOf := func() { s.as(http.MethodGet, path+"?asOf="+halfway, "").is(http.StatusOK) }
	asOf()
	read(35, asOf)
	page()
	read(60, page)
	keyed()
	read(2, func() { require.Equal(t, "true", keyed().is(http.StatusOK).header.Get("Idempotent-Replayed")) })

	s.as(http.MethodDelete, path, "").is(http.StatusOK)
	s.as(http.MethodGet, path+"/events?limit=1", "").is(http.StatusNotFound)
	s.as(http.MethodGet, path+"?asOf="+halfway, "").is(http.StatusNotFound)
	require.Equal(t, http.StatusNotFound, b.get("/console/leads/"+id).status)
	keyed().is(http.StatusGone)
}

// Concurrent reads of streams by one account do not use the slots of other accounts.
func TestStream_ConcurrentReads(t *testing.T) {
	t.Parallel()
	s, log := reading(t)
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	ownLead := s.leadID(s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated))
	otherJWT := s.mint("other", "")
	otherLead := s.leadID(
		s.send(call{
			method: http.MethodPost, path: leads, credential: otherJWT, body: `{"phone":"9876543210"}`,
		}).is(http.StatusCreated),
	)
	log.hold, log.blocked = make(chan struct{}), make(chan string, 100)
	const asked, slots = 24, 8
	answers := make(chan reply, asked+1)
	for range asked {
		go func() {
			answers <- s.request(call{
				method: http.MethodGet, path: leads + "/" + ownLead + "/events", credential: s.jwt,
			})
		}()
	}
	for range asked - slots {
		(<-answers).requireLimited()
	}
	for range slots {
		require.Equal(t, event.LeadStream(ownLead), <-log.blocked)
	}
	go func() {
		answers <- s.request(call{
			method: http.MethodGet, path: leads + "/" + otherLead + "/events", credential: otherJWT,
		})
	}()
	require.Equal(t, event.LeadStream(otherLead), <-log.blocked,
		"the other account reads while the first one uses all its slots")
	close(log.hold)
	for range slots + 1 {
		(<-answers).is(http.StatusOK)
	}
}
