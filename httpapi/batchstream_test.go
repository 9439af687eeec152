package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi"
)

// stream sends a batch of a length that is not told.
func (s *service) stream(body io.Reader) reply {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.server.URL+batch, io.NopCloser(body))
	require.NoError(s.t, err)
	request.Header.Set("Authorization", "Bearer "+s.jwt)
	response, err := s.server.Client().Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return reply{t: s.t, status: response.StatusCode, header: response.Header, raw: string(raw)}
}

// wire is a connection on which a batch is sent by hand.
type wire struct {
	t    *testing.T
	conn *net.TCPConn
	body io.WriteCloser
}

func (s *service) wire(credential string) *wire {
	s.t.Helper()
	conn := s.dial()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: leadlog\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n", batch, credential)
	require.NoError(s.t, err)
	return &wire{t: s.t, conn: conn.(*net.TCPConn), body: httputil.NewChunkedWriter(conn)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	_, err := io.WriteString(w.body, text)
	require.NoError(w.t, err)
}

func (w *wire) end() {
	w.t.Helper()
	require.NoError(w.t, w.body.Close())
	_, err := io.WriteString(w.conn, "\r\n")
	require.NoError(w.t, err)
}

func (w *wire) answers() *bufio.Reader {
	w.t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(w.conn), nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { response.Body.Close() })
	require.Equal(w.t, http.StatusOK, response.StatusCode)
	return bufio.NewReader(response.Body)
}

func TestBatchStream_AnswersBeforeNextLine(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.wire(s.jwt)
	w.send("{\"email\":\"p0@example.com\"}\n")
	answers := w.answers()
	for i := range 20 {
		line, err := answers.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, fmt.Sprintf(`{"line":%d,"status":201,`, i+1))
		require.Contains(t, line, fmt.Sprintf(`"email":"p%d@example.com"`, i))
		w.send(fmt.Sprintf("{\"email\":\"p%d@example.com\"}\n", i+1))
	}
	w.end()
	rest, err := io.ReadAll(answers)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(rest), "\n"))
}

// TestBatchStream_ClientReadsLast: the answers are larger than all buffers on the way together,
// so whoever waited for them to be read before reading on would wait for ever.
func TestBatchStream_ClientReadsLast(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit = 0 })
	value := strings.Repeat("x", 1900)
	var fields strings.Builder
	for i := range 40 {
		fmt.Fprintf(&fields, `,"field%d":%q`, i, value)
	}
	w := s.wire(s.jwt)
	require.NoError(t, w.conn.SetReadBuffer(64<<10))
	w.send(`{"phone":"9876543210","metadata":{"source":"website"}` + fields.String() + "}\n")
	repeat := `{"phone":"9876543210","metadata":{"source":"website"}}` + strings.Repeat(" ", 10_000) + "\n"
	const repeats = 300
	for range repeats {
		w.send(repeat)
	}
	w.end()
	answers, err := io.ReadAll(w.answers())
	require.NoError(t, err)
	require.Greater(t, len(answers), 20<<20)
	require.Equal(t, repeats+1, strings.Count(string(answers), `,"success":true,`))
}

// TestBatchStream_ClientDisconnects cuts the connection in the middle of a line.
func TestBatchStream_ClientDisconnects(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit = 0 })
	for round := range 3 {
		w := s.wire(s.jwt)
		for i := range 150 {
			w.send(fmt.Sprintf("{\"email\":\"r%dp%d@example.com\"}\n", round, i))
		}
		w.send(fmt.Sprintf(`{"email":"r%dcut@example.com"}`, round)) // whole by chance, but its line is not
		acknowledged := map[string]bool{}
		answers := w.answers()
		for i := range 20 * round {
			line, err := answers.ReadString('\n')
			require.NoError(t, err)
			require.Contains(t, line, `"status":201,`)
			acknowledged[fmt.Sprintf("r%dp%d@example.com", round, i)] = true
		}
		require.NoError(t, w.conn.SetLinger(0))
		require.NoError(t, w.conn.Close())
		require.Eventually(t, func() bool { return strings.Count(s.log.String(), `"route":"/api/v1/crm/leads/batch"`) == round+1 },
			time.Minute, 5*time.Millisecond, "the batch is over")
		marker := s.capture(fmt.Sprintf(`{"email":"after%d@example.com"}`, round))
		for email := range acknowledged {
			found := s.as(http.MethodGet, after(leads+"?email="+email, marker), "")
			require.Len(t, found.at("data"), 1, email)
		}
		cut := s.as(http.MethodGet, after(fmt.Sprintf("%s?email=r%dcut@example.com", leads, round), marker), "")
		require.Empty(t, cut.at("data"), "a line that did not come to its end")
	}
}

