package service

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
)

// viewMetrics reports, at each scrape, the position and the state of each view.
type viewMetrics []*projection.Runner

var (
	viewPosition = prometheus.NewDesc("leadlog_projection_position",
		"Position of the log that a view has reached, as last seen by this process.", []string{"projector"}, nil)
	viewLag = prometheus.NewDesc("leadlog_projection_lag_positions",
		"Positions between a view and the head of the log.", []string{"projector"}, nil)
	viewDelay = prometheus.NewDesc("leadlog_projection_lag_seconds",
		"How long the oldest event is on the log that a view has not seen; 0 when it has seen all that concern it.", []string{"projector"}, nil)
	viewFailures = prometheus.NewDesc("leadlog_projection_failures_total",
		"Failed attempts to bring a view forward.", []string{"projector"}, nil)
	viewState = prometheus.NewDesc("leadlog_projection_state",
		"1 for the state that a projector is in: running, standby, failed or stale.", []string{"projector", "state"}, nil)
)

func (v viewMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- viewPosition
	descs <- viewLag
	descs <- viewDelay
	descs <- viewFailures
	descs <- viewState
}

// scrapePatience is how long a scrape waits for the head of the log. Without it the lag is left out.
const scrapePatience = 2 * time.Second

func (v viewMetrics) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	for _, runner := range v {
		report(ctx, runner, metrics)
	}
}

func report(ctx context.Context, runner *projection.Runner, metrics chan<- prometheus.Metric) {
	views, err := runner.Status(ctx)
	for _, view := range views {
		metrics <- prometheus.MustNewConstMetric(viewPosition, prometheus.GaugeValue, float64(view.Position), view.Name)
		metrics <- prometheus.MustNewConstMetric(viewFailures, prometheus.CounterValue, float64(view.Failures), view.Name)
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
		metrics <- prometheus.MustNewConstMetric(usesSampled, prometheus.CounterValue, float64(recorded), eventType, "recorded")
		metrics <- prometheus.MustNewConstMetric(usesSampled, prometheus.CounterValue, float64(dropped), eventType, "dropped")
	})
}

// deliveryMetrics count deliveries of all endpoints together: a label per endpoint would grow with the number of customers.
type deliveryMetrics struct {
	courier  *delivery.Courier
	attempts *prometheus.HistogramVec
	finished *prometheus.CounterVec
}

func newDeliveryMetrics() *deliveryMetrics {
	return &deliveryMetrics{
		attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leadlog_delivery_attempt_seconds",
			Help: "How long attempts of this process took, by their outcome: success or failure.",
			// To the timeout of 15 s, and beyond for those who raised it.
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60},
		}, []string{"outcome"}),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leadlog_deliveries_total",
			Help: "Deliveries that this process finished, by what became of them: delivered, failed or cancelled.",
		}, []string{"state"}),
	}
}

var (
	deliveriesQueued = prometheus.NewDesc("leadlog_deliveries_queued",
		"Deliveries that wait for an attempt, due or not, of all processes, as of at most 10 seconds ago.", nil, nil)
	deliveriesInFlight = prometheus.NewDesc("leadlog_deliveries_in_flight",
		"Attempts that this process has under way.", nil, nil)
	deliveryOldestDue = prometheus.NewDesc("leadlog_delivery_oldest_due_seconds",
		"How long the delivery has been due that waits longest, of all processes, as of at most 10 seconds ago.", nil, nil)
)

// watcher returns the callbacks by which a courier counts.
func (d *deliveryMetrics) watcher() delivery.Watcher {
	for _, state := range []string{"delivered", "failed", "cancelled"} {
		d.finished.WithLabelValues(state) // exports it as 0 from the start
	}
	success, failure := d.attempts.WithLabelValues("success"), d.attempts.WithLabelValues("failure")
	return delivery.Watcher{
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
}

// Collect implements prometheus.Collector. If the database does not answer, it leaves out what only the database knows.
func (d *deliveryMetrics) Collect(metrics chan<- prometheus.Metric) {
	d.attempts.Collect(metrics)
	d.finished.Collect(metrics)
	metrics <- prometheus.MustNewConstMetric(deliveriesInFlight, prometheus.GaugeValue, float64(d.courier.InFlight()))
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	backlog, err := d.courier.Backlog(ctx)
	if err != nil {
		return
	}
	metrics <- prometheus.MustNewConstMetric(deliveriesQueued, prometheus.GaugeValue, float64(backlog.Queued))
	metrics <- prometheus.MustNewConstMetric(deliveryOldestDue, prometheus.GaugeValue, backlog.OldestDue.Seconds())
}
