package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/client"
)

// sent is a request as a fake service got it.
type sent struct {
	*http.Request
	body string
	at   time.Duration // since the first
}

// fake answers requests in turn; the last answer counts for all others.
type fake struct {
	answers []func(*http.Request) (*http.Response, error)
	sent    []sent
	began   time.Time
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.began.IsZero() {
		f.began = time.Now()
	}
	body, _ := io.ReadAll(r.Body)
	f.sent = append(f.sent, sent{r, string(body), time.Since(f.began)})
	return f.answers[min(len(f.sent), len(f.answers))-1](r)
}

func (f *fake) client() *client.Client {
	return &client.Client{URL: "https://crm.example.com/base/", Credential: "secret", HTTP: &http.Client{Transport: f}}
}

func answer(status int, body string, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		a := &http.Response{
			StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}
		for i := 0; i < len(headers); i += 2 {
			a.Header.Set(headers[i], headers[i+1])
		}
		return a, nil
	}
}

func unreachable(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }

// hanging answers when the attempt ends.
func hanging(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

const (
	captured = `{"success":true,"merged":true,"data":{"leadId":"L1","opportunityValue":null},` +
		`"warnings":[{"field":"phone","code":"EXTENSION","message":"was cut"}]}`
	down = `{"success":false,"message":"Service unavailable"}`
)

func TestCapture_RepeatsTransientErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: []func(*http.Request) (*http.Response, error){
			unreachable,
			hanging,
			answer(503, down, "Retry-After", "2"),
			answer(429, `{"success":false,"message":"Rate limit exceeded"}`, "Retry-After", "7"),
			answer(502, "<html>"),
			answer(200, captured, "X-Log-Position", "12", "X-Event-Id", "E1", "Idempotent-Replayed", "true"),
		}}
		c := f.client()
		c.RetryFor = 10 * time.Minute
		got, err := c.Capture(t.Context(), "", client.Arrival{Phone: "1"})
		require.NoError(t, err)
		require.Equal(t, client.Captured{
			Lead: client.Lead{ID: "L1"}, Merged: true, Replayed: true, EventID: "E1", Position: 12,
			Warnings: []client.Warning{{Field: "phone", Code: "EXTENSION", Message: "was cut"}},
		}, got)
		require.Len(t, f.sent, 6)
		for _, s := range f.sent {
			require.Equal(t, "https://crm.example.com/base/api/v1/crm/leads", s.URL.String())
			require.Equal(t, "Bearer secret", s.Header.Get("Authorization"))
			require.Equal(t, f.sent[0].Header.Get("Idempotency-Key"), s.Header.Get("Idempotency-Key"))
			require.JSONEq(t, `{"phone":"1"}`, s.body)
		}
		require.NotEmpty(t, f.sent[0].Header.Get("Idempotency-Key"))
		require.GreaterOrEqual(t, f.sent[3].at-f.sent[2].at, 2*time.Second, "Retry-After")
		require.GreaterOrEqual(t, f.sent[4].at-f.sent[3].at, 7*time.Second, "Retry-After")
	})
}

func TestCapture_FinalErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers func(*http.Request) (*http.Response, error)
		want    client.Error
		text    string
	}{
		"invalid": {
			answer(400,
				`{"success":false,"message":"Validation failed","errors":[{"field":"phone","message":"is `+
					`short"},{"field":"email","message":"is long"}],"arrivalId":"A1"}`, "X-Request-Id", "R1"),
			client.Error{
				Status: 400, Message: "Validation failed", ArrivalID: "A1", RequestID: "R1",
				Fields: []client.FieldError{{Field: "phone", Message: "is short"}, {
					Field: "email", Message: "is long",
				}},
			},
			"leadlog: 400 Validation failed: phone is short; email is long",
		},
		"conflict": {
			answer(409, `{"success":false,"message":"Known","code":"DUPLICATE_LEAD_SOURCE"}`),
			client.Error{Status: 409, Message: "Known", Code: "DUPLICATE_LEAD_SOURCE"}, "leadlog: 409 Known",
		},
		"another server": {
			answer(404, "<html>"), client.Error{Status: 404, Message: "Not Found"}, "leadlog: 404 Not Found",
		},
		"redirect": {
			answer(301, "", "Location", "https://www.example.com/"),
			client.Error{Status: 301, Message: "Moved Permanently: redirected to https://www.example.com/"},
			"leadlog: 301 Moved Permanently: redirected to https://www.example.com/",
		},
		"longer than RetryFor": {
			answer(429, `{"success":false,"message":"Stored","code":"STORAGE_LIMIT"}`, "Retry-After", "7200"),
			client.Error{Status: 429, Message: "Stored", Code: "STORAGE_LIMIT", RetryAfter: 2 * time.Hour},
			"leadlog: 429 Stored",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{answers: []func(*http.Request) (*http.Response, error){c.answers}}
			_, err := f.client().Capture(t.Context(), "k", client.Arrival{})
			got, is := errors.AsType[*client.Error](err)
			require.True(t, is, err)
			require.Equal(t, c.want, *got)
			require.EqualError(t, err, c.text)
			require.Len(t, f.sent, 1)
		})
	}
}

