package httpapi

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts requests and measures how long they take, by route pattern.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// newMetrics registers the metrics, or takes over those that another handler registered.
func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leadlog_http_requests_total", Help: "Requests answered.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leadlog_http_request_duration_seconds", Help: "How long requests took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"method", "route", "status"}),
	}
	if registry != nil {
		m.requests = registered(registry, m.requests)
		m.duration = registered(registry, m.duration)
	}
	return m
}

func registered[C prometheus.Collector](registry *prometheus.Registry, collector C) C {
	var there prometheus.AlreadyRegisteredError
	if err := registry.Register(collector); errors.As(err, &there) {
		if same, ok := there.ExistingCollector.(C); ok {
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

// methodLabel bounds what callers can make us count and log.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}
