package eventstore

import (
	"context"
	"log/slog"
	"time"
)

// Background is work that is repeated while the service runs, such as deleting what has expired.
type Background struct {
	Work     string        // for the log: "forget expired visitors"
	Interval time.Duration // between two turns
	Retry    time.Duration // after a failed turn; 0: Interval
	Log      *slog.Logger
}

// Run calls turn until the context is done: at once after a turn that has more to do, otherwise at intervals. While turns fail with the same
// error, it is logged once. The first success after failures is logged too.
func (b Background) Run(ctx context.Context, turn func(context.Context) (more bool, err error)) {
	log := b.Log.With(slog.String("work", b.Work))
	failure := "" // of the last turn
	for ctx.Err() == nil {
		more, err := turn(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := b.Interval
		switch {
		case err != nil:
			if failure != err.Error() {
				log.Warn("background work failed, retrying", slog.Any("error", err))
			}
			failure = err.Error()
			if !more && b.Retry > 0 {
				pause = b.Retry
			}
		case failure != "":
			log.Info("background work succeeds again")
			failure = ""
		}
		if err != nil || !more {
			_ = Sleep(ctx, pause)
		}
	}
}
