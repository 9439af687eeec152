package eventstore

import (
	"context"
	"log/slog"
	"time"
)

// Background is work that is repeated while the service runs, such as deleting what has expired.
type Background struct {
	Work     string        // for the log: "forget expired visitors"
	Interval time.Duration // between two runs
	Retry    time.Duration // after a failed run; 0: Interval
	Log      *slog.Logger

	failure string // of the last run
}

// Run calls once until the context is done: at once after a run that has more to do, otherwise at intervals. While
// runs fail with the same error, it is logged once. The first success after failures is logged too. A run that does
// not end while it works calls Succeeded.
func (b *Background) Run(ctx context.Context, once func(context.Context) (more bool, err error)) {
	for ctx.Err() == nil {
		more, err := once(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := b.Interval
		if err == nil {
			b.Succeeded()
		} else {
			b.failed(err)
			if !more && b.Retry > 0 {
				pause = b.Retry
			}
		}
		if err != nil || !more {
			_ = Sleep(ctx, pause)
		}
	}
}

func (b *Background) failed(err error) {
	if b.failure != err.Error() {
		b.Log.Warn("background work failed, retrying", slog.String("work", b.Work), slog.Any("error", err))
	}
	b.failure = err.Error()
}

// Succeeded ends a series of failures.
func (b *Background) Succeeded() {
	if b.failure != "" {
		b.Log.Info("background work succeeds again", slog.String("work", b.Work))
	}
	b.failure = ""
}