func TestBatchStream_TruncatedBody(t *testing.T) {
	t.Parallel()
	s := start(t)
	w := s.wire(s.jwt)
	w.send("{\"email\":\"a@example.com\"}\n{\"email\":\"b@exa")
	require.NoError(t, w.conn.CloseWrite())
	answers, err := io.ReadAll(w.answers())
	require.NoError(t, err)
	lines := reply{status: 200, raw: string(answers), header: http.Header{"Content-Type": {"application/x-ndjson; charset=utf-8"}}}.lines(t)
	require.Equal(t, []int{201, 400}, statuses(lines))
}

func TestBatchStream_Expect100Continue(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, want := range map[string][]int{"{\"email\":\"a@example.com\"}\n": {201}, "\n": {}} {
		conn := s.dial()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: leadlog\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
			batch, s.jwt, len(body))
		require.NoError(t, err)
		answer := bufio.NewReader(conn)
		goOn, err := http.ReadResponse(answer, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusContinue, goOn.StatusCode)
		_, err = io.WriteString(conn, body)
		require.NoError(t, err)
		response, err := http.ReadResponse(answer, nil)
		require.NoError(t, err)
		raw, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.ElementsMatch(t, want, statuses(reply{status: response.StatusCode, header: response.Header, raw: string(raw)}.lines(t)))
	}
}

// A client that has nothing to say yet may send blank lines, and an export look for long and find nothing: for longer than one
// write may take.
func TestBatchStream_EndsAfterLongSilence(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	hasty := b.beside(func(server *http.Server) { server.WriteTimeout = time.Nanosecond })
	for _, c := range []call{
		{method: http.MethodPost, path: batch, body: "\n\n"},
		{method: http.MethodGet, path: "/api/v1/crm/audit/tokens", header: map[string]string{"Accept": "application/x-ndjson"}},
		{method: http.MethodGet, path: "/console/audit.ndjson"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+hasty+c.path, strings.NewReader(c.body))
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+b.jwt)
		request.Header.Set("Accept", c.header["Accept"])
		response, err := b.client.Do(request)
		require.NoError(t, err, c.path)
		defer response.Body.Close()
		raw, err := io.ReadAll(response.Body)
		require.NoError(t, err, c.path)
		require.Equal(t, http.StatusOK, response.StatusCode, c.path)
		require.Empty(t, raw, c.path)
		if c.path == batch {
			require.Contains(t, response.Trailer, "X-Log-Position")
		}
	}
}

func TestBatchStream_RevokedMidway(t *testing.T) {
	t.Parallel()
	s := start(t)
	other := serve(t, s.url)
	id, value := s.token()
	w := s.wire(value)
	var answers *bufio.Reader
	number := 0
	line := func(bad bool) string {
		t.Helper()
		number++
		text := fmt.Sprintf(`{"email":"p%d@example.com"}`, number)
		if bad {
			text = "no json"
		}
		w.send(text + "\n")
		if answers == nil {
			answers = w.answers()
		}
		answer, err := answers.ReadString('\n')
		require.NoError(t, err)
		return answer
	}
	settings := account.Settings{Features: []string{account.FeatureAPI}}
	require.Contains(t, line(false), `"status":201,`)
	other.provision(ownAccount, account.Settings{})
	require.Contains(t, line(false), `"status":403,`)
	require.Contains(t, line(true), `"status":403,`)
	other.provision(ownAccount, settings)
	require.Contains(t, line(false), `"status":201,`)
	other.as(http.MethodDelete, "/api/v1/crm/tokens/"+id, "").is(http.StatusOK)
	require.Contains(t, line(false), `"status":401,`)
	require.Contains(t, line(true), `"status":401,`)
	require.Contains(t, line(false), `"status":401,`, "nor by what a bad line has found out")
	w.end()
	_, err := answers.ReadString('\n')
	require.ErrorIs(t, err, io.EOF)
}
