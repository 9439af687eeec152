package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/httpapi"
)

// TestFairness_SlowAccount has an account begin as many batches, and as many large bodies, as it may, and send
// no more of them.
func TestFairness_SlowAccount(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit, o.BatchBytes, o.BodyBytes = 0, 16<<20, 8<<20 })
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	theirs := s.mint("other", "leads:write")

	begun := 0
	for refused := false; !refused; {
		w := s.wire(s.jwt)
		w.send(fmt.Sprintf(`{"email":"p%d@example.com"}`+"\n", begun))
		response, err := http.ReadResponse(bufio.NewReader(w.conn), nil)
		require.NoError(t, err)
		if refused = response.StatusCode == http.StatusServiceUnavailable; !refused {
			require.Equal(t, http.StatusOK, response.StatusCode)
			begun++
		}
	}
	require.Equal(t, 2, begun, "half of all, of 4 MiB each")
	r := s.send(call{method: http.MethodPost, path: batch, credential: theirs, body: `{"email":"q@example.com"}`})
	require.Equal(t, http.StatusOK, r.status, r.raw)

	for range 8 {
		say(s.dial(), fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			leads, s.jwt, 2<<20, strings.Repeat("x", 1<<20)))
	}
	large := `{"note":"` + strings.Repeat("x", 1<<20) + `"}`
	require.Eventually(t, func() bool { return s.capture(large).status == http.StatusServiceUnavailable }, time.Minute, 5*time.Millisecond)
	r = s.send(call{method: http.MethodPost, path: leads, credential: theirs, body: large})
	require.Equal(t, http.StatusBadRequest, r.status, "it is read, and has no phone: %s", r.raw)
}

// TestFairness_ManyRequests has an account begin as many requests as it may, and end none.
func TestFairness_ManyRequests(t *testing.T) {
	t.Parallel()
	const most = 8
	s := start(t, func(o *httpapi.Options) { o.MaxRequests, o.ConsoleKey = most, []byte(jwtSecret) })
	s.provision("other", account.Settings{})
	theirs := s.mint("other", "")
	ours, others := s.browser().signIn(s.jwt), s.browser().signIn(theirs)
	const share = most * 3 / 4
	begin := func() (conn net.Conn, answered string) {
		conn = s.dial()
		say(conn, "PATCH "+leads+"/"+ulid.Make().String()+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.jwt+
			"\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
		answered, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		return conn, answered
	}
	conns := make([]net.Conn, share)
	var answered string
	for i := range conns {
		conns[i], answered = begin()
		require.Equal(t, "HTTP/1.1 100 Continue\r\n", answered, "the body is being read")
	}
	_, answered = begin()
	require.Equal(t, "HTTP/1.1 503 Service Unavailable\r\n", answered)
	require.Equal(t, http.StatusServiceUnavailable, ours.get("/console/leads").status)
	require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: leads, credential: theirs}).status)
	require.Equal(t, http.StatusOK, others.get("/console/leads").status)
	for _, conn := range conns {
		conn.Close()
	}
	require.Eventually(t, func() bool { return s.as(http.MethodGet, leads, "").status == http.StatusOK }, time.Minute, time.Millisecond)
	for range most {
		require.Equal(t, http.StatusOK, ours.get("/console/leads").status, "a page that was shown takes no place")
	}
}

// TestFairness_WaitingRequests has an account ask for what is not on the log yet, as often as it may.
func TestFairness_WaitingRequests(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.MaxRequests = 8 })
	s.provision("other", account.Settings{})
	s.stopLeads()
	behind := after(leads, s.capture(`{"phone":"9876543210"}`).is(http.StatusCreated))
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	t.Cleanup(func() { cancel(); waiting.Wait() })
	for range 5 {
		waiting.Go(func() {
			for ctx.Err() == nil {
				request, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+behind, nil)
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
	theirs := s.mint("other", "")
	require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: leads + "?minPosition=1", credential: theirs}).status)
	require.Equal(t, http.StatusOK, s.as(http.MethodGet, leads, "").status, "who does not wait is answered")
}

// TestFairness_RequestsForMissingIDs has it do so while the views stand still, so that each answer waits.
func TestFairness_RequestsForMissingIDs(t *testing.T) {
	t.Parallel()
	const most = 8
	s := start(t, func(o *httpapi.Options) { o.MaxRequests = most })
	s.provision("other", account.Settings{})
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.Background())) })
	pgtest.Exec(t, tx, `LOCK TABLE views.lead IN EXCLUSIVE MODE`)
	s.provision("third", account.Settings{Features: []string{account.FeatureAPI}}) // whose lead the view does not come to show
	r := s.send(call{method: http.MethodPost, path: leads, credential: s.mint("third", ""), body: `{"phone":"9876543210"}`})
	require.Equal(t, http.StatusCreated, r.status, r.raw)

	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	t.Cleanup(func() { cancel(); asking.Wait() })
	for range most/2 + 1 {
		asking.Go(func() {
			for ctx.Err() == nil {
				request, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+leads+"/"+ulid.Make().String(), nil)
				request.Header.Set("Authorization", "Bearer "+s.jwt)
				if response, err := s.server.Client().Do(request); err == nil {
					response.Body.Close()
				}
			}
		})
	}
	require.Eventually(t, func() bool { return s.metric("leadlog_http_waiting") == strconv.Itoa(most/2) }, time.Minute, time.Millisecond)
	theirs := s.mint("other", "")
	require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: leads, credential: theirs}).status)
}