func TestCapture_EndsRepeating(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: []func(*http.Request) (*http.Response, error){answer(503, down)}}
		began := time.Now()
		_, err := f.client().Capture(t.Context(), "k", client.Arrival{})
		require.EqualError(t, err, "leadlog: 503 Service unavailable")
		require.LessOrEqual(t, time.Since(began), time.Minute)
		require.Greater(t, len(f.sent), 5)

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = f.client().Capture(ctx, "k", client.Arrival{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "503 Service unavailable")

		f.sent = nil
		never := f.client()
		never.RetryFor = -1
		_, err = never.Capture(t.Context(), "k", client.Arrival{})
		require.Error(t, err)
		require.Len(t, f.sent, 1)
	})
}

func TestCall_RepeatsOnlyWhatIsSafe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		first  func(*http.Request) (*http.Response, error)
		sends  int
	}{
		"read, unavailable":     {"GET", answer(503, down), 2},
		"write, unavailable":    {"POST", answer(503, down), 1},
		"write, unreachable":    {"POST", unreachable, 1},
		"write, limit exceeded": {"POST", answer(429, down), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answers: []func(*http.Request) (*http.Response, error){c.first, answer(200, `{"data":7}`)}}
				var data int
				err := f.client().Call(t.Context(), c.method, "/path", nil, &data)
				require.Len(t, f.sent, c.sends)
				require.Equal(t, c.sends == 2, err == nil)
				require.Equal(t, c.sends == 2, data == 7)
			})
		})
	}
}

func TestClient_RejectsAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"crm.example.com", "127.0.0.1:8080", "ftp://crm.example.com", ""} {
		_, err := (&client.Client{URL: address}).Capture(t.Context(), "", client.Arrival{})
		require.ErrorContains(t, err, "the URL of the service", address)
	}
}

// lines answers the lines of a batch by number: a status, or 0 for none.
func lines(statuses map[int]int) func(*http.Request) (*http.Response, error) {
	var body strings.Builder
	for n := range 10 {
		if status := statuses[n]; status != 0 {
			fmt.Fprintf(&body,
				`{"line":%d,"status":%d,"success":%t,"data":{"leadId":"L%d"},"message":"M","retryAfter":%d}`+"\n",
				n, status, status < 300, n, map[int]int{429: 3}[status])
		}
	}
	return answer(200, body.String())
}

func TestCaptureBatch_RepeatsLinesInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: []func(*http.Request) (*http.Response, error){
			lines(map[int]int{1: 201, 2: 429, 3: 400}), // the connection was lost before the answer to line 4
			lines(map[int]int{2: 503, 4: 200}),
			lines(map[int]int{2: 201}),
		}}
		outcomes, err := f.client().CaptureBatch(t.Context(), "batch",
			[]client.Arrival{{Phone: "1"}, {Phone: "2"}, {Phone: "3"}, {Phone: "4"}})
		require.NoError(t, err)
		require.Len(t, f.sent, 3)
		require.Equal(t, []string{
			"{\"phone\":\"1\"}\n{\"phone\":\"2\"}\n{\"phone\":\"3\"}\n{\"phone\":\"4\"}\n",
			"\n{\"phone\":\"2\"}\n\n{\"phone\":\"4\"}\n",
			"\n{\"phone\":\"2\"}\n\n\n",
		}, []string{f.sent[0].body, f.sent[1].body, f.sent[2].body})
		for _, s := range f.sent {
			require.Equal(t, "batch", s.Header.Get("Idempotency-Key"))
			require.Equal(t, "application/x-ndjson", s.Header.Get("Content-Type"))
		}
		require.GreaterOrEqual(t, f.sent[1].at, 3*time.Second, "retryAfter of a line")
		require.Equal(t, []string{"L1", "L2", "", "L4"}, []string{
			outcomes[0].Lead.ID, outcomes[1].Lead.ID, outcomes[2].Lead.ID, outcomes[3].Lead.ID,
		})
		require.NoError(t, outcomes[1].Err)
		require.Equal(t, &client.Error{Status: 400, Message: "M"}, outcomes[2].Err)
	})
}

