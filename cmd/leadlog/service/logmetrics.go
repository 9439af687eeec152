package service

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
)

// logMetrics measure the appends of this process.
type logMetrics struct {
	appends *prometheus.HistogramVec
	batches prometheus.Histogram
	took    prometheus.Histogram
	events  prometheus.Counter
	store   *postgres.Store // nil: the log is elsewhere

	stored, conflict, unavailable, failed prometheus.Observer
}

// appendSeconds are buckets from the fastest flush of a disk to beyond the 5 s after which a store gives up.
var appendSeconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newLogMetrics() *logMetrics {
	m := &logMetrics{
		appends: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "leadlog_append_seconds",
			Help:    "How long appends took, by outcome: stored, conflict (somebody else was first, and it is decided again), unavailable or failed.",
			Buckets: appendSeconds,
		}, []string{"outcome"}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "leadlog_append_batch_appends", Help: "Appends that shared one round trip to PostgreSQL.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "leadlog_append_batch_seconds", Help: "How long such a round trip took, with its commit.", Buckets: appendSeconds,
		}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "leadlog_append_batch_events_total", Help: "Events that were sent to PostgreSQL, those of refused appends too.",
		}),
	}
	m.stored, m.conflict = m.appends.WithLabelValues("stored"), m.appends.WithLabelValues("conflict")
	m.unavailable, m.failed = m.appends.WithLabelValues("unavailable"), m.appends.WithLabelValues("failed")
	return m
}

// batch counts one round trip to PostgreSQL.
func (m *logMetrics) batch(b postgres.Batch) {
	m.batches.Observe(float64(b.Appends))
	m.took.Observe(b.Took.Seconds())
	m.events.Add(float64(b.Events))
}

func (m *logMetrics) outcome(err error) prometheus.Observer {
	switch {
	case err == nil:
		return m.stored
	case eventstore.Conflict(err) != nil:
		return m.conflict
	case errors.Is(err, eventstore.ErrUnavailable):
		return m.unavailable
	}
	return m.failed
}

func (m *logMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.appends, m.batches, m.took, m.events} {
		c.Describe(descs)
	}
}

func (m *logMetrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.appends, m.batches, m.took, m.events} {
		c.Collect(metrics)
	}
}

// measuredLog is a log whose appends are measured.
type measuredLog struct {
	EventLog
	metrics *logMetrics
}

func openMeasuredLog(ctx context.Context, address string, log *slog.Logger) (EventLog, *logMetrics, error) {
	metrics := newLogMetrics()
	store, err := openWatchedLog(ctx, address, log, metrics.batch)
	if err != nil {
		return nil, nil, err
	}
	metrics.store, _ = store.(*postgres.Store)
	return measuredLog{store, metrics}, metrics, nil
}

func (l measuredLog) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	began := time.Now()
	position, err := l.EventLog.Append(ctx, writes...)
	l.metrics.outcome(err).Observe(time.Since(began).Seconds())
	return position, err
}

// poolMetrics report, at each scrape, the connections to PostgreSQL and the waits for one.
type poolMetrics struct {
	views *pgxpool.Pool
	log   *postgres.Store // nil: the log is elsewhere
}

var (
	poolConnections = prometheus.NewDesc("leadlog_pool_connections",
		"Connections of this process to PostgreSQL, by pool (views, log) and state (in_use, idle).", []string{"pool", "state"}, nil)
	poolMost = prometheus.NewDesc("leadlog_pool_connections_max",
		"Most connections that a pool opens.", []string{"pool"}, nil)
	poolWaits = prometheus.NewDesc("leadlog_pool_waits_total",
		"How often somebody waited because every connection of a pool was in use.", []string{"pool"}, nil)
	poolWaited = prometheus.NewDesc("leadlog_pool_wait_seconds_total",
		"How long all waits for a connection took together.", []string{"pool"}, nil)
	appendsWaiting = prometheus.NewDesc("leadlog_append_queue",
		"Appends that wait in this process for their turn; from 4096 on they are refused.", nil, nil)
)

func (poolMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolConnections, poolMost, poolWaits, poolWaited, appendsWaiting} {
		descs <- d
	}
}

func (m poolMetrics) Collect(metrics chan<- prometheus.Metric) {
	reportPool(metrics, "views", m.views.Stat())
	if m.log != nil {
		reportPool(metrics, "log", m.log.Readers())
		metrics <- prometheus.MustNewConstMetric(appendsWaiting, prometheus.GaugeValue, float64(m.log.Waiting()))
	}
}

func reportPool(metrics chan<- prometheus.Metric, name string, s *pgxpool.Stat) {
	metrics <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(s.AcquiredConns()), name, "in_use")
	metrics <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue, float64(s.IdleConns()), name, "idle")
	metrics <- prometheus.MustNewConstMetric(poolMost, prometheus.GaugeValue, float64(s.MaxConns()), name)
	metrics <- prometheus.MustNewConstMetric(poolWaits, prometheus.CounterValue, float64(s.EmptyAcquireCount()), name)
	metrics <- prometheus.MustNewConstMetric(poolWaited, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds(), name)
}

// buildMetric returns a metric with the version and commit of this program as labels.
func buildMetric() prometheus.Collector {
	version, commit := Build()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leadlog_build_info", Help: "1, with the version and commit of this program.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "go": runtime.Version()},
	}, func() float64 { return 1 })
}
