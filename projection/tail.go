package projection

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// Tail reads the end of the log once for all projectors of a process, so that each event is read and decoded once. A follower that lags
// behind the tail reads the log by itself until it has caught up.
type Tail struct {
	store  eventstore.Store
	filter eventstore.Filter

	mu        sync.Mutex
	followers map[*follower]struct{}
	stop      context.CancelFunc // of the reader; nil when there is none
	err       error              // of the last reader
	batches   []batch            // in the order of the log
	base      eventstore.Position
	events    int // in all batches
	bytes     int // of payload
	bounds    bounds
	grown     chan struct{} // closed by the next change; nil when no follower waits
}

// bounds limit the size of a tail.
type bounds struct {
	events int
	bytes  int // of payload
	// spare is how many events are kept after every follower has taken them, so that a follower which reads the log by itself can return to
	// the tail. More of them would cost garbage collection.
	spare int
}

// readInterval is the least time between two reads of the log, so that single appends are read together. It grows with the number of events
// read.
const readInterval = 4 * time.Millisecond

// NewTail prepares a tail for these projectors. It reads while at least one of them follows it.
func NewTail(store eventstore.Store, projectors ...Projector) *Tail {
	return &Tail{
		store: store, filter: union(projectors), followers: map[*follower]struct{}{}, bounds: bounds{events: 5000, bytes: 3 << 20, spare: 500},
	}
}

// follower takes the events of one view from the tail, or reads the log while the tail does not reach back far enough.
type follower struct {
	tail    *Tail
	filter  eventstore.Filter
	after   eventstore.Position // position up to which events were taken; guarded by tail.mu
	lagging bool                // it reads the log by itself; guarded by tail.mu

	catchUpTo eventstore.Position // position up to which it reads the log, even if the tail has the events
	own       chan batch          // batches that it reads by itself; nil: it takes them from the tail
	pending   batch               // of own: events that were not taken yet
	err       error               // error of own
	stop      context.CancelFunc  // of own
}

// follow adds a follower after a position. The caller must close it.
func (t *Tail) follow(ctx context.Context, after eventstore.Position, filter eventstore.Filter) (*follower, error) {
	f := &follower{tail: t, filter: filter, after: after, lagging: true}
	if err := t.join(ctx, f); err != nil {
		return nil, err
	}
	// The tail may hold events as they were before an erasure, which do not fold after earlier events that were read since. So the follower
	// reads the log up to its present head. A projector that fails over such events succeeds in the next session.
	var err error
	if f.catchUpTo, err = t.store.Head(ctx); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// close ends the reading of a follower.
func (f *follower) close() {
	f.stopReading()
	f.tail.leave(f)
}

func (f *follower) stopReading() {
	if f.own == nil {
		return
	}
	f.stop()
	for range f.own {
	}
	f.own, f.pending = nil, batch{}
}

// next appends the next events, at most limit, and returns the position that they reach. It waits for events, for a position without
// events, or for due, when the position is 0. The error of an event that cannot be decoded is returned after the events before it.
func (f *follower) next(ctx context.Context, events []Event, limit int, due <-chan time.Time) (batch, error) {
	if f.own == nil {
		b, reaches, err := f.tail.take(ctx, f, events, limit, due)
		if err != nil || reaches {
			return b, err
		}
		f.read(ctx)
	}
	if f.pending.position == 0 {
		select {
		case b, more := <-f.own:
			if !more {
				return batch{}, f.err
			}
			f.pending = b
		case <-due:
			return batch{}, nil
		case <-ctx.Done():
			return batch{}, ctx.Err()
		}
	}
	b := batch{events: events}
	taken, err := b.take(f.pending, f.after, f.filter, limit)
	if err != nil {
		return b, err
	}
	if taken {
		f.pending = batch{}
	}
	if f.tail.moved(f, b.position) && taken && b.position >= f.catchUpTo {
		f.stopReading()
	}
	return b, nil
}

// read starts reading the log after the follower's position.
func (f *follower) read(ctx context.Context) {
	ctx, f.stop = context.WithCancel(ctx)
	own := make(chan batch)
	f.own = own
	r := logRange{after: f.after, end: forever, filter: f.filter}
	go func() {
		defer close(own)
		f.err = readLog(ctx, f.tail.store, r, 0, func(ctx context.Context, b batch) error { return send(ctx, b, own) })
	}()
}

// take appends the events of another batch after a position, at most limit in total. It reports whether it took all of them.
func (b *batch) take(from batch, after eventstore.Position, filter eventstore.Filter, limit int) (all bool, err error) {
	for _, e := range from.events {
		if e.Position <= after || !filter.Matches(e.Stream, e.Type) {
			continue
		}
		if len(b.events) == limit {
			return false, nil
		}
		if e.err != nil && len(b.events) == 0 {
			return false, e.err
		}
		if e.err != nil {
			return false, nil
		}
		b.events, b.position = append(b.events, e), e.Position
	}
	b.position = max(after, from.position)
	return true, nil
}

// join adds a follower, and starts the reader if it is not running.
func (t *Tail) join(ctx context.Context, f *follower) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop == nil {
		if len(t.followers) == 0 { // otherwise another follower continues from the end of the tail
			head, err := t.store.Head(ctx)
			if err != nil {
				return err
			}
			t.base = head
		}
		reading, stop := context.WithCancel(context.WithoutCancel(ctx))
		t.stop, t.err = stop, nil
		go t.run(reading, t.end())
	}
	t.followers[f] = struct{}{}
	return nil
}

