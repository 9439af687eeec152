package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi"
)

// dial opens a connection to the service until the test ends.
func (s *service) dial() net.Conn {
	s.t.Helper()
	return dialed(s.t, s.server.Listener.Addr().String())
}

func dialed(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// sendText writes text unchanged, and ignores an error after the other side has closed the connection.
func sendText(conn net.Conn, text string) { _, _ = io.WriteString(conn, text) }

// exchangeText sends text unchanged on a new connection and reads the answer.
func (s *service) exchangeText(address, text string) reply {
	s.t.Helper()
	conn := dialed(s.t, address)
	_, err := io.WriteString(conn, text)
	require.NoError(s.t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(s.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	r := reply{t: s.t, asked: call{body: text}, status: response.StatusCode, header: response.Header, raw: string(raw)}
	require.NoError(s.t, json.Unmarshal(raw, &r.body), r.raw)
	return r
}

// answersOf reads a connection until its end, and returns the statuses of complete answers.
func answersOf(t *testing.T, conn net.Conn) (statuses []int) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	in := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection is not closed")
			return statuses
		}
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		response.Body.Close()
		statuses = append(statuses, response.StatusCode)
	}
}

// TestServer_RejectsRequestSmuggling sends requests whose end proxies and servers have parsed differently. A hidden
// request follows each of them, and must not be answered.
func TestServer_RejectsRequestSmuggling(t *testing.T) {
	t.Parallel()
	s := start(t)
	const hidden = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, c := range map[string]struct {
		headers, body string
		want          []int
	}{
		"a length and chunks": {
			"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + hidden, []int{400},
		},
		"chunks and a length": {
			"Transfer-Encoding: chunked\r\nContent-Length: 100\r\n", "0\r\n\r\n" + hidden, []int{400},
		},
		"chunks alone":            {"Transfer-Encoding: chunked\r\n", "0\r\n\r\n" + hidden, []int{400}},
		"two lengths":             {"Content-Length: 2\r\nContent-Length: 3\r\n", "{}" + hidden, []int{400}},
		"two lengths in one":      {"Content-Length: 2, 3\r\n", "{}" + hidden, []int{400}},
		"a length with a sign":    {"Content-Length: +2\r\n", "{}" + hidden, []int{400}},
		"a negative length":       {"Content-Length: -2\r\n", "{}" + hidden, []int{400}},
		"a length in hex":         {"Content-Length: 0x2\r\n", "{}" + hidden, []int{400}},
		"a length that overflows": {"Content-Length: 99999999999999999999\r\n", "{}" + hidden, []int{400}},
		"chunks and gzip":         {"Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n" + hidden, []int{501}},
		"chunks twice": {
			"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + hidden, []int{501},
		},
		"chunks, then identity": {
			"Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n" + hidden, []int{501},
		},
		"an unknown coding":               {"Transfer-Encoding: xchunked\r\n", "0\r\n\r\n" + hidden, []int{501}},
		"a space before the colon":        {"Transfer-Encoding : chunked\r\n", "0\r\n\r\n" + hidden, []int{400}},
		"a control character in a header": {"X: a\x01b\r\nContent-Length: 2\r\n", "{}" + hidden, []int{400}},
		"NUL in a header":                 {"X: a\x00b\r\nContent-Length: 2\r\n", "{}" + hidden, []int{400}},
		"a chunk whose length overflows": {
			"Transfer-Encoding: chunked\r\n", "ffffffffffffffff1\r\n{}\r\n0\r\n\r\n" + hidden, []int{400},
		},
		"a chunk longer than its length": {
			"Transfer-Encoding: chunked\r\n", "2\r\n{}{}\r\n0\r\n\r\n" + hidden, []int{400},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := s.dial()
			sendText(conn,
				"POST "+leads+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.jwt+"\r\nContent-Type: "+
					"application/json\r\n"+c.headers+"\r\n"+c.body)
			require.Equal(t, c.want, answersOf(t, conn))
		})
	}
	require.Empty(t, s.as(http.MethodGet, leads, "").at("data"))
}

// TestServer_BoundsHeaders opens connections with incomplete headers.
func TestServer_BoundsHeaders(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := s.serveChanged(func(server *http.Server) { server.ReadHeaderTimeout = 300 * time.Millisecond })
	slow := make([]net.Conn, 50)
	for i := range slow {
		slow[i] = dialed(t, address)
		sendText(slow[i], "GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ")
	}
	for _, conn := range slow {
		require.Empty(t, answersOf(t, conn))
	}

	endless := s.dial()
	sendText(endless, "GET /healthz HTTP/1.1\r\nHost: x\r\n")
	for range 200 { // 200 KiB, which exceeds the server's limit
		sendText(endless, "X-A: "+strings.Repeat("a", 1017)+"\r\n")
	}
	require.LessOrEqual(t, len(answersOf(t, endless)), 1) // 431, unless the connection is reset first
	require.Equal(t, http.StatusOK, s.send(call{method: http.MethodGet, path: "/healthz"}).status)
}

