package eventstore

import "context"

// Range is a part of the log: what comes after one position, up to another.
type Range struct {
	After   Position // one that the log gave, or 0
	Until   Position // included; at most the head
	Filter  Filter
	Account string // of the events; empty: any
	Limit   int    // events at most, 1 or more
}

// selects reports whether an event that lies in the range is wanted.
func (r Range) selects(e *Recorded) bool {
	return (r.Account == "" || e.Metadata.Account == r.Account) && r.Filter.Matches(e.Stream, e.Type)
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
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for item, err := range store.Subscribe(ctx, r.After, r.Filter) {
		if err != nil {
			return nil, 0, err
		}
		if item.Event != nil && item.Position <= r.Until && r.selects(item.Event) {
			events = append(events, *item.Event)
		}
		if item.Position >= r.Until {
			return events, r.Until, nil
		}
		if len(events) == r.Limit {
			return events, item.Position, nil
		}
	}
	return nil, 0, ErrUnavailable
}
