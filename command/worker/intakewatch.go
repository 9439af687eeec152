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

// watchInterval is the time between two queries of indexes that have few intakes.
const watchInterval = 5 * time.Second

// IntakeWatch reports intakes without an arrival for longer than their owners expect, and the next arrival after that.
// It reports intakes whose arrivals are quarantined one after the other, and the next capture after that. Several
// processes may run it: each silence and each failure is reported once, and so is its end.
type IntakeWatch struct {
	Query    *query.Reader
	Handlers *command.Handlers
	Store    eventstore.Store
	Log      *slog.Logger
	Now      func() time.Time
	silent   atomic.Int64 // intakes at the latest run
	failing  atomic.Int64
}

// Run runs until the context is done. While views are rebuilt, runs may fail for hours.
func (w *IntakeWatch) Run(ctx context.Context) {
	work := eventstore.Background{Work: "report silent and failing intakes", Interval: watchInterval, Log: w.Log}
	work.Run(ctx, func(ctx context.Context) (bool, error) { return false, w.runOnce(ctx) })
}

// runOnce waits until the views have every arrival up to now, so that none of them is missed, and reports what is due.
func (w *IntakeWatch) runOnce(ctx context.Context) error {
	now := w.Now()
	head, err := w.Store.Head(ctx)
	if err != nil {
		return err
	}
	if err := w.Query.WaitFor(ctx, head, query.IntakeView, query.ArrivalView); err != nil {
		return err
	}
	due, silent, err := w.Query.IntakesToWatch(ctx, now)
	if err != nil {
		return err
	}
	runs, failing, err := w.Query.IntakeRuns(ctx)
	if err != nil {
		return err
	}
	w.silent.Store(int64(silent))
	w.failing.Store(int64(failing))
	var failed error
	for _, watched := range append(due, runs...) {
		failed = errors.Join(failed, w.Handlers.ReportIntake(ctx, watched))
	}
	return failed
}

// Silent returns how many intakes were silent at the latest run.
func (w *IntakeWatch) Silent() int64 { return w.silent.Load() }

// Failing returns how many intakes failed at the latest run.
func (w *IntakeWatch) Failing() int64 { return w.failing.Load() }