func TestCaptureBatch_ReportsLinesWithoutAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: []func(*http.Request) (*http.Response, error){lines(map[int]int{1: 201}), unreachable}}
		outcomes, err := f.client().CaptureBatch(t.Context(), "", []client.Arrival{{Phone: "1"}, {Phone: "2"}})
		require.ErrorContains(t, err, "connection refused")
		require.NoError(t, outcomes[0].Err)
		require.Equal(t, err, outcomes[1].Err)
	})
	c := (&fake{}).client()
	outcomes, err := c.CaptureBatch(t.Context(), "", nil)
	require.NoError(t, err)
	require.Empty(t, outcomes)
	_, err = c.CaptureBatch(t.Context(), "", make([]client.Arrival, client.MaxBatch+1))
	require.ErrorContains(t, err, "at most 10000 arrivals")
}

func TestEvents_ContinuesAfterCursor(t *testing.T) {
	t.Parallel()
	f := &fake{answers: []func(*http.Request) (*http.Response, error){
		answer(200, `{"data":[{"id":"E1","type":"lead.created","data":{"a":1}}],"nextCursor":"c1"}`),
		answer(200, `{"data":[],"nextCursor":"c1"}`), // the wait ended
		answer(200, `{"data":[],"nextCursor":"c2"}`), // only events of other types
		answer(410, `{"success":false,"message":"M","code":"CURSOR_OF_ANOTHER_LOG"}`),
	}}
	var pages []client.Page
	var last error
	for page, err := range f.client().Events(t.Context(), "", "lead.*", "token.created") {
		if last = err; err == nil {
			pages = append(pages, page)
		}
	}
	require.Equal(t, []client.Page{
		{Events: []client.Event{{ID: "E1", Type: "lead.created", Data: json.RawMessage(`{"a":1}`)}}, Next: "c1"},
		{Events: []client.Event{}, Next: "c2"},
	}, pages)
	require.ErrorContains(t, last, "410")
	var after []string
	for _, s := range f.sent {
		after = append(after, s.URL.Query().Get("after"))
		require.Equal(t, "lead.*,token.created", s.URL.Query().Get("types"))
	}
	require.Equal(t, []string{"", "c1", "c1", "c2"}, after)
}

func TestReadWebhook_Signature(t *testing.T) {
	t.Parallel()
	const secret, other = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", "whsec_AAAAMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
	signer, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	replaced, err := standardwebhooks.NewWebhook(other)
	require.NoError(t, err)
	body := `{"type":"lead.created","id":"E1","sequence":3,"data":{"leadId":"L1"},"changes":[{"field":"name",` +
		`"old":null,"new":"Asha"}]}`
	now := time.Now()
	sign := func(by *standardwebhooks.Webhook, at time.Time) string {
		signature, err := by.Sign("msg", at, []byte(body))
		require.NoError(t, err)
		return signature
	}
	for name, c := range map[string]struct {
		signatures string
		at         time.Time
		body       string
		valid      bool
	}{
		"signed":          {sign(signer, now), now, body, true},
		"during rotation": {sign(replaced, now) + " " + sign(signer, now), now, body, true},
		"another secret":  {sign(replaced, now), now, body, false},
		"changed body":    {sign(signer, now), now, body + " ", false},
		"another time":    {sign(signer, now), now.Add(time.Minute), body, false},
		"old":             {sign(signer, now.Add(-6*time.Minute)), now.Add(-6 * time.Minute), body, false},
		"from the future": {sign(signer, now.Add(6*time.Minute)), now.Add(6 * time.Minute), body, false},
		"unknown version": {strings.Replace(sign(signer, now), "v1,", "v2,", 1), now, body, false},
		"not base64":      {"v1,!", now, body, false},
		"none":            {"", now, body, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequest(http.MethodPost, "/", bytes.NewReader([]byte(c.body)))
			require.NoError(t, err)
			r.Header.Set("webhook-id", "msg")
			r.Header.Set("webhook-timestamp", strconv.FormatInt(c.at.Unix(), 10))
			r.Header.Set("webhook-signature", c.signatures)
			w, err := client.ReadWebhook(r, secret)
			if !c.valid {
				require.ErrorIs(t, err, client.ErrSignature)
				return
			}
			require.NoError(t, err)
			require.Equal(t, &client.Webhook{
				DeliveryID: "msg", ID: "E1", Type: "lead.created", Sequence: 3,
				Data:    json.RawMessage(`{"leadId":"L1"}`),
				Changes: []client.Change{{Field: "name", Old: json.RawMessage("null"), New: json.RawMessage(`"Asha"`)}},
			}, w)
		})
	}
	require.ErrorContains(t, client.Verify(http.Header{}, nil, "whsec_", now), "must be whsec_")
}
