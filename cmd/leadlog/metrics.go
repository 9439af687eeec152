package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/projection"
)

// viewMetrics reports at each scrape how far the views are and how they do.
type viewMetrics []*projection.Runner

var (
	viewPosition = prometheus.NewDesc("leadlog_projection_position",
		"Position of the log that a view has reached, as last seen by this process.", []string{"projector"}, nil)
	viewLag = prometheus.NewDesc("leadlog_projection_lag_positions",
		"Positions between a view and the head of the log.", []string{"projector"}, nil)
	viewFailures = prometheus.NewDesc("leadlog_projection_failures_total",
		"Failed attempts to bring a view forward.", []string{"projector"}, nil)
	viewState = prometheus.NewDesc("leadlog_projection_state",
		"1 for the state that a projector is in: running, standby, failed or stale.", []string{"projector", "state"}, nil)
)

// Describe implements prometheus.Collector.
func (v viewMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- viewPosition
	descs <- viewLag
	descs <- viewFailures
	descs <- viewState
}

// scrapePatience is how long a scrape waits for the head of the log. Without it the lag is left out.
const scrapePatience = 2 * time.Second

// Collect implements prometheus.Collector.
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
	}
}

// useMetrics reports what became of the samples of API tokens' uses.
type useMetrics struct{ uses *command.Uses }

var usesSampled = prometheus.NewDesc("leadlog_token_uses_sampled_total",
	"Samples of API tokens' uses by this process, by outcome: recorded, or dropped because the log did not keep up.",
	[]string{"type", "outcome"}, nil)

// Describe implements prometheus.Collector.
func (useMetrics) Describe(descs chan<- *prometheus.Desc) { descs <- usesSampled }

// Collect implements prometheus.Collector.
func (m useMetrics) Collect(metrics chan<- prometheus.Metric) {
	m.uses.Counts(func(eventType string, recorded, dropped uint64) {
		metrics <- prometheus.MustNewConstMetric(usesSampled, prometheus.CounterValue, float64(recorded), eventType, "recorded")
		metrics <- prometheus.MustNewConstMetric(usesSampled, prometheus.CounterValue, float64(dropped), eventType, "dropped")
	})
}
