package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
)

// silenceInterval is the time between two queries of an index that has few intakes.
const silenceInterval = 5 * time.Second

// Silence reports intakes without an arrival for longer than their owners expect, and the next arrival after that.
// Several processes may run it: each silence is reported once, and so is its end.
type Silence struct {
	Query    *query.Reader
	Handlers *command.Handlers
	Store    eventstore.Store
	Log      *slog.Logger
	Now      func() time.Time
	silent   atomic.Int64 // intakes at the latest run
}

// Run runs until the context is done. While views are rebuilt, runs may fail for hours.
func (s *Silence) Run(ctx context.Context) {
	work := eventstore.Background{Work: "report silent intakes", Interval: silenceInterval, Log: s.Log}
	work.Run(ctx, func(ctx context.Context) (bool, error) { return false, s.runOnce(ctx) })
}

// runOnce waits until the views have every arrival up to now, so that none of them is missed, and reports what is due.
func (s *Silence) runOnce(ctx context.Context) error {
	now := s.Now()
	head, err := s.Store.Head(ctx)
	if err != nil {
		return err
	}
	if err := s.Query.WaitFor(ctx, head, query.IntakeView, query.ArrivalView); err != nil {
		return err
	}
	due, silent, err := s.Query.IntakesToWatch(ctx, now)
	if err != nil {
		return err
	}
	s.silent.Store(int64(silent))
	var failed error
	for _, intake := range due {
		failed = errors.Join(failed, s.Handlers.ReportSilence(ctx, intake.IntakeID, intake.ArrivedAt))
	}
	return failed
}

// Silent returns how many intakes were silent at the latest run.
func (s *Silence) Silent() int64 { return s.silent.Load() }
