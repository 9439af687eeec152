package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/httpapi"
)

const batch = leads + "/batch"

// lines are the answers to a batch.
func (r reply) lines(t *testing.T) []map[string]any {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.raw)
	require.Equal(t, "application/x-ndjson; charset=utf-8", r.header.Get("Content-Type"))
	var lines []map[string]any
	for text := range strings.Lines(r.raw) {
		require.Regexp(t, `^\{"line":\d+,"status":\d+,"success":`, text)
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &line))
		lines = append(lines, line)
	}
	return lines
}

// sendBatch sends lines with the JWT of the account.
func (s *service) sendBatch(body string, header ...string) reply {
	s.t.Helper()
	c := call{
		method: http.MethodPost, path: batch, credential: s.jwt, body: body,
		header: map[string]string{"Content-Type": "application/x-ndjson"},
	}
	for i := 0; i < len(header); i += 2 {
		c.header[header[i]] = header[i+1]
	}
	return s.send(c)
}

func column(lines []map[string]any, name string) []any {
	var values []any
	for _, line := range lines {
		values = append(values, line[name])
	}
	return values
}

func statuses(lines []map[string]any) []int {
	var all []int
	for _, status := range column(lines, "status") {
		all = append(all, int(status.(float64)))
	}
	return all
}

// dependentArrivals are bodies whose answers depend on earlier bodies.
var dependentArrivals = []string{
	`{"name":"Asha","phone":"98765 43210","metadata":{"source":"website","utm":"x"},"city":"Pune"}`,
	`{"phone":"+919876543210"}`,
	`{"phone":"+919876543210","email":"asha@example.com"}`,
	`{"email":"ASHA@example.com","opportunityValue":"₹1,20,000","metadata":{"source":"whatsapp"}}`,
	`{"email":"asha@example.com","name":"Asha Rao","metadata":{"source":"whatsapp"}}`,
	`{"email":"ravi@example.com"}`,
	`{"phone":"9876543210","email":"ravi@example.com","metadata":{"source":"webhook"}}`,
	`{"phone":"9876543210","email":"ravi@example.com","metadata":{"source":"chatbot"}}`,
	`{"phone":"12","email":"nope","leadTemperature":"boiling"}`,
	`{}`,
	`[]`,
	`{"phone":"9876543211"`,
	`{"phone":"9876543211","phone":"9876543212"}`,
	`{"phone":"9876543211","note":"a\u0000b"}`,
	"{\"phone\":\"9876543211\",\"note\":\"\xff\"}",
	`{"phone":"9876543213","status":"nowhere"}`,
	`{"phone":"9876543213","status":"WON","leadTemperature":"Hot"}` + " \t\r",
	`{"phone":"9876543214"` + manyFields(51) + `}`,
	`{"phone":"9876543214"` + manyFields(30) + `}`,
	`{"phone":"9876543214","metadata":{"source":"website"},` +
		`"customFields":{` + strings.TrimPrefix(strings.ReplaceAll(manyFields(30), "k", "other"), ",") + `}}`,
	`{"phone":"9876543215","note":"` + strings.Repeat("x", 2<<20) + `"}`,
	"\ufeff" + `{"phone":"9876543216"}`,
}

var (
	anyID   = regexp.MustCompile(`[0-9A-HJKMNP-TV-Z]{26}`)
	anyTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
)

// anonymizer returns a function that replaces ids by the order of their first occurrence, and removes times.
func anonymizer() func(string) string {
	seen := map[string]string{}
	return func(text string) string {
		text = anyTime.ReplaceAllString(text, "TIME")
		return anyID.ReplaceAllStringFunc(text, func(id string) string {
			if seen[id] == "" {
				seen[id] = fmt.Sprintf("ID%d", len(seen))
			}
			return seen[id]
		})
	}
}

// TestBatch_LineAnsweredAsCapture sends the same arrivals as single captures to one account, and as a batch to another.
func TestBatch_LineAnsweredAsCapture(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.provision("other", account.Settings{Features: []string{account.FeatureAPI}})
	var want []string
	name := anonymizer()
	for i, body := range dependentArrivals {
		single := s.capture(body)
		want = append(want, fmt.Sprintf(`{"line":%d,"status":%d,%s`, i+1, single.status, name(single.raw)[1:]))
	}
	s.jwt = s.mint("other", "")
	var got []string
	name = anonymizer()
	for line := range strings.Lines(s.sendBatch(strings.Join(dependentArrivals, "\n")).raw) {
		got = append(got, name(strings.TrimSuffix(line, "\n")))
	}
	require.Equal(t, want, got)
}

