package eventstore

import (
	"context"
	"fmt"
	"iter"
)

// Range is the events of the log after one position, up to another.
type Range struct {
	After   Position // a position that the log returned, or 0
	Until   Position // included; at most the head
	Filter  Filter
	Account string // of the events; empty: all
	Limit   int    // maximum number of events, 1 or more
}

// RangeReader is a Store that can read a range of the log more cheaply than with a subscription.
type RangeReader interface {
	// ReadRange is like the function ReadRange.
	ReadRange(ctx context.Context, r Range) ([]Recorded, Position, error)
}

// ReadRange returns the first events of a range and the position up to which it was read: Until, or a position that the
// log returned, after which there may be more. A read takes a bounded time, so it may return fewer events than the
// limit before the end of the range.
func ReadRange(ctx context.Context, store Store, r Range) (events []Recorded, reached Position, err error) {
	if r.After >= r.Until {
		return nil, r.Until, nil
	}
	if reader, ok := store.(RangeReader); ok {
		return reader.ReadRange(ctx, r)
	}
	for page, err := range ReadTo(ctx, store, r.After, r.Until, r.Filter) {
		if err != nil {
			return nil, 0, err
		}
		for _, e := range page.Events {
			if r.Account != "" && e.Metadata.Account != r.Account {
				continue
			}
			if events = append(events, e); len(events) == r.Limit {
				return events, e.Position, nil
			}
		}
		reached = page.Position
	}
	return events, reached, nil
}

// ReadTo yields the pages of a subscription up to a position that has an event, and ends there. Events after that
// position are left out.
func ReadTo(ctx context.Context, store Store, after, until Position, filter Filter) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		if after >= until {
			return
		}
		for page, err := range store.Subscribe(ctx, after, filter) {
			if err == nil && page.Position >= until {
				for n := len(page.Events); n > 0 && page.Events[n-1].Position > until; n-- {
					page.Events = page.Events[:n-1]
				}
				page.Position = until
			}
			if !yield(page, err) || err != nil || page.Position == until {
				return
			}
		}
		yield(Page{}, fmt.Errorf("%w: the subscription ended", ErrUnavailable))
	}
}
