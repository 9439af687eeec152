package systemtest

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// traceCollector receives spans as OpenTelemetry's collector does.
type traceCollector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*spans.Span
	raw   strings.Builder // text of all requests
}

func collectTraces(t *testing.T) *traceCollector {
	t.Helper()
	c := &traceCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			body = unzipped
		}
		raw, err := io.ReadAll(body)
		var request collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(raw, &request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.WriteString(request.String())
		for _, resource := range request.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// of returns the spans of a trace by name.
func (c *traceCollector) of(trace string) map[string]*spans.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]*spans.Span{}
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			found[s.Name] = s
		}
	}
	return found
}

// text returns all requests so far.
func (c *traceCollector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

func TestTracing_RequestToDelivery(t *testing.T) {
	t.Parallel()
	traces := collectTraces(t)
	headers := make(chan http.Header, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		headers <- r.Header
	}))
	t.Cleanup(receiver.Close)
	settings := serveSettings(t)
	settings["OTEL_EXPORTER_OTLP_ENDPOINT"], settings["OTEL_BSP_SCHEDULE_DELAY"] = traces.URL, "20" // milliseconds
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	hook := receiver.URL + "/hook?key=verysecret"
	require.Equal(t, 201,
		mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+hook+`","events":["lead.created"]}`).status)

	const trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	request, err := http.NewRequestWithContext(t.Context(), "POST", base+"/api/v1/crm/leads",
		strings.NewReader(`{"name":"Asha Rao","email":"asha@example.com","phone":"9876543210"}`))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+jwt)
	request.Header.Set("Traceparent", "00-"+trace+"-"+caller+"-01")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 201, response.StatusCode)

	names := []string{
		"POST /api/v1/crm/leads", "append", "project lead", "project touch", "project fanout", "deliver lead.created",
	}
	var found map[string]*spans.Span
	require.Eventually(t, func() bool {
		found = traces.of(trace)
		for _, name := range names {
			if found[name] == nil {
				return false
			}
		}
		return true
	}, soon, 20*time.Millisecond, "%v", &found)
	root := found[names[0]]
	require.Equal(t, caller, hex.EncodeToString(root.ParentSpanId))
	for _, name := range names[1:] {
		require.Equal(t, root.SpanId, found[name].ParentSpanId, name)
		require.LessOrEqual(t, found[name].StartTimeUnixNano, found[name].EndTimeUnixNano, name)
	}
	require.Equal(t, "00-"+trace+"-"+hex.EncodeToString(found["deliver lead.created"].SpanId)+"-01",
		(<-headers).Get("Traceparent"))
	p.waitFor(t, p.err, `("traceId":"`+trace+`")`)
	for _, secret := range []string{"Asha", "asha@", "9876543210", jwt, "verysecret", "a secret of thirty-two bytes"} {
		require.NotContains(t, traces.text(), secret)
	}
}

func TestTracing_OffByDefault(t *testing.T) {
	t.Parallel()
	headers := make(chan http.Header, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		headers <- r.Header
	}))
	t.Cleanup(receiver.Close)
	settings := serveSettings(t)
	settings["OTEL_SERVICE_NAME"] = "leads"
	jwt := provision(t, settings)
	p, base := serve(t, settings)
	require.Equal(t, 201, mustCall(t, "POST", base+"/webhooks/endpoints", jwt, `{"url":"`+receiver.URL+`"}`).status)
	require.Equal(t, 201, mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, `{"phone":"9876543210"}`).status)
	require.Empty(t, (<-headers).Get("Traceparent"))
	require.NotContains(t, p.err.String(), "trace")
}