func TestBatch_LinesOfOnePersonInOrder(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	s.capture(`{"phone":"9876599999","email":"known@example.com"}`).is(http.StatusCreated)
	// Phone and email belong to the same person by an earlier line or by the log, which the line itself does not show.
	const people = 10
	var body strings.Builder
	for i := range people {
		phone, email := fmt.Sprintf("98765%05d", i), fmt.Sprintf("p%d@example.com", i)
		fmt.Fprintf(&body, `{"phone":%q,"email":%q,"name":"first"}`+"\n", phone, email)
		fmt.Fprintf(&body, `{"phone":%q,"name":"second","metadata":{"source":"website"}}`+"\n", phone)
		fmt.Fprintf(&body, `{"email":%q,"name":"third","metadata":{"source":"chatbot"}}`+"\n", email)
		fmt.Fprintf(&body, `{"phone":"9876599999","name":"by phone %d","metadata":{"source":"website"}}`+"\n", i)
		fmt.Fprintf(&body, `{"email":"known@example.com","name":"by email %d","metadata":{"source":"website"}}`+"\n", i)
	}
	check := func(lines []map[string]any, statuses []int, names []string) {
		t.Helper()
		require.Len(t, lines, 5*people)
		for i, line := range lines {
			require.InDelta(t, i+1, line["line"], 0)
			require.InDelta(t, statuses[i%5], line["status"], 0, "%v", line)
			if name := names[i%5]; name != "" {
				require.Equal(t, strings.ReplaceAll(name, "N", fmt.Sprint(i/5)), line["data"].(map[string]any)["name"])
			}
		}
	}
	names := []string{"first", "second", "third", "by phone N", "by email N"}
	check(s.sendBatch(body.String()).lines(t), []int{201, 200, 200, 200, 200}, names)
	// All people are known in the second batch.
	names[0] = ""
	again := s.sendBatch(body.String())
	check(again.lines(t), []int{409, 200, 200, 200, 200}, names)
	for i := range people {
		found := s.as(http.MethodGet, after(fmt.Sprintf("%s?phone=98765%05d", leads, i), again), "")
		require.Equal(t, "third", found.at("data").([]any)[0].(map[string]any)["name"])
	}
}

func TestBatch_BadLineDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := "{\"phone\":\"9876543210\"}\r\n" + // 1
		"\n \t\r\n" + // 2 and 3 are blank
		"no json\n" + // 4
		`{"phone":"9876543211","note":"` + strings.Repeat("x", 3<<20) + "\"}\n" + // 5
		`{"phone":"9876543212"}` // 6, without a line end
	lines := s.sendBatch(body).lines(t)
	require.Equal(t, []int{201, 400, 413, 201}, statuses(lines))
	require.Equal(t, []any{1.0, 4.0, 5.0, 6.0}, column(lines, "line"))
	require.Empty(t, s.sendBatch("").lines(t))
	require.Empty(t, s.sendBatch("\n\n").lines(t))
}

func TestBatch_PositionOfLastEvent(t *testing.T) {
	t.Parallel()
	s := start(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+batch,
		strings.NewReader("{\"phone\":\"9876543210\"}\n{}\n"))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+s.jwt)
	began := time.Now()
	response, err := s.server.Client().Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, `"capture";q=100;w=10`, response.Header.Get("RateLimit-Policy"))
	_, err = new(bytes.Buffer).ReadFrom(response.Body)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(s.last()), response.Trailer.Get("X-Log-Position"))
	var remaining int
	// t is 0 when the bucket is full
	_, err = fmt.Sscanf(response.Trailer.Get("RateLimit"), `"capture";r=%d;t=%d`, &remaining, new(int))
	require.NoError(t, err, response.Trailer.Get("RateLimit"))
	require.GreaterOrEqual(t, remaining, 98, "the trailer has the remaining requests after the last line")
	require.LessOrEqual(t, remaining, 98+int(10*time.Since(began).Seconds()), "the bucket refills at ten a second")
}

func TestBatch_LineCountsAsCapture(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit, o.RateBurst = 0.001, 3 })
	body := "{\"phone\":\"9876543210\"}\n{}\n{\"phone\":\"9876543211\"}\n{\"phone\":\"9876543212\"}\nno json\n"
	lines := s.sendBatch(body).lines(t)
	require.Equal(t, []int{201, 400, 201, 429, 429}, statuses(lines))
	require.Equal(t, "Rate limit exceeded", lines[3]["message"])
	require.GreaterOrEqual(t, lines[3]["retryAfter"], 1.0)
	s.capture(`{"phone":"9876543213"}`).is(http.StatusTooManyRequests)
}

