package service

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// silenceInterval is the time between two queries of an index that has few intakes.
const silenceInterval = 5 * time.Second

// silence reports intakes without an arrival for longer than their owners expect, and the next arrival after that. Several processes may
// run it: each silence is reported once, and so is its end.
type silence struct {
	query    *query.Reader
	handlers *command.Handlers
	store    eventstore.Store
	log      *slog.Logger
	now      func() time.Time
	silent   atomic.Int64 // intakes at the latest turn
}

// run takes turns until the context is done. While views are rebuilt, turns may fail for hours.
func (s *silence) run(ctx context.Context) {
	eventstore.Background{Work: "report silent intakes", Interval: silenceInterval, Log: s.log}.
		Run(ctx, func(ctx context.Context) (bool, error) { return false, s.turn(ctx) })
}

// turn waits until the views have every arrival up to now, so that none of them is missed, and reports what is due.
func (s *silence) turn(ctx context.Context) error {
	now := s.now()
	head, err := s.store.Head(ctx)
	if err != nil {
		return err
	}
	if err := s.query.WaitFor(ctx, head, query.IntakeView, query.ArrivalView); err != nil {
		return err
	}
	due, silent, err := s.query.IntakesToWatch(ctx, now)
	if err != nil {
		return err
	}
	s.silent.Store(int64(silent))
	var failed error
	for _, intake := range due {
		failed = errors.Join(failed, s.handlers.ReportSilence(ctx, intake.IntakeID, intake.ArrivedAt))
	}
	return failed
}

func (s *silence) metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leadlog_intakes_silent", Help: "Intakes at which nothing has arrived for longer than their owners expect.",
	}, func() float64 { return float64(s.silent.Load()) })
}