// leave removes a follower, and stops the reader if it was the last one.
func (t *Tail) leave(f *follower) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.followers, f); len(t.followers) > 0 {
		return
	}
	if t.stop != nil {
		t.stop()
		t.stop = nil
	}
	t.batches, t.events, t.bytes = nil, 0, 0
}

// end returns the last position that the tail has read. The caller holds the lock.
func (t *Tail) end() eventstore.Position {
	if len(t.batches) == 0 {
		return t.base
	}
	return t.batches[len(t.batches)-1].position
}

// run fills the tail until the context is done or reading the log fails.
func (t *Tail) run(ctx context.Context, after eventstore.Position) {
	err := readLog(ctx, t.store, logRange{after: after, end: forever, filter: t.filter}, readInterval, t.add)
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() == nil { // otherwise a new reader may have started
		t.stop()
		t.stop, t.err = nil, err
		t.wake()
	}
}

func (t *Tail) add(ctx context.Context, b batch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if n := len(t.batches); n > 0 && len(t.batches[n-1].events) == 0 {
		t.batches[n-1] = b // an empty batch only has a position
	} else {
		t.batches = append(t.batches, b)
	}
	t.events, t.bytes = t.events+len(b.events), t.bytes+b.size()
	t.drop()
	t.wake()
	return nil
}

// size returns the bytes of payload of a batch.
func (b batch) size() (bytes int) {
	for i := range b.events {
		bytes += len(b.events[i].Recorded.Data)
	}
	return bytes
}

// drop drops the oldest batches that all followers have taken. If the tail exceeds its bounds, it also drops batches that are not taken.
func (t *Tail) drop() {
	taken := t.end()
	for f := range t.followers {
		if !f.lagging {
			taken = min(taken, f.after)
		}
	}
	n := 0
	for _, b := range t.batches[:len(t.batches)-1] {
		full := t.events > t.bounds.events || t.bytes > t.bounds.bytes
		if spare := t.events - len(b.events); !full && (b.position > taken || spare < t.bounds.spare) {
			break
		}
		t.events, t.bytes, t.base = t.events-len(b.events), t.bytes-b.size(), b.position
		n++
	}
	t.batches = slices.Delete(t.batches, 0, n)
}

// wake wakes the waiting followers. The caller holds the lock.
func (t *Tail) wake() {
	if t.grown != nil {
		close(t.grown)
		t.grown = nil
	}
}

// moved records the position of a follower that reads the log by itself, and reports whether the tail has all later events.
func (t *Tail) moved(f *follower, to eventstore.Position) (reaches bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.after = to
	return t.base <= to
}

// from returns the batches that end after a position. The caller holds the lock.
func (t *Tail) from(after eventstore.Position) []batch {
	return t.batches[sort.Search(len(t.batches), func(i int) bool { return t.batches[i].position > after }):]
}

// take implements next for a follower of the tail. It returns false when the tail does not reach back to the follower's position.
func (t *Tail) take(ctx context.Context, f *follower, events []Event, limit int, due <-chan time.Time) (b batch, reaches bool, err error) {
	b.events = events
	for {
		t.mu.Lock()
		if f.lagging = f.after < f.catchUpTo || f.after < t.base; f.lagging {
			t.mu.Unlock()
			return b, false, nil
		}
		for _, more := range t.from(f.after) {
			all, err := b.take(more, f.after, f.filter, limit)
			if err != nil || !all {
				if err != nil && b.position > 0 {
					err = nil // the next call returns it
				}
				f.after = max(f.after, b.position)
				t.mu.Unlock()
				return b, true, err
			}
		}
		if b.position > 0 {
			f.after = b.position
			t.mu.Unlock()
			return b, true, nil
		}
		if t.stop == nil {
			err := t.err
			t.mu.Unlock()
			return b, true, err
		}
		if t.grown == nil {
			t.grown = make(chan struct{})
		}
		grown := t.grown
		t.mu.Unlock()
		select {
		case <-grown:
		case <-due:
			return b, true, nil
		case <-ctx.Done():
			return b, true, ctx.Err()
		}
	}
}

// idle reports whether a follower has taken all events of the tail.
func (f *follower) idle() bool {
	f.tail.mu.Lock()
	defer f.tail.mu.Unlock()
	return f.own == nil && f.after >= f.tail.end()
}

// firstBetween returns the first event after a position, up to another, that a filter selects; nil when there is none. It returns false
// when the tail does not have the whole range.
func (t *Tail) firstBetween(after, until eventstore.Position, filter eventstore.Filter) (*eventstore.Recorded, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if after < t.base {
		return nil, false
	}
	for _, b := range t.from(after) {
		for _, e := range b.events {
			if e.Position > after && e.Position <= until && filter.Matches(e.Stream, e.Type) {
				return e.Recorded, true
			}
		}
	}
	return nil, t.end() >= until
}
