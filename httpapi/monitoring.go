package httpapi

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/singleflight"

	"github.com/leadlog/leadlog/httpapi/quota"
)

// metrics counts requests and measures their duration, by route pattern.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	limited  *prometheus.CounterVec // by the limit
	arrivals *prometheus.CounterVec // by the kind of intake and the outcome
}

// registerLoad exposes the process's load as metrics.
func registerLoad(registry *prometheus.Registry, l *load) {
	if registry == nil {
		return
	}
	for name, one := range map[string]struct {
		help string
		of   *budget
	}{
		"leadlog_http_requests_in_flight": {
			"Requests in flight that are limited, except those at intakes.", &l.requests,
		},
		"leadlog_http_body_bytes":           {"Bytes of the bodies of these requests.", &l.bodies},
		"leadlog_intake_requests_in_flight": {"Requests in flight at intakes.", &l.arrivals.requests.byAddress},
		"leadlog_intake_body_bytes": {
			"Bytes of the bodies of requests in flight at intakes.", &l.arrivals.bodies.byAddress,
		},
		"leadlog_http_batch_bytes":   {"Bytes reserved for the bodies of batches in flight.", &l.batches},
		"leadlog_http_waiting":       {"Requests that wait for a view to reach a position.", &l.waiting},
		"leadlog_console_live_pages": {"Live pages of the console.", &l.pages},
		"leadlog_http_exports":       {"Exports in flight.", &l.exports},
		"leadlog_http_streams":       {"Requests that read the events of a stream.", &l.streams},
		"leadlog_http_polls":         {"Requests that wait for events of the change feed.", &l.polls},
	} {
		registered(registry, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: one.help},
			func() float64 { return float64(one.of.inUse()) }))
	}
}

// exposed answers with the metrics. They are collected once for all concurrent requests, because the route is public,
// and collecting needs memory and queries the database.
func exposed(registry *prometheus.Registry) func(*exchange) (answer, error) {
	exposition := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	var made singleflight.Group // by coding
	return func(ex *exchange) (answer, error) {
		coding := "identity"
		if strings.Contains(ex.r.Header.Get("Accept-Encoding"), "gzip") {
			coding = "gzip"
		}
		shared, _, _ := made.Do(coding, func() (any, error) {
			shared := &sharedResponse{header: http.Header{}, status: http.StatusOK}
			exposition.ServeHTTP(shared, &http.Request{URL: &url.URL{}, Header: http.Header{"Accept-Encoding": {coding}}})
			return shared, nil
		})
		return answer{stream: func() error { return shared.(*sharedResponse).send(ex.w) }}, nil
	}
}

// sharedResponse is an answer that several get.
type sharedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *sharedResponse) Header() http.Header         { return k.header }
func (k *sharedResponse) WriteHeader(status int)      { k.status = status }
func (k *sharedResponse) Write(b []byte) (int, error) { return k.body.Write(b) }

func (k *sharedResponse) send(w http.ResponseWriter) error {
	maps.Copy(w.Header(), k.header)
	w.WriteHeader(k.status)
	_, _ = w.Write(k.body.Bytes()) // net/http handles a client that has disconnected
	return nil
}

// newMetrics registers the metrics, or reuses those that another handler registered.
func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leadlog_http_requests_total", Help: "Requests answered.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leadlog_http_request_duration_seconds", Help: "How long requests took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"method", "route", "status"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leadlog_rate_limited_total",
			Help: "Refusals by limit: an account's captures (batch lines too), activities, posts to an intake, other " +
				"writes, reads, appended bytes, bytes stored in a day and concurrent reads of streams, an address's " +
				"posts to an intake, or its credentials.",
		}, []string{"limit"}),
	}
	m.arrivals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "leadlog_arrivals_total",
		Help: "Posts to intakes by outcome: a state of arrivals, repeated, unproven, or a filled honeypot.",
	}, []string{"kind", "outcome"})
	for _, limit := range limits() {
		m.limited.WithLabelValues(limit) // exports it as 0 from the start
	}
	if registry != nil {
		m.requests = registered(registry, m.requests)
		m.duration = registered(registry, m.duration)
		m.limited = registered(registry, m.limited)
		m.arrivals = registered(registry, m.arrivals)
	}
	return m
}

// registerLender reports how often the limiter fell back to buckets of this process.
func registerLender(registry *prometheus.Registry, quotas *quota.Shared) {
	if registry != nil {
		registered[prometheus.Collector](registry, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "leadlog_rate_limit_lending_failures_total",
			Help: "Failures to lease quota from the database. After each, the process limits on its own for a second.",
		}, func() float64 { return float64(quotas.Failures()) }))
	}
}

func registered[C prometheus.Collector](registry *prometheus.Registry, collector C) C {
	var registered prometheus.AlreadyRegisteredError
	if err := registry.Register(collector); errors.As(err, &registered) {
		if same, ok := registered.ExistingCollector.(C); ok {
			return same
		}
	}
	return collector
}

func (m *metrics) observe(method, route string, status int, took time.Duration) {
	labels := []string{methodLabel(method), route, strconv.Itoa(status)}
	m.requests.WithLabelValues(labels...).Inc()
	m.duration.WithLabelValues(labels...).Observe(took.Seconds())
}

// methodLabel returns a known method, or one label for all others, so that callers cannot create labels.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// Component is a dependency of the service, as /readyz shows it. The route is public, so the detail must not contain
// addresses.
type Component struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Detail string `json:"detail,omitzero"`
	Alarm  bool   `json:"-"` // it is ready, but an operator must look at it: the console shows it
}

type healthStatus struct {
	Status string `json:"status"`
}

// health answers that the process is alive, whether or not it can reach its databases.
func (ex *exchange) health() (answer, error) { return found(healthStatus{"alive"}, nil) }

type readyStatus struct {
	Status     string      `json:"status"`
	Components []Component `json:"components"`
}

// showReadiness answers whether the dependencies of the service are available. One check answers all concurrent
// requests, because the route is public.
func (ex *exchange) showReadiness() (answer, error) {
	ready := readyStatus{Status: "ready"}
	if ex.Ready != nil {
		components, _, _ := ex.readiness.Do("", func() (any, error) { return ex.Ready(ex.ctx), nil })
		ready.Components = components.([]Component)
	}
	for _, component := range ready.Components {
		if !component.Ready {
			ready.Status = "not ready"
			ex.w.Header().Set("Retry-After", "2")
			return answer{
				status: http.StatusServiceUnavailable, body: envelope{Message: unavailable, Data: ready},
			}, nil
		}
	}
	return found(ready, nil)
}
