package esdb

import (
	"context"
	"fmt"

	"github.com/leadlog/leadlog/eventstore"
)

var _ eventstore.RangeReader = (*Store)(nil)

const (
	// firstRange is how many records a read of a range reads first.
	firstRange = 16

	// rangeSpan bounds a read of a range, in records for each event of its limit.
	rangeSpan = 64
)

// ReadRange implements eventstore.RangeReader. A subscription would receive pages of the log for a few events.
func (s *Store) ReadRange(ctx context.Context, r eventstore.Range) ([]eventstore.Recorded, eventstore.Position, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	var events []eventstore.Recorded
	collect := func(page eventstore.Page, _ error) bool {
		for _, e := range page.Events {
			if e.Position <= r.Until && (r.Account == "" || e.Metadata.Account == r.Account) {
				events = append(events, e)
			}
		}
		return true // the read ends by itself
	}
	read := s.reader(r.After, r.Filter, collect)
	within := func() bool { return read.read < r.Until || len(read.batch) > 0 }
	total := uint64(0)
	for count := uint64(min(max(2*r.Limit, firstRange), lookPage)); within(); count = min(4*count, lookPage) {
		err := s.attempts(ctx, eventTimeout, func(ctx context.Context) error {
			n, err := read.pollOnce(ctx, count)
			if err == nil && n < count && within() {
				err = fmt.Errorf("%w: the node has not reached position %d", errMoved, r.Until)
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		collect(eventstore.Page{Events: read.page}, nil)
		read.page, read.bytes = nil, 0
		if len(events) >= r.Limit {
			events = events[:r.Limit]
			return events, events[r.Limit-1].Position, nil
		}
		total += count
		if within() && total >= rangeSpan*uint64(r.Limit) && read.head > r.After && len(read.batch) == 0 {
			return events, read.head, nil
		}
	}
	return events, r.Until, nil
}
