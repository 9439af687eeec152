package service

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/worker"
	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/command/worker/fetch"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/transparency"
)

// viewMetrics reports, at each scrape, the position and the state of each view.
type viewMetrics []*projection.Runner

var (
	viewPosition = prometheus.NewDesc("leadlog_projection_position",
		"Position of the log that a view has reached, as last seen by this process.", []string{"projector"}, nil)
	viewLag = prometheus.NewDesc("leadlog_projection_lag_positions",
		"Positions between a view and the head of the log.", []string{"projector"}, nil)
	viewDelay = prometheus.NewDesc("leadlog_projection_lag_seconds",
		"Age of the oldest event that a view has not applied; 0 when it has applied all that concern it.",
		[]string{"projector"}, nil)
	viewFailures = prometheus.NewDesc("leadlog_projection_failures_total",
		"Failed attempts to bring a view forward.", []string{"projector"}, nil)
	viewState = prometheus.NewDesc("leadlog_projection_state",
		"1 for the state that a projector is in: running, standby, failed or stale.",
		[]string{"projector", "state"}, nil)
)

func (v viewMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- viewPosition
	descs <- viewLag
	descs <- viewDelay
	descs <- viewFailures
	descs <- viewState
}

// scrapeTimeout is how long a scrape waits for the head of the log. Without it the lag is left out.
const scrapeTimeout = 2 * time.Second

func (v viewMetrics) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	for _, runner := range v {
		report(ctx, runner, metrics)
	}
}

func report(ctx context.Context, runner *projection.Runner, metrics chan<- prometheus.Metric) {
	views, err := runner.Status(ctx)
	for _, view := range views {
		metrics <- prometheus.MustNewConstMetric(viewPosition, prometheus.GaugeValue, float64(view.Position), view.Name)
		metrics <- prometheus.MustNewConstMetric(viewFailures, prometheus.CounterValue,
			float64(view.Failures), view.Name)
		metrics <- prometheus.MustNewConstMetric(viewState, prometheus.GaugeValue, 1, view.Name, string(view.State))
		if err == nil {
			metrics <- prometheus.MustNewConstMetric(viewLag, prometheus.GaugeValue, float64(view.Lag), view.Name)
		}
		if delay, failed := runner.Delay(ctx, view); err == nil && failed == nil {
			metrics <- prometheus.MustNewConstMetric(viewDelay, prometheus.GaugeValue, delay.Seconds(), view.Name)
		}
	}
}

// useMetrics counts the samples of API tokens' uses, by outcome.
type useMetrics struct{ uses *command.Uses }

var usesSampled = prometheus.NewDesc("leadlog_token_uses_sampled_total",
	"Samples of API tokens' uses by this process, by outcome: recorded, or dropped because the log did not keep up.",
	[]string{"type", "outcome"}, nil)

func (useMetrics) Describe(descs chan<- *prometheus.Desc) { descs <- usesSampled }

func (m useMetrics) Collect(metrics chan<- prometheus.Metric) {
	m.uses.Counts(func(eventType string, recorded, dropped uint64) {
		metrics <- prometheus.MustNewConstMetric(usesSampled, prometheus.CounterValue,
			float64(recorded), eventType, "recorded")
		metrics <- prometheus.MustNewConstMetric(usesSampled, prometheus.CounterValue,
			float64(dropped), eventType, "dropped")
	})
}

// deliveryMetrics count deliveries of all endpoints together: a label per endpoint would grow with the number of
// customers.
type deliveryMetrics struct {
	courier  *courier.Courier
	attempts *prometheus.HistogramVec
	finished *prometheus.CounterVec
}

// attemptSeconds are buckets to the timeout of 15 s, and beyond for longer settings.
var attemptSeconds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60}

func newDeliveryMetrics() *deliveryMetrics {
	return &deliveryMetrics{
		attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "leadlog_delivery_attempt_seconds",
			Help:    "How long attempts of this process took, by their outcome: success or failure.",
			Buckets: attemptSeconds,
		}, []string{"outcome"}),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leadlog_deliveries_total",
			Help: "Deliveries that this process finished, by outcome: delivered, failed or cancelled.",
		}, []string{"state"}),
	}
}

var (
	deliveriesQueued = prometheus.NewDesc("leadlog_deliveries_queued",
		"Deliveries that wait for an attempt, due or not, of all processes, as of at most 10 seconds ago.", nil, nil)
	deliveriesInFlight = prometheus.NewDesc("leadlog_deliveries_in_flight",
		"Attempts that this process has under way.", nil, nil)
	deliveryOldestDue = prometheus.NewDesc("leadlog_delivery_oldest_due_seconds",
		"How long the longest waiting delivery has been due, of all processes, as of at most 10 seconds ago.", nil, nil)
	eventsDeferred = prometheus.NewDesc("leadlog_delivery_events_deferred",
		"Events that wait for the filters of webhook endpoints, because those of their accounts cost much, as of at "+
			"most 10 seconds ago.", nil, nil)
	oldestDeferred = prometheus.NewDesc("leadlog_delivery_oldest_deferred_seconds",
		"How long the longest waiting of these events has waited, as of at most 10 seconds ago.", nil, nil)
)

