package httpapi_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi"
)

const continues = "HTTP/1.1 100 Continue\r\n"

// expecting sends the headers of a post. The answer begins with continues once the body is read, or else is the final
// one.
func expecting(conn net.Conn, path, headers string) *bufio.Reader {
	sendText(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"+headers+"\r\n")
	return bufio.NewReader(conn)
}

// stall opens connections of one address that post to intakes in turn, and sends only a part of the announced bodies.
// It returns when each connection waits or is answered.
func (s *service) stall(connections, announced, sent int, address string, paths ...string) (end func()) {
	s.t.Helper()
	var answered atomic.Int32
	conns := make([]net.Conn, connections)
	for i := range conns {
		conn := s.dial()
		conns[i] = conn
		go func() {
			in := expecting(conn, paths[i%len(paths)],
				fmt.Sprintf("X-Forwarded-For: %s\r\nContent-Length: %d\r\n", address, announced))
			if line, _ := in.ReadString('\n'); line == continues {
				sendText(conn, strings.Repeat("x", sent))
				_, _ = in.Discard(len("\r\nHTTP"))
			}
			answered.Add(1)
		}()
	}
	number := func(name string) int {
		n, err := strconv.ParseFloat(s.metric(name), 64)
		require.NoError(s.t, err)
		return int(n)
	}
	const requests, bytes = "leadlog_intake_requests_in_flight", "leadlog_intake_body_bytes"
	require.Eventually(s.t, func() bool {
		waiting := number(requests)
		return waiting+int(answered.Load()) == connections && number(bytes) == waiting*sent
	}, time.Minute, 5*time.Millisecond)
	return func() {
		for _, conn := range conns {
			conn.Close()
		}
		require.Eventually(s.t, func() bool {
			return number(requests) == 0 && number(bytes) == 0
		}, time.Minute, 5*time.Millisecond)
	}
}

// Posts that never end once used up the bytes and slots of all accounts: 26 connections made every write of every
// account 503.
func TestLoad_SlowPostsToIntakes(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) {
		o.RateLimit, o.BodyBytes, o.MaxRequests = 0, 26<<20, 128
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	var jwts, forms []string
	for _, id := range []string{"one", "two", "three", "four", "five"} {
		s.provision(id, account.Settings{Features: []string{account.FeatureAPI}})
		jwt := s.mint(id, "")
		created := s.send(call{
			method: http.MethodPost, path: intakes, credential: jwt, body: `{"name":"Form","kind":"form"}`,
		}).is(http.StatusCreated)
		jwts, forms = append(jwts, jwt), append(forms, created.at("data", "url").(string))
	}
	const mib = 1 << 20
	for name, c := range map[string]struct {
		connections, announced, sent int
		attacked                     []string
	}{
		"bytes at two forms":                 {26, mib, mib - 1, forms[:2]},
		"bytes at one form":                  {13, mib, mib - 1, forms[:1]},
		"connections at one form":            {20, 100, 1, forms[:1]},
		"connections at forms of 4 accounts": {70, 100, 1, forms[:4]},
	} {
		end := s.stall(c.connections, c.announced, c.sent, "192.0.2.1", c.attacked...)
		for i := range forms {
			captured := s.send(call{
				method: http.MethodPost, path: leads, credential: jwts[i],
				body: `{"phone":"9876543210","metadata":{"source":"website"}}`,
			})
			require.Less(t, captured.status, 300, "%s: %s", name, captured.raw)
			posted := s.deliver(forms[i], "phone=9876543210", map[string]string{"X-Forwarded-For": "192.0.2.2"})
			require.Equal(t, http.StatusOK, posted.status, "%s: %s", name, posted.raw)
		}
		end()
	}
}

// Whatever the headers prove wrong is refused before the body arrives.
func TestArrive_RefusedBeforeBody(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, c := range map[string]struct {
		settings, header string
		status           int
	}{
		"bearer":       {bearerIntake, "Authorization: Bearer wrong\r\n", http.StatusUnauthorized},
		"no signature": {`{"name":"A","kind":"typeform"}`, "", http.StatusUnauthorized},
		"old signature": {
			`{"name":"A","kind":"standard_webhooks"}`,
			"webhook-id: a\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,x\r\n", http.StatusUnauthorized,
		},
		"another origin": {
			`{"name":"A","kind":"form","origins":["https://example.com"]}`, "Origin: https://example.net\r\n",
			http.StatusForbidden,
		},
		"unknown": {"", "", http.StatusNotFound},
	} {
		path := "/in/" + missingID
		if c.settings != "" {
			path, _ = s.createIntake(c.settings)
		}
		line, err := expecting(s.dial(), path, "Content-Length: 1000\r\n"+c.header).ReadString('\n')
		require.NoError(t, err, name)
		require.Contains(t, line, strconv.Itoa(c.status), name)
	}
}
