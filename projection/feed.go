package projection

import (
	"context"
	"fmt"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// feed reads the log ahead of the session that applies it, so that reading and decoding go on while the
// database writes.
type feed struct {
	items  chan feedItem
	chosen func(Event) bool // nil: all are
	failed error            // an error to return after items that came before it
	events []Event          // of the latest batch; the next one uses the same memory
}

type feedItem struct {
	event    Event // a progress mark when its Recorded is nil
	position eventstore.Position
	err      error
}

func (i feedItem) isMark() bool { return i.event.Recorded == nil }

// size returns the bytes of payload of an item.
func (i feedItem) size() int {
	if i.isMark() {
		return 0
	}
	return len(i.event.Recorded.Data)
}

// batch is applied in one transaction. Without events it only moves the checkpoint.
type batch struct {
	events   []Event
	position eventstore.Position // 0: empty
}

// openFeed starts reading. Reading ends with the context, and has ended when drain returns.
func openFeed(ctx context.Context, tail *Tail, after eventstore.Position, filter eventstore.Filter, ahead int) *feed {
	f := &feed{items: make(chan feedItem, ahead)}
	go func() {
		defer close(f.items)
		err := tail.follow(ctx, after, filter, f.items)
		_ = send(ctx, feedItem{err: err}, f.items) // unless nobody wants to know
	}()
	return f
}

// idle reports whether nothing waits to be applied.
func (f *feed) idle() bool { return len(f.items) == 0 }

func (f *feed) drain() {
	for range f.items {
	}
}

func decoded(item eventstore.Item) feedItem {
	if item.Event == nil {
		return feedItem{position: item.Position}
	}
	data, err := decodeEvent(item.Event)
	return feedItem{event: Event{Recorded: item.Event, Data: data}, position: item.Position, err: err}
}

// linger is how long a batch with events waits for the progress mark that a store usually sends after them.
const linger = 2 * time.Millisecond

// collect waits for events and returns those that are there, at most limit. When only progress marks come, or events that are not
// chosen, it returns the latest position once the time quiet has passed. When nothing comes, it returns an empty batch on wake. A
// batch may be used until the next call.
func (f *feed) collect(ctx context.Context, limit int, quiet time.Time, wake <-chan time.Time) (batch, error) {
	clear(f.events) // so that nothing is kept while nothing comes
	b := batch{events: f.events[:0]}
	defer func() { f.events = b.events }()
	due, marked := wake, false
	for len(b.events) < limit {
		item, ok, err := f.next(ctx, due)
		if err != nil || !ok {
			return b, err
		}
		if item.err != nil {
			f.failed = item.err
			if b.position > 0 {
				return b, nil // these are good
			}
			return b, item.err
		}
		b.position = item.position
		switch {
		case !item.isMark() && (f.chosen == nil || f.chosen(item.event)):
			if b.events = append(b.events, item.event); len(b.events) == 1 {
				due = nil
			}
		case len(b.events) > 0:
			if len(f.items) == 0 {
				return b, nil
			}
		case !marked:
			due, marked = time.After(time.Until(quiet)), true
		}
		if len(b.events) > 0 && len(f.items) == 0 && due == nil {
			due = time.After(linger)
		}
	}
	return b, nil
}

// next takes one item. It is not ok when due came first.
func (f *feed) next(ctx context.Context, due <-chan time.Time) (item feedItem, ok bool, err error) {
	if f.failed != nil {
		return item, false, f.failed
	}
	select {
	case item, ok = <-f.items:
		if !ok {
			return item, false, fmt.Errorf("%w: the subscription ended", eventstore.ErrUnavailable)
		}
		return item, true, nil
	case <-due:
		return item, false, nil
	case <-ctx.Done():
		return item, false, ctx.Err()
	}
}