// watcher returns the callbacks by which a courier counts.
func (d *deliveryMetrics) watcher() courier.Watcher {
	for _, state := range []string{"delivered", "failed", "cancelled"} {
		d.finished.WithLabelValues(state) // exports it as 0 from the start
	}
	success, failure := d.attempts.WithLabelValues("success"), d.attempts.WithLabelValues("failure")
	return courier.Watcher{
		Attempted: func(took time.Duration, good bool) {
			if good {
				success.Observe(took.Seconds())
			} else {
				failure.Observe(took.Seconds())
			}
		},
		Finished: func(state string) { d.finished.WithLabelValues(state).Inc() },
	}
}

func (d *deliveryMetrics) Describe(descs chan<- *prometheus.Desc) {
	d.attempts.Describe(descs)
	d.finished.Describe(descs)
	descs <- deliveriesQueued
	descs <- deliveriesInFlight
	descs <- deliveryOldestDue
	descs <- eventsDeferred
	descs <- oldestDeferred
}

// Collect implements prometheus.Collector. If the database does not answer, it leaves out what only the database knows.
func (d *deliveryMetrics) Collect(metrics chan<- prometheus.Metric) {
	d.attempts.Collect(metrics)
	d.finished.Collect(metrics)
	metrics <- prometheus.MustNewConstMetric(deliveriesInFlight, prometheus.GaugeValue, float64(d.courier.InFlight()))
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	backlog, err := d.courier.Backlog(ctx)
	if err != nil {
		return
	}
	metrics <- prometheus.MustNewConstMetric(deliveriesQueued, prometheus.GaugeValue, float64(backlog.Queued))
	metrics <- prometheus.MustNewConstMetric(deliveryOldestDue, prometheus.GaugeValue, backlog.OldestDue.Seconds())
	metrics <- prometheus.MustNewConstMetric(eventsDeferred, prometheus.GaugeValue, float64(backlog.Deferred))
	metrics <- prometheus.MustNewConstMetric(oldestDeferred, prometheus.GaugeValue, backlog.OldestDeferred.Seconds())
}

// fetchMetrics count fetches of all intakes together.
type fetchMetrics struct {
	fetcher  *fetch.Fetcher
	attempts *prometheus.HistogramVec
}

func newFetchMetrics() *fetchMetrics {
	m := &fetchMetrics{attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "leadlog_fetch_attempt_seconds",
		Help: "How long attempts of this process to fetch announced leads took, by their outcome: success " +
			"or failure.",
		Buckets: attemptSeconds,
	}, []string{"outcome"})}
	m.attempts.WithLabelValues("success") // exports it as 0 from the start
	m.attempts.WithLabelValues("failure")
	return m
}

var fetchesPending = prometheus.NewDesc("leadlog_fetches_pending",
	"Announced leads that are to be fetched, due or not, of all processes.", nil, nil)

func (m *fetchMetrics) attempted(took time.Duration, success bool) {
	outcome := "failure"
	if success {
		outcome = "success"
	}
	m.attempts.WithLabelValues(outcome).Observe(took.Seconds())
}

func (m *fetchMetrics) Describe(descs chan<- *prometheus.Desc) {
	m.attempts.Describe(descs)
	descs <- fetchesPending
}

// Collect implements prometheus.Collector. If the database does not answer, it leaves out what only the database knows.
func (m *fetchMetrics) Collect(metrics chan<- prometheus.Metric) {
	m.attempts.Collect(metrics)
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	if pending, err := m.fetcher.Pending(ctx); err == nil {
		metrics <- prometheus.MustNewConstMetric(fetchesPending, prometheus.GaugeValue, float64(pending))
	}
}

// logMetrics measure the appends of this process.
type logMetrics struct {
	appends *prometheus.HistogramVec
	batches prometheus.Histogram
	took    prometheus.Histogram
	events  prometheus.Counter
	log     EventLog
	store   *postgres.Store // nil: the log is elsewhere

	stored, conflict, unavailable, failed prometheus.Observer
}

// appendSeconds are buckets from the fastest flush of a disk to beyond the 5 s after which a store times out.
var appendSeconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newLogMetrics() *logMetrics {
	m := &logMetrics{
		appends: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leadlog_append_seconds",
			Help: "How long appends took, by outcome: stored, conflict (another append came first; it is " +
				"retried), unavailable or failed.",
			Buckets: appendSeconds,
		}, []string{"outcome"}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "leadlog_append_batch_appends", Help: "Appends that shared one round trip to PostgreSQL.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "leadlog_append_batch_seconds", Help: "How long such a round trip took, with its commit.",
			Buckets: appendSeconds,
		}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "leadlog_append_batch_events_total",
			Help: "Events that were sent to PostgreSQL, those of refused appends too.",
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
	descs <- appendsWaiting
}

func (m *logMetrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.appends, m.batches, m.took, m.events} {
		c.Collect(metrics)
	}
	metrics <- prometheus.MustNewConstMetric(appendsWaiting, prometheus.GaugeValue, float64(m.log.Waiting()))
}

