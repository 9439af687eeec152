package eventstore

import (
	"context"
	"fmt"
	"iter"
)

// Range is a part of the log: what comes after one position, up to another.
type Range struct {
	After   Position // one that the log gave, or 0
	Until   Position // included; at most the head
	Filter  Filter
	Account string // of the events; empty: any
	Limit   int    // events at most, 1 or more
}

// RangeReader is a Store that reads a range of the log at less cost than a subscription.
type RangeReader interface {
	// ReadRange is as the function of this name.
	ReadRange(ctx context.Context, r Range) ([]Recorded, Position, error)
}

// ReadRange returns the first events of a range and how far it was read: to Until, or else to a position that the log gave, and
// there may be more behind it. A range that ends before its limit of events may have more too: a read takes a bounded time.
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

// ReadTo yields what a subscription does, up to a position at which the log has an event, and ends there. The events of a later
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
