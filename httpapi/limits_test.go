package httpapi_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/httpapi"
	"github.com/leadlog/leadlog/projection/view"
)

// TestLoad_ShedsRequests fills the service with waiting requests, and releases them.
func TestLoad_ShedsRequests(t *testing.T) {
	t.Parallel()
	const most = 8
	s := start(t, func(o *httpapi.Options) { o.MaxRequests, o.ConsoleKey = most, []byte(jwtSecret) })
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	otherJWT := s.mint("other", "leads:write")
	b := s.browser().signIn(s.jwt)
	waiting := make([]*wire, most)
	answered := make([]*bufio.Reader, most)
	for i := range waiting { // a batch ends when its client ends it
		waiting[i] = s.wire([]string{s.jwt, otherJWT}[i%2])
		waiting[i].send(fmt.Sprintf(`{"email":"p%d@example.com"}`+"\n", i))
		answered[i] = waiting[i].answers()
	}
	for _, c := range []call{
		{method: http.MethodPost, path: leads, credential: s.jwt, body: `{"phone":"9876543210"}`},
		{method: http.MethodGet, path: leads, credential: s.jwt},
		{method: http.MethodPost, path: leads, credential: "a guess", body: `{}`},
	} {
		r := s.request(c).is(http.StatusServiceUnavailable)
		require.Equal(t, `{"success":false,"message":"Service unavailable"}`, r.raw)
		require.Equal(t, "1", r.header.Get("Retry-After"))
	}
	page := b.get("/console/leads")
	require.Equal(t, http.StatusServiceUnavailable, page.status, page.body)
	require.Equal(t, "1", page.header.Get("Retry-After"))
	address, err := url.Parse(s.server.URL + "/console/")
	require.NoError(t, err)
	conn := s.dial()
	sendText(conn,
		"GET /console/leads HTTP/1.1\r\nHost: x\r\nCookie: "+b.client.Jar.Cookies(address)[0].String()+"\r\n\r\n")
	require.Equal(t, []int{http.StatusServiceUnavailable}, answersOf(t, conn),
		"the connection is closed after the answer")
	require.Equal(t, http.StatusOK, b.get("/console/sign-in").status)
	require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: "/healthz"}).status,
		"the health check is not limited")
	require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: "/readyz"}).status)
	require.Contains(t, s.send(call{method: http.MethodGet, path: "/metrics"}).raw, `status="503"} 2`)

	waiting[0].end()
	_, err = io.ReadAll(answered[0])
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return s.capture(`{"phone":"9876543210"}`).status == http.StatusCreated
	}, time.Minute, 5*time.Millisecond,
		"a finished request frees its slot")
	for i := 1; i < most; i++ {
		waiting[i].end()
	}
}

// TestLoad_SignInFormTakesNoSlot starts more posts of the form than the maximum number of requests in flight.
func TestLoad_SignInFormTakesNoSlot(t *testing.T) {
	t.Parallel()
	const most = 4
	s := start(t, func(o *httpapi.Options) { o.MaxRequests, o.ConsoleKey = most, []byte(jwtSecret) })
	for range 2 * most {
		conn := s.dial()
		sendText(conn, "POST /console/sign-in HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\n")
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 100 Continue\r\n", line, "the form is being read")
	}
	s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	require.Equal(t, http.StatusOK, s.browser().signIn(s.jwt).get("/console/leads").status)
	large := s.browser().post("/console/sign-in", "jwt", s.jwt, "next", strings.Repeat("x", 16<<10))
	require.Equal(t, http.StatusRequestEntityTooLarge, large.status)
	require.Contains(t, large.body, "The form is larger than 16 KiB")
}

// TestLoad_BodyBudget sends halves of large bodies until the budget is used up.
func TestLoad_BodyBudget(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit, o.BodyBytes = 0, 2<<20 })
	bufferedBytes := func() int {
		n, err := strconv.ParseFloat(s.metric("leadlog_http_body_bytes"), 64)
		require.NoError(t, err)
		return int(n)
	}
	const half = 900 << 10
	conns := make([]net.Conn, 2)
	for i := range conns {
		conns[i] = s.dial()
		sendText(conns[i],
			fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
				leads, s.jwt, 2*half, strings.Repeat("x", half)))
	}
	require.Eventually(t, func() bool { return bufferedBytes() == len(conns)*half }, time.Minute, 5*time.Millisecond)
	large := `{"note":"` + strings.Repeat("x", 500<<10) + `"}`
	r := s.capture(large)
	require.Equal(t, http.StatusServiceUnavailable, r.status, "a third large body exceeds the budget: %s", r.raw)
	require.Equal(t, "1", r.header.Get("Retry-After"))
	require.Equal(t, http.StatusCreated, s.capture(`{"phone":"9876543210"}`).status,
		"a small body is within the budget")
	for _, conn := range conns {
		conn.Close()
	}
	require.Eventually(t, func() bool { return bufferedBytes() == 0 }, time.Minute, 5*time.Millisecond)
	require.Equal(t, http.StatusBadRequest, s.capture(large).status, "the budget is free after the connections close")
}