// serveChanged serves the same handler on another port, by a server with changed settings.
func (s *service) serveChanged(change func(*http.Server)) (address string) {
	s.t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpapi.NewServer("", s.server.Config.Handler)
	change(server.Config)
	server.Start()
	s.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// The service does not decompress bodies, because a small body may be large after decompression.
func TestServer_RejectsContentEncoding(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{leads, batch, tokens, endpoints} {
		for _, coding := range []string{
			"gzip", "deflate", "br", "zstd", "x-gzip", "compress", "GZIP", "identity, gzip", "gzip, identity",
			"nonsense",
		} {
			r := s.request(call{
				method: http.MethodPost, path: path, credential: s.jwt, body: `{}`,
				header: map[string]string{"Content-Encoding": coding},
			})
			require.Equal(t, http.StatusUnsupportedMediaType, r.status, "%s %s: %s", path, coding, r.raw)
			require.Contains(t, r.at("message"), "Content-Encoding", "the message has the name of the header")
		}
	}
}

// TestServer_BoundsAnswerSize sends bodies that would cause large answers if every error were listed in full.
func TestServer_BoundsAnswerSize(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	admin := s.mint("admins", "admin")
	bodies := map[string]string{
		"nesting":          `{"a":` + strings.Repeat("[", 50_000),
		"objects in depth": strings.Repeat(`{"a":`, 20_000),
		"keys twice":       `{"phone":"9876543210"` + strings.Repeat(`,"a":1`, 10_000) + `}`,
		"bad keys":         `{"phone":"9876543210"` + numbered(`,"`+"\x7f"+`%d":1`, 5_000) + `}`,
		"wrong values":     `{"phone":"9876543210","customFields":{"x":1` + numbered(`,"`+"\x7f"+`%d":1`, 5_000) + `}}`,
		"a long number":    `{"phone":"9876543210","opportunityValue":` + strings.Repeat("9", 50_000) + `}`,
		"a large exponent": `{"phone":"9876543210","opportunityValue":"1e` + strings.Repeat("9", 50_000) + `"}`,
		"a long phone":     `{"phone":"` + strings.Repeat("9", 50_000) + `"}`,
		"a long email":     `{"email":"` + strings.Repeat("a.", 20_000) + `@example.com"}`,
		"a long URL":       `{"url":"https://` + strings.Repeat("a.", 20_000) + `example.com"}`,
		"a long list": `{"url":"https://example.com","events":["x"` + strings.Repeat(`,"x"`, 10_000) +
			`],"stages":["x"` + strings.Repeat(`,"x"`, 100) + `]}`,
	}
	for name, body := range bodies {
		for _, c := range []call{
			{method: http.MethodPost, path: leads}, {method: http.MethodPost, path: endpoints},
			{method: http.MethodPost, path: tokens},
			{
				method: http.MethodPatch, path: leads + "/" + missingID,
			}, {method: http.MethodPost, path: visitors + "v/activity"},
			{method: http.MethodPut, path: accounts + s.id("any"), credential: admin},
		} {
			if c.body = body; c.credential == "" {
				c.credential = s.jwt
			}
			r := s.send(c)
			require.Contains(t, []int{400, 404}, r.status, "%s %s %s: %.200s", name, c.method, c.path, r.raw)
			require.Less(t, len(r.raw), 32<<10, "%s %s %s", name, c.method, c.path)
		}
	}
}

func numbered(format string, n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, format, i)
	}
	return text.String()
}

// TestServer_HostilePathIDs puts an invalid id into each id parameter of each path.
func TestServer_HostilePathIDs(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	hostile := []string{
		"%00", "a%00b", "%FF%FE", "%2e%2e%2fx", "%2F", "a%2Fb", strings.Repeat("a", 64<<10),
		strings.Repeat("%00", 20<<10), "%F0%9F%92%A9", "%25", "'%3B--", "%E2%80%AE", "a%0d%0aX-Evil:%201", "x", "%20",
		"..%2f", strings.ToLower(ulid.Make().String()),
	}
	for _, o := range operations() {
		if !strings.Contains(o.path, "{") {
			continue
		}
		parameters := pathNames.FindAllString(o.path, -1)
		for i := range len(hostile) * len(parameters) {
			id, place := hostile[i/len(parameters)], parameters[i%len(parameters)]
			path := pathNames.ReplaceAllString(strings.Replace(o.path, place, id, 1), missingID)
			r := s.send(call{method: o.method, path: path, credential: s.jwt, body: bodyFor(o)})
			require.Contains(t, []int{200, 202, 400, 403, 404}, r.status, "%s %.100s: %.200s", o.method, path, r.raw)
			if r.status < http.StatusBadRequest {
				require.Contains(t, o.path, "{visitorId}", "a visitor's id may be any text")
			}
			require.NotEqual(t, "Not found", r.at("message"), "the route exists: %.80s", path)
			require.Less(t, len(r.raw), 4<<10)
			require.Empty(t, r.header.Get("X-Evil"))
		}
	}
}

func bodyFor(o operation) string {
	if o.RequestBody == nil {
		return ""
	}
	return `{"type":"click"}`
}

// net/http treats a half-closed connection as closed and cancels the request's context. The answer was once not written
// then, and the client received an empty 200, which means merged.
func TestServer_HalfClosedConnection(t *testing.T) {
	t.Parallel()
	s := start(t)
	sendHalfClosed := func(method, path, body string, length int) (status int, answer string) {
		t.Helper()
		conn := s.dial()
		_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: leadlog\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, s.jwt, length, body)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer response.Body.Close()
		read, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(read)
	}
	for i := range 50 {
		body := fmt.Sprintf(`{"email":"p%d@example.com"}`, i)
		status, answer := sendHalfClosed("POST", "/api/v1/crm/leads", body, len(body))
		require.Equal(t, 201, status, answer)
		require.Contains(t, answer, fmt.Sprintf(`"email":"p%d@example.com"`, i))
	}
	status, answer := sendHalfClosed("GET", "/api/v1/crm/leads", "", 0)
	require.Equal(t, 200, status)
	require.Contains(t, answer, `"success":true`)
	status, answer = sendHalfClosed("POST", "/api/v1/crm/leads", `{"em`, 100)
	require.Equal(t, 400, status, "a truncated body is refused")
	require.Contains(t, answer, `"success":false`)
}
