package projection

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// Delay returns how long the oldest event that a projector has not yet applied has been on the log, as of a Status. If the tail
// does not reach back that far, it reads the log, so it should not be called often.
func (r *Runner) Delay(ctx context.Context, s Status) (time.Duration, error) {
	for _, w := range r.workers {
		if s.Lag == 0 || w.projector.Name() != s.Name {
			continue
		}
		until, filter := s.Position+eventstore.Position(s.Lag), w.projector.Filter()
		next, reaches := w.tail.firstBetween(s.Position, until, filter)
		var err error
		if !reaches {
			next, err = firstBetween(ctx, r.store, s.Position, until, filter)
		}
		if err != nil || next == nil {
			return 0, err
		}
		return max(0, time.Since(next.At)), nil
	}
	return 0, nil
}

// firstBetween returns the first event after a position, up to another, that a filter selects; nil when there is none.
func firstBetween(ctx context.Context, store eventstore.Store, after, until eventstore.Position, filter eventstore.Filter) (*eventstore.Recorded, error) {
	for item, err := range store.Subscribe(ctx, after, filter) {
		switch {
		case err != nil:
			return nil, err
		case item.Position > until:
			return nil, nil
		case item.Event != nil, item.Position == until:
			return item.Event, nil
		}
	}
	return nil, ctx.Err()
}