// metric returns the value of a metric without labels.
func (s *service) metric(name string) string {
	s.t.Helper()
	_, after, found := strings.Cut(s.send(call{method: http.MethodGet, path: "/metrics"}).raw, "\n"+name+" ")
	require.True(s.t, found, name)
	value, _, _ := strings.Cut(after, "\n")
	return value
}

// TestLoad_BatchBudget fills the budget of batches and continues to send.
func TestLoad_BatchBudget(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit, o.BatchBytes = 0, 8<<20 })
	one, two := s.wire(s.jwt), s.wire(s.jwt)
	for i, w := range []*wire{one, two} {
		w.send(fmt.Sprintf(`{"email":"p%d@example.com"}`+"\n", i))
	}
	first, second := one.answers(), two.answers()
	r := s.as(http.MethodPost, batch, `{"email":"q@example.com"}`).is(http.StatusServiceUnavailable)
	require.Equal(t, "1", r.header.Get("Retry-After"))

	// With the budget used up, the batch is read only as fast as it is answered, and every line is answered.
	line := `{"email":"p0@example.com","metadata":{"source":"website"}}` + strings.Repeat(" ", 100<<10) + "\n"
	var sending sync.WaitGroup
	sending.Go(func() {
		for range 40 {
			one.send(line)
		}
		one.end()
	})
	answers, err := io.ReadAll(first)
	require.NoError(t, err)
	sending.Wait()
	require.Equal(t, 41, strings.Count(string(answers), `"success":true,`))
	two.end()
	_, err = io.ReadAll(second)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return s.as(http.MethodPost, batch, `{"email":"q@example.com"}`).status == http.StatusOK
	}, time.Minute, 5*time.Millisecond)
}

// TestLoad_IdleConnections opens as many connections as the limit of open files allows, up to 10,000. Half of them send
// nothing, and the others half a header.
func TestLoad_IdleConnections(t *testing.T) {
	s := start(t)
	n := min(10_000, (openFiles(t)-500)/2) // both ends are in this process
	require.Greater(t, n, 100, "ulimit -n is too low for this test")
	before := heap()
	for i := range n {
		conn := s.dial()
		if i%2 == 1 {
			sendText(conn, "GET /healthz HTTP/1.1\r\nHo")
		}
	}
	s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated)
	bytesPerConn := int64(heap()-before) / int64(n)
	require.Less(t, bytesPerConn, int64(64<<10), "bytes for both ends of a connection")
	s.as(http.MethodGet, leads, "").is(http.StatusOK)
}

func openFiles(t *testing.T) int {
	t.Helper()
	var files syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	return int(min(files.Cur, 200_000))
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// TestCredentials_FloodBoundsLookups guesses well-formed tokens. Guesses beyond the limit must not
// read the log.
func TestCredentials_FloodBoundsLookups(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	now := time.Now() // the quota is not refilled
	s := startOn(t, migrated(t), server.URL(), view.All(), func(o *httpapi.Options) {
		o.Now = func() time.Time { return now }
	})
	reads := func() (n int) {
		for _, each := range server.StreamReads(event.TokenPrefix) {
			n += each
		}
		return n
	}
	before, answered := reads(), map[int]int{}
	for _, r := range concurrently(150, func(int) reply {
		guess, err := token.NewValue(ulid.Make().String(), rand.Reader)
		require.NoError(t, err)
		return s.send(call{method: http.MethodPost, path: leads, credential: guess.Reveal(), body: `{}`})
	}) {
		answered[r.status]++
	}
	require.Positive(t, answered[http.StatusTooManyRequests], "%v", answered)
	require.Equal(t, 150, answered[http.StatusUnauthorized]+answered[http.StatusTooManyRequests], "%v", answered)
	require.LessOrEqual(t, reads()-before, answered[http.StatusUnauthorized])
}

// TestFairness_SlowAccount starts the maximum number of batches and of large bodies of an account, and finishes none.
func TestFairness_SlowAccount(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit, o.BatchBytes, o.BodyBytes = 0, 16<<20, 8<<20 })
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	otherJWT := s.mint("other", "leads:write")

	started := 0
	for refused := false; !refused; {
		w := s.wire(s.jwt)
		w.send(fmt.Sprintf(`{"email":"p%d@example.com"}`+"\n", started))
		response, err := http.ReadResponse(bufio.NewReader(w.conn), nil)
		require.NoError(t, err)
		if refused = response.StatusCode == http.StatusServiceUnavailable; !refused {
			require.Equal(t, http.StatusOK, response.StatusCode)
			started++
		}
	}
	require.Equal(t, 2, started, "an account may use half of the budget, 4 MiB for each batch")
	r := s.send(call{method: http.MethodPost, path: batch, credential: otherJWT, body: `{"email":"q@example.com"}`})
	require.Equal(t, http.StatusOK, r.status, r.raw)

	for range 8 {
		sendText(s.dial(),
			fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
				leads, s.jwt, 2<<20, strings.Repeat("x", 1<<20)))
	}
	large := `{"note":"` + strings.Repeat("x", 1<<20) + `"}`
	require.Eventually(t, func() bool {
		return s.capture(large).status == http.StatusServiceUnavailable
	}, time.Minute, 5*time.Millisecond)
	r = s.send(call{method: http.MethodPost, path: leads, credential: otherJWT, body: large})
	require.Equal(t, http.StatusBadRequest, r.status, "the body is read, and has no phone: %s", r.raw)
}

