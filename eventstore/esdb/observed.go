package esdb

import (
	"context"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
)

// observed is what a subscription of this store has received, so that an append need not read it: the ends of streams
// that appends check, and the positions of events that were stored together. One subscription reports to it at a time:
// the first, until one that lags is overtaken by another.
type observed struct {
	late time.Duration // how long an append waits for the subscription before it reads

	mu       sync.Mutex
	watch    *watch // of the subscription that reports; nil: none
	to       eventstore.Position
	lagging  eventstore.Position // the subscription was too late for this position; 0: it was not
	progress chan struct{}       // closed when to changes
	spans    *cache[string, span]
	awaited  map[ulid.ULID]eventstore.Position // of events whose position is wanted; 0 until it is known
}

// watch is the time in which a subscription reports without a gap.
type watch struct{ reader *reader }

func newObserved() *observed {
	return &observed{
		late: 100 * time.Millisecond, progress: make(chan struct{}), awaited: map[ulid.ULID]eventstore.Position{},
		spans: newCache(cacheBytes, func(stream string, _ span) int { return len(stream) }),
	}
}

// leave ends the reports of a reader.
func (o *observed) leave(r *reader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watch != nil && o.watch.reader == r {
		o.watch = nil
	}
}

// note adds the events of a valid append, or none, up to a position. The reader has noted all events since its first
// note.
func (o *observed) note(r *reader, events []*record, to eventstore.Position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watch == nil || o.watch.reader != r {
		if o.watch != nil && (o.lagging <= o.to || to <= o.to) {
			return
		}
		o.watch, o.lagging = &watch{r}, 0
	}
	for _, e := range events {
		if _, known := o.spans.get(e.Stream); known {
			o.spans.add(e.Stream, span{end: eventstore.At(e.Revision), from: to + 1, until: to + 1, watch: o.watch})
		}
		if _, wanted := o.awaited[e.ID]; wanted {
			o.awaited[e.ID] = e.Position
		}
	}
	o.to = to
	close(o.progress)
	o.progress = make(chan struct{})
}

// span returns what is known of a stream's end.
func (o *observed) span(stream string) (span, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.spans.get(stream)
	if ok && known.watch != nil && known.watch == o.watch {
		known.until = max(known.until, o.to+1)
	}
	return known, ok
}

// watches reports whether later events of a stream are noted.
func (o *observed) watches(stream string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.spans.get(stream)
	return ok && known.watch != nil && known.watch == o.watch
}

// found adds what a read has found.
func (o *observed) found(stream string, read span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watch != nil && o.to < read.until { // later events will be noted
		read.watch = o.watch
	}
	o.spans.update(stream, func(old span, known bool) span {
		if known {
			return old.union(read)
		}
		return read
	})
}

// wait waits until the subscription has received a position. It reports false if that takes long.
func (o *observed) wait(ctx context.Context, position eventstore.Position) bool {
	late := time.NewTimer(o.late)
	defer late.Stop()
	for {
		o.mu.Lock()
		reached, progress := o.to >= position, o.progress
		if o.watch == nil || !reached && o.lagging > o.to {
			o.mu.Unlock()
			return false
		}
		o.mu.Unlock()
		if reached {
			return true
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return false
		case <-late.C:
			o.mu.Lock()
			o.lagging = position
			o.mu.Unlock()
			return false
		}
	}
}

// await registers events whose positions are wanted. known returns those that the subscription has received.
func (o *observed) await(ids []ulid.ULID) (known func() map[ulid.ULID]eventstore.Position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		o.awaited[id] = 0
	}
	return func() map[ulid.ULID]eventstore.Position {
		o.mu.Lock()
		defer o.mu.Unlock()
		positions := make(map[ulid.ULID]eventstore.Position, len(ids))
		for _, id := range ids {
			if position := o.awaited[id]; position > 0 {
				positions[id] = position
			}
			delete(o.awaited, id)
		}
		return positions
	}
}