var appendsWaiting = prometheus.NewDesc("leadlog_append_queue",
	"Appends that wait in this process for their turn; from 4096 on they are refused.", nil, nil)

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
	metrics.log = store
	metrics.store, _ = store.(*postgres.Store)
	return measuredLog{store, metrics}, metrics, nil
}

func (l measuredLog) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	began := time.Now()
	position, err := l.EventLog.Append(ctx, writes...)
	l.metrics.outcome(err).Observe(time.Since(began).Seconds())
	return position, err
}

func (l measuredLog) ReadRange(
	ctx context.Context, r eventstore.Range,
) ([]eventstore.Recorded, eventstore.Position, error) {
	return eventstore.ReadRange(ctx, l.EventLog, r)
}

// poolMetrics report, at each scrape, the connections to PostgreSQL and the waits for one.
type poolMetrics struct {
	views *pgxpool.Pool
	log   *postgres.Store // nil: the log is elsewhere
}

var (
	poolConnections = prometheus.NewDesc("leadlog_pool_connections",
		"Connections of this process to PostgreSQL, by pool (views, log) and state (in_use, idle).",
		[]string{"pool", "state"}, nil)
	poolMost = prometheus.NewDesc("leadlog_pool_connections_max",
		"Most connections that a pool opens.", []string{"pool"}, nil)
	poolWaits = prometheus.NewDesc("leadlog_pool_waits_total",
		"How often a request waited because every connection of a pool was in use.", []string{"pool"}, nil)
	poolWaited = prometheus.NewDesc("leadlog_pool_wait_seconds_total",
		"How long all waits for a connection took together.", []string{"pool"}, nil)
)

func (poolMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolConnections, poolMost, poolWaits, poolWaited} {
		descs <- d
	}
}

func (m poolMetrics) Collect(metrics chan<- prometheus.Metric) {
	reportPool(metrics, "views", m.views.Stat())
	if m.log != nil {
		reportPool(metrics, "log", m.log.Readers())
	}
}

func reportPool(metrics chan<- prometheus.Metric, name string, s *pgxpool.Stat) {
	metrics <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue,
		float64(s.AcquiredConns()), name, "in_use")
	metrics <- prometheus.MustNewConstMetric(poolConnections, prometheus.GaugeValue,
		float64(s.IdleConns()), name, "idle")
	metrics <- prometheus.MustNewConstMetric(poolMost, prometheus.GaugeValue, float64(s.MaxConns()), name)
	metrics <- prometheus.MustNewConstMetric(poolWaits, prometheus.CounterValue, float64(s.EmptyAcquireCount()), name)
	metrics <- prometheus.MustNewConstMetric(poolWaited, prometheus.CounterValue,
		s.EmptyAcquireWaitTime().Seconds(), name)
}

// buildMetric returns a metric with the version and commit of this program as labels.
func buildMetric() prometheus.Collector {
	version, commit := Build()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leadlog_build_info", Help: "1, with the version and commit of this program.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "go": runtime.Version()},
	}, func() float64 { return 1 })
}

// treeMetrics report on the tree of the log.
type treeMetrics struct{ publisher *transparency.Publisher }

var (
	treeSize = prometheus.NewDesc("leadlog_log_tree_size",
		"Events in the tree of the log, and in its newest published checkpoint.", []string{"of"}, nil)
	treeFault = prometheus.NewDesc("leadlog_log_tree_fault",
		"1 while nothing is signed because the log is not the one that was published.", nil, nil)
	witnessRefusals = prometheus.NewDesc("leadlog_witness_refusals_total",
		"Attempts of this process to have a checkpoint cosigned that a witness refused or did not answer.",
		[]string{"witness"}, nil)
	witnessRefuses = prometheus.NewDesc("leadlog_witness_refuses",
		"1 while a witness does not cosign, as all processes see it.", []string{"witness"}, nil)
)

func (treeMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- treeSize
	descs <- treeFault
	descs <- witnessRefusals
	descs <- witnessRefuses
}

func (m treeMetrics) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	status, err := m.publisher.Status(ctx)
	if err != nil {
		return
	}
	flag := func(desc *prometheus.Desc, raised bool, labels ...string) {
		value := 0.0
		if raised {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	metrics <- prometheus.MustNewConstMetric(treeSize, prometheus.GaugeValue, float64(status.Size), "tree")
	metrics <- prometheus.MustNewConstMetric(treeSize, prometheus.GaugeValue, float64(status.Published), "checkpoint")
	flag(treeFault, status.Fault != "")
	for _, w := range status.Witnesses {
		metrics <- prometheus.MustNewConstMetric(witnessRefusals, prometheus.CounterValue, float64(w.Refusals), w.Name)
		flag(witnessRefuses, w.Reason != "", w.Name)
	}
}

func silentMetric(w *worker.IntakeWatch) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leadlog_intakes_silent",
		Help: "Intakes at which nothing has arrived for longer than their owners expect.",
	}, func() float64 { return float64(w.Silent()) })
}

func failingMetric(w *worker.IntakeWatch) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leadlog_intakes_failing",
		Help: "Intakes whose latest arrivals were quarantined one after the other.",
	}, func() float64 { return float64(w.Failing()) })
}
