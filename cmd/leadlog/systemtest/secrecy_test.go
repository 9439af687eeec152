package systemtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

// persons are personal data in the requests of TestSecrecy_NothingPersonalIsLogged.
var persons = []string{
	"Asha", "Kulkarni", "9812345678", "98123", "kulkarni.example", "203.0.113.77", "SpyBrowser", "Whitefield",
	"visitor-of-asha",
}

// rawClient sends requests with personal data and secrets in the path, the query, the headers and the body.
type rawClient struct {
	t    *testing.T
	base string
}

func (w rawClient) send(method, path, bearer, body string) (int, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.base+path, strings.NewReader(body))
	require.NoError(w.t, err)
	request.Header.Set("Authorization", "Bearer "+bearer)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Forwarded-For", "203.0.113.77")
	request.Header.Set("User-Agent", "SpyBrowser/1.0")
	request.Header.Set("Idempotency-Key", "asha@kulkarni.example-"+fmt.Sprint(time.Now().UnixNano()))
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return response.StatusCode, string(raw)
}

// The service runs at log level debug. The requests cover every operation and every failure that a test can cause.
func TestSecrecy_NothingPersonalIsLogged(t *testing.T) {
	t.Parallel()
	settings := serveSettings(t)
	settings["LEADLOG_LOG_LEVEL"] = "debug"
	settings["LEADLOG_TRUSTED_PROXIES"], settings["LEADLOG_WEBHOOK_RETRY_SCHEDULE"] = "127.0.0.1/32", "1s,1s"
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	w := rawClient{t, base}
	failing := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, "cannot take Asha Kulkarni", http.StatusTeapot)
	}))
	t.Cleanup(failing.Close)

	_, made := w.send("POST", "/api/v1/crm/tokens", jwt, `{"name":"of Asha","expiresInDays":30}`)
	token := regexp.MustCompile(`"plainToken":"([^"]+)"`).FindStringSubmatch(made)
	require.NotNil(t, token, made)
	_, hook := w.send("POST", "/webhooks/endpoints", jwt,
		`{"url":"`+failing.URL+`/in?key=hooksecret","description":"Asha's"}`)
	secret := regexp.MustCompile(`"secret":"([^"]+)"`).FindStringSubmatch(hook)
	require.NotNil(t, secret, hook)
	webhook := "/webhooks/endpoints/" + regexp.MustCompile(`"webhookId":"([^"]+)"`).FindStringSubmatch(hook)[1]
	asha := `{"name":"Asha Kulkarni","phone":"9812345678","email":"asha@kulkarni.example","area":"Whitefield",` +
		`"visitorId":"visitor-of-asha"%s}`
	status, captured := w.send("POST", "/api/v1/crm/leads", token[1], fmt.Sprintf(asha, ""))
	require.Equal(t, 201, status, captured)
	lead := "/api/v1/crm/leads/" + regexp.MustCompile(`"leadId":"([^"]+)"`).FindStringSubmatch(captured)[1]
	statuses := map[int]bool{}
	for _, r := range [][4]string{
		{"POST", "/api/v1/crm/leads", token[1], fmt.Sprintf(asha, "")},
		{"POST", "/api/v1/crm/leads", token[1], fmt.Sprintf(asha, `,"metadata":{"source":"website"}`)},
		{"POST", "/api/v1/crm/leads", token[1], fmt.Sprintf(asha, `,"opportunityValue":"Asha"`)},
		{"POST", "/api/v1/crm/leads", token[1], fmt.Sprintf(asha, `,"name":"Asha"`)},
		{"POST", "/api/v1/crm/leads", token[1], `{"name":"Asha`},
		{"POST", "/api/v1/crm/leads", token[1] + "x", fmt.Sprintf(asha, "")},
		{"POST", "/api/v1/crm/leads", "leadlog_Asha_Kulkarni", fmt.Sprintf(asha, "")},
		{"POST", "/api/v1/crm/leads", jwt[:len(jwt)-3] + "AAA", fmt.Sprintf(asha, "")},
		{"POST", "/api/v1/crm/leads?dryRun=true", jwt, fmt.Sprintf(asha, "")},
		{"POST", "/api/v1/crm/leads/batch", jwt, fmt.Sprintf(asha, "") + "\n{\"phone\":\"9812345678\n"},
		{
			"POST", "/api/v1/crm/visitors/visitor-of-asha/activity", token[1],
			`{"type":"page_view","url":"https://kulkarni.example/Asha"}`,
		},
		{"GET", "/api/v1/crm/leads?phone=9812345678&q=Asha&email=asha@kulkarni.example", jwt, ""},
		{"GET", "/api/v1/crm/leads/asha@kulkarni.example", jwt, ""},
		{"GET", "/api/v1/crm/Asha/Kulkarni?token=" + token[1], jwt, ""},
		{"ASHA", "/api/v1/crm/leads", jwt, ""},
		{"GET", "/api/v1/crm/leads?cursor=Asha&limit=Kulkarni", jwt, ""},
		{"PATCH", lead, jwt, `{"name":"Asha Kulkarni-Rao"}`},
		{"PATCH", lead, jwt, `{"phone":"9812345678"}`},
		{"GET", lead + "/events", jwt, ""}, {"GET", lead + "/sources", jwt, ""}, {"GET", lead + "/activity", jwt, ""},
		{"POST", lead + "/contacts/release", jwt, `{"phone":"9812345678"}`},
		{"POST", webhook + "/secret/rotate", jwt, ""}, {"POST", webhook + "/test", jwt, ""},
	} {
		status, _ := w.send(r[0], r[1], r[2], r[3])
		statuses[status] = true
	}
	for _, status := range []int{200, 202, 400, 401, 404, 409} {
		require.True(t, statuses[status], "no answer has status %d", status)
	}
	require.Eventually(t, func() bool {
		return strings.Contains(scrape(t, base), `leadlog_deliveries_total{state="failed"}`) &&
			!strings.Contains(scrape(t, base), `leadlog_deliveries_total{state="failed"} 0`)
	}, soon, 50*time.Millisecond)

	file := filepath.Join(t.TempDir(), "leads.ndjson")
	require.NoError(t,
		os.WriteFile(file,
			[]byte(fmt.Sprintf(asha, `,"metadata":{"source":"chatbot"}`)+"\n{\"phone\":\"Asha\"}\n"), 0o600))
	imported := launch(t, settings, "import", file, "--account", "acme")
	require.Equal(t, 1, imported.wait(t), "one row is invalid")

	pgtest.Disconnect(t, settings["LEADLOG_DATABASE_URL"])
	status, _ = w.send("POST", "/api/v1/crm/leads", token[1], fmt.Sprintf(asha, ""))
	require.Equal(t, 503, status)
	pgtest.Reconnect(t, settings["LEADLOG_DATABASE_URL"])
	require.Eventually(t, func() bool {
		status, _ := w.send("GET", "/readyz", "", "")
		return status == 200
	}, soon, 50*time.Millisecond)
	p.stop(t)

	log := p.err.String() + p.out.String() + imported.err.String()
	require.Greater(t, strings.Count(log, `"msg":"request"`), 25, "one line for each request")
	for _, line := range strings.Split(strings.TrimSpace(p.err.String()), "\n") {
		require.Regexp(t, `^\{.*\}$`, line, "every line is JSON")
	}
	// Times and ids may contain a short trace by chance.
	log = regexp.MustCompile(`"time":"[^"]*"|\b[0-9A-HJKMNP-TV-Z]{26}\b`).ReplaceAllString(log, "")
	key := settings["LEADLOG_CLAIM_KEY"]
	for _, secret := range append(
		[]string{
			token[1], token[1][len(token[1])-20:], secret[1], jwt, jwt[len(jwt)-20:], "hooksecret", key,
			settings["LEADLOG_JWT_SECRET"],
		}, persons...,
	) {
		for _, line := range strings.Split(log, "\n") {
			require.NotContains(t, strings.ToLower(line), strings.ToLower(secret))
		}
	}
}

// An endpoint sends personal data after its response, on a connection that is kept for the next delivery.
func TestSecrecy_UnsolicitedBytesAreNotLogged(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	closed := make(chan error, 1)
	talk := func(conn net.Conn) {
		defer conn.Close()
		from := bufio.NewReader(conn)
		request, err := http.ReadRequest(from)
		if err != nil {
			return // an unused connection
		}
		_, err = io.Copy(io.Discard, request.Body)
		if err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nthank you for Asha Kulkarni")
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, from) // until the service closes the connection
		}
		closed <- err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go talk(conn)
		}
	}()
	settings := serveSettings(t)
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"http://`+listener.Addr().String()+`"}`).is(t, 201)
	mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"name":"Asha Kulkarni","phone":"9876543210"}`).is(t, 201)
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.Fail(t, "the service has not closed the connection")
	}
	require.NotContains(t, p.err.String(), "Kulkarni")
}