func TestBatch_IdempotencyKey(t *testing.T) {
	t.Parallel()
	s := start(t)
	const body = `{"phone":"9876543210","metadata":{"source":"website"}}` + "\n" +
		`{"phone":"9876543210","name":"Asha","metadata":{"source":"website"}}` + "\n" +
		`{"phone":"12"}` + "\n" + `{"phone":"9876543210","metadata":{"source":"api"}}` + "\n" +
		`{"phone":"9876543210","metadata":{"source":"api"}}`
	first := s.sendBatch(body, "Idempotency-Key", "k").lines(t)
	require.Equal(t, []int{201, 200, 400, 200, 409}, statuses(first))
	head := s.last()
	for _, process := range []*service{s, s.another()} {
		again := process.sendBatch(body, "Idempotency-Key", "k").lines(t)
		for i := range first {
			want := first[i]["status"] != 400.0
			require.Equal(t, want, again[i]["replayed"] == true, again[i])
			delete(again[i], "replayed")
			require.Equal(t, first[i], again[i])
		}
	}
	require.Equal(t, head, s.last(), "a repeat appends nothing")
	changed := s.sendBatch(strings.Replace(body, "Asha", "Ravi", 1), "Idempotency-Key", "k").lines(t)
	require.Equal(t, []int{201, 409, 400, 200, 409}, statuses(changed))
	require.Equal(t, "IDEMPOTENCY_KEY_REUSED", changed[1]["code"])
}

func TestBatch_Authorization(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.provision("basic", account.Settings{})
	_, value := s.token()
	for name, c := range map[string]struct {
		credential, media, key string
		status                 int
	}{
		"no credential":              {"", "application/x-ndjson", "k", 401},
		"an unknown token":           {"leadlog_" + strings.Repeat("0", 64), "text/plain", "k", 401},
		"a plan without the feature": {s.mint("basic", ""), "text/plain", "k", 403},
		"a JWT of another scope":     {s.mint(ownAccount, "leads:read"), "text/plain", "k", 403},
		"another media type":         {value, "text/csv", "k", 415},
		"an invalid key":             {value, "application/jsonl", "a b", 400},
		"an API token":               {value, "application/json; charset=utf-8", "k", 200},
	} {
		r := s.send(call{method: http.MethodPost, path: batch, credential: c.credential,
			body: "{}", header: map[string]string{
				"Content-Type": c.media, "Idempotency-Key": c.key,
			}})
		require.Equal(t, c.status, r.status, "%s: %s", name, r.raw)
	}
}

func TestBatch_Limits(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	lines := s.sendBatch(strings.Repeat("{}\n", 10_001) + strings.Repeat("{\"phone\":\"9876543210\"}\n", 2_000)).
		lines(t)
	require.Len(t, lines, 10_001)
	require.InDelta(t, 400, lines[9_999]["status"], 0)
	require.InDelta(t, 413, lines[10_000]["status"], 0)
	require.Equal(t, "A batch must be at most 10,000 lines", lines[10_000]["message"])
	require.Empty(t, s.as(http.MethodGet, leads, "").at("data"), "lines after the limit are not read")

	padded := "{\"phone\":\"9876543210\"}" + strings.Repeat(" ", 1<<20-23) + "\n"
	full := strings.Repeat(padded, 32)
	require.Len(t, full, 32<<20)
	exactly := s.sendBatch(full).lines(t)
	require.Len(t, exactly, 32)
	require.InDelta(t, 409, exactly[31]["status"], 0)
	require.Equal(t, http.StatusRequestEntityTooLarge, s.sendBatch(full+"\n").status,
		"the Content-Length exceeds the limit")

	streamed := s.stream(strings.NewReader(full + "{\"phone\":\"9876543211\"}\n")).lines(t)
	require.Len(t, streamed, 33)
	require.Equal(t, "A batch must be at most 32 MiB", streamed[32]["message"])
	require.InDelta(t, 33, streamed[32]["line"], 0)
}

// stream sends a batch without a length.
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

// wire is a raw connection that sends a batch.
type wire struct {
	t    *testing.T
	conn *net.TCPConn
	body io.WriteCloser
}