// TestFairness_ManyRequests starts the maximum number of requests of an account, and finishes none.
func TestFairness_ManyRequests(t *testing.T) {
	t.Parallel()
	const most = 8
	s := start(t, func(o *httpapi.Options) { o.MaxRequests, o.ConsoleKey = most, []byte(jwtSecret) })
	s.provision("other", account.Settings{})
	otherJWT := s.mint("other", "")
	ownBrowser, otherBrowser := s.browser().signIn(s.jwt), s.browser().signIn(otherJWT)
	const perAccount = most * 3 / 4
	begin := func() (conn net.Conn, answered string) {
		conn = s.dial()
		sendText(conn, "PATCH "+leads+"/"+ulid.Make().String()+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.jwt+
			"\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
		answered, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		return conn, answered
	}
	conns := make([]net.Conn, perAccount)
	var answered string
	for i := range conns {
		conns[i], answered = begin()
		require.Equal(t, "HTTP/1.1 100 Continue\r\n", answered, "the body is being read")
	}
	_, answered = begin()
	require.Equal(t, "HTTP/1.1 503 Service Unavailable\r\n", answered)
	require.Equal(t, http.StatusServiceUnavailable, ownBrowser.get("/console/leads").status)
	require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: leads, credential: otherJWT}).status)
	require.Equal(t, http.StatusOK, otherBrowser.get("/console/leads").status)
	for _, conn := range conns {
		conn.Close()
	}
	require.Eventually(t, func() bool {
		return s.as(http.MethodGet, leads, "").status == http.StatusOK
	}, time.Minute, time.Millisecond)
	for range most {
		require.Equal(t, http.StatusOK, ownBrowser.get("/console/leads").status, "a finished page frees its slot")
	}
}

// TestFairness_WaitingRequests sends the maximum number of requests of an account that wait for a later position.
func TestFairness_WaitingRequests(t *testing.T) {
	t.Parallel()
	s := startAlone(t, func(o *httpapi.Options) { o.MaxRequests, o.OwnWriteTimeout = 8, 0 })
	s.provision("other", account.Settings{})
	s.stopLeads()
	behindLog := after(leads, s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated))
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	t.Cleanup(func() { cancel(); waiting.Wait() })
	for range 5 {
		waiting.Go(func() {
			for ctx.Err() == nil {
				request, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+behindLog, nil)
				request.Header.Set("Authorization", "Bearer "+s.jwt)
				if response, err := s.server.Client().Do(request); err == nil {
					response.Body.Close()
				}
			}
		})
	}
	require.Eventually(t, func() bool {
		r := s.request(call{method: http.MethodGet, path: leads + "?minPosition=1", credential: s.jwt})
		return r.status == http.StatusServiceUnavailable && r.header.Get("Retry-After") == "1"
	}, time.Minute, time.Millisecond)
	otherJWT := s.mint("other", "")
	require.Equal(t, http.StatusOK,
		s.send(call{method: http.MethodGet, path: leads + "?minPosition=1", credential: otherJWT}).status)
	require.Equal(t, http.StatusOK, s.as(http.MethodGet, leads, "").status, "a request without a wait is answered")
}

// TestFairness_RequestsForMissingIDs requests missing ids while the views are stopped. Each such request waits.
func TestFairness_RequestsForMissingIDs(t *testing.T) {
	t.Parallel()
	const most = 8
	s := startAlone(t, func(o *httpapi.Options) { o.MaxRequests = most })
	s.provision("other", account.Settings{})
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.Background())) })
	pgtest.Exec(t, tx, `LOCK TABLE views.lead IN EXCLUSIVE MODE`)
	// the view does not apply this account's lead
	s.provision("third", account.Settings{Features: []string{account.FeatureAPI}})
	r := s.send(call{
		method: http.MethodPost, path: leads, credential: s.mint("third", ""), body: `{"phone":"9876543210"}`,
	})
	require.Equal(t, http.StatusCreated, r.status, r.raw)

	ctx, cancel := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	t.Cleanup(func() { cancel(); requests.Wait() })
	for range most/2 + 1 {
		requests.Go(func() {
			for ctx.Err() == nil {
				request, _ := http.NewRequestWithContext(ctx, http.MethodGet,
					s.server.URL+leads+"/"+ulid.Make().String(), nil)
				request.Header.Set("Authorization", "Bearer "+s.jwt)
				if response, err := s.server.Client().Do(request); err == nil {
					response.Body.Close()
				}
			}
		})
	}
	require.Eventually(t, func() bool {
		return s.metric("leadlog_http_waiting") == strconv.Itoa(most/2)
	}, time.Minute, time.Millisecond)
	otherJWT := s.mint("other", "")
	require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: leads, credential: otherJWT}).status)
}