func (s *service) wire(credential string) *wire {
	s.t.Helper()
	conn := s.dial()
	_, err := fmt.Fprintf(conn,
		"POST %s HTTP/1.1\r\nHost: leadlog\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n",
		batch, credential)
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

// TestBatchStream_ClientReadsLast: the answers exceed all buffers on the way,
// so a server that stopped reading until they are read would deadlock.
func TestBatchStream_ClientReadsLast(t *testing.T) {
	t.Parallel()
	s := unlimited(t)
	value := strings.Repeat("x", 1900)
	var fields strings.Builder
	for i := range 40 {
		fmt.Fprintf(&fields, `,"field%d":%q`, i, value)
	}
	w := s.wire(s.jwt)
	require.NoError(t, w.conn.SetReadBuffer(64<<10))
	w.send(`{"phone":"9876543210","metadata":{"source":"website"}` + fields.String() + "}\n")
	repeat := `{"phone":"9876543210","metadata":{"source":"website"}}` + strings.Repeat(" ", 10_000) + "\n"
	const repeats = 150
	for range repeats {
		w.send(repeat)
	}
	w.end()
	answers, err := io.ReadAll(w.answers())
	require.NoError(t, err)
	require.Greater(t, len(answers), 10<<20)
	require.Equal(t, repeats+1, strings.Count(string(answers), `,"success":true,`))
}

// TestBatchStream_ClientDisconnects cuts the connection in the middle of a line.
func TestBatchStream_ClientDisconnects(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *httpapi.Options) { o.RateLimit = 0 }) // with a log output of its own
	for round := range 3 {
		w := s.wire(s.jwt)
		for i := range 60 {
			w.send(fmt.Sprintf("{\"email\":\"r%dp%d@example.com\"}\n", round, i))
		}
		w.send(fmt.Sprintf(`{"email":"r%dcut@example.com"}`, round)) // a complete JSON value in an incomplete line
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
		require.Eventually(t, func() bool {
			return strings.Count(s.log.String(), `"route":"/api/v1/crm/leads/batch"`) == round+1
		},
			time.Minute, 5*time.Millisecond, "the batch has ended")
		marker := s.capture(fmt.Sprintf(`{"email":"after%d@example.com"}`, round))
		for email := range acknowledged {
			found := s.as(http.MethodGet, after(leads+"?email="+email, marker), "")
			require.Len(t, found.at("data"), 1, email)
		}
		truncated := s.as(http.MethodGet, after(fmt.Sprintf("%s?email=r%dcut@example.com", leads, round), marker), "")
		require.Empty(t, truncated.at("data"), "an incomplete line is not captured")
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
	lines := reply{
		status: 200, raw: string(answers), header: http.Header{"Content-Type": {"application/x-ndjson; charset=utf-8"}},
	}.lines(t)
	require.Equal(t, []int{201, 400}, statuses(lines))
}

func TestBatchStream_Expect100Continue(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, want := range map[string][]int{"{\"email\":\"a@example.com\"}\n": {201}, "\n": {}} {
		conn := s.dial()
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err := fmt.Fprintf(conn,
			"POST %s HTTP/1.1\r\nHost: leadlog\r\nAuthorization: Bearer %s\r\nExpect: "+
				"100-continue\r\nContent-Length: %d\r\n\r\n",
			batch, s.jwt, len(body))
		require.NoError(t, err)
		answer := bufio.NewReader(conn)
		interim, err := http.ReadResponse(answer, nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusContinue, interim.StatusCode)
		_, err = io.WriteString(conn, body)
		require.NoError(t, err)
		response, err := http.ReadResponse(answer, nil)
		require.NoError(t, err)
		raw, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.ElementsMatch(t, want,
			statuses(reply{status: response.StatusCode, header: response.Header, raw: string(raw)}.lines(t)))
	}
}

// A client may send blank lines, and an export may find no rows, for longer than the timeout of one write.
func TestBatchStream_EndsAfterLongSilence(t *testing.T) {
	t.Parallel()
	b := signedIn(t)
	address := b.serveChanged(func(server *http.Server) { server.WriteTimeout = time.Nanosecond })
	for _, c := range []call{
		{method: http.MethodPost, path: batch, body: "\n\n"},
		{
			method: http.MethodGet, path: "/api/v1/crm/audit/tokens",
			header: map[string]string{"Accept": "application/x-ndjson"},
		},
		{method: http.MethodGet, path: "/console/audit.ndjson"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+address+c.path,
			strings.NewReader(c.body))
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
	other := s.another()
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
	require.Contains(t, line(false), `"status":401,`, "the result of an invalid line does not admit later lines")
	w.end()
	_, err := answers.ReadString('\n')
	require.ErrorIs(t, err, io.EOF)
}
