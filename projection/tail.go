package projection

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// Tail reads the end of the log once for all projectors of a process, so that each event is read and decoded once. A projector that
// is too far behind for the tail reads the log by itself until it has caught up.
type Tail struct {
	store  eventstore.Store
	filter eventstore.Filter

	mu        sync.Mutex
	followers map[*follower]struct{}
	stop      context.CancelFunc // of the reader; nil when none reads
	err       error              // that the last reader ended with
	items     []feedItem         // in the order of the log
	dropped   int                // how many items were before these
	base      eventstore.Position
	bytes     int
	most      bounds
	grown     chan struct{} // closed by the next change; nil when nobody waits
}

// follower is a projector that follows the tail.
type follower struct {
	cursor int        // number of the item that it takes next
	away   bool       // it reads the log by itself
	taken  []feedItem // its latest items: their memory is that of the next ones
}

// bounds are of what a tail holds.
type bounds struct {
	items int
	bytes int // of payload
	// spare is how many that every follower has taken, so that who reads the log by itself finds its way back. More would
	// be work for the garbage collector.
	spare int
}

// tailRest is the least time between two reads of the log, so that appends which come one by one are read together. It is longer
// while many come.
const tailRest = 4 * time.Millisecond

// NewTail prepares a tail for these projectors. It reads while at least one of them follows it.
func NewTail(store eventstore.Store, projectors ...Projector) *Tail {
	return &Tail{
		store: store, filter: union(projectors), followers: map[*follower]struct{}{}, most: bounds{items: 5000, bytes: 3 << 20, spare: 500},
	}
}

// follow brings what comes after a position to a follower, as a subscription would, until the context ends or it
// fails.
func (t *Tail) follow(ctx context.Context, after eventstore.Position, filter eventstore.Filter, to chan<- feedItem) error {
	f := &follower{away: true}
	if err := t.join(ctx, f); err != nil {
		return err
	}
	defer t.leave(f)
	// The tail may hold events as they were before an erasure. With earlier ones read since, they would not fold. So what is on the
	// log by now is read here, and a projector that fails over such events succeeds the next time.
	head, err := t.store.Head(ctx)
	if err != nil {
		return err
	}
	if after < head {
		if after, err = t.catchUp(ctx, after, head, filter, to); err != nil {
			return err
		}
	}
	for {
		if base := t.seek(f, after); after < base {
			reached, err := t.catchUp(ctx, after, base, filter, to)
			if err != nil {
				return err
			}
			after = reached
			continue
		}
		for {
			items, on, err := t.next(ctx, f)
			if err != nil {
				return err
			}
			if !on {
				break // it was too slow, and the tail has dropped what comes next
			}
			if after, err = pass(ctx, items, after, filter, to); err != nil {
				return err
			}
		}
	}
}

// catchUp reads the log without the tail, until it has reached where the tail begins.
func (t *Tail) catchUp(ctx context.Context, after, base eventstore.Position, filter eventstore.Filter, to chan<- feedItem) (eventstore.Position, error) {
	for item, err := range t.store.Subscribe(ctx, after, filter) {
		if err != nil {
			return after, err
		}
		if err := send(ctx, decoded(item), to); err != nil {
			return after, err
		}
		if after = item.Position; after >= base {
			return after, nil
		}
	}
	return after, fmt.Errorf("%w: the subscription ended", eventstore.ErrUnavailable)
}

// pass sends the matching items after a position, and then a progress mark for the end of the items, unless the last one sent is
// there. It returns the position of the follower. One that has caught up by itself may be ahead of the tail.
func pass(ctx context.Context, items []feedItem, after eventstore.Position, filter eventstore.Filter, to chan<- feedItem) (eventstore.Position, error) {
	told := after
	for _, item := range items {
		if item.position > after && !item.isMark() && filter.Matches(item.event.Stream, item.event.Type) {
			if err := send(ctx, item, to); err != nil {
				return told, err
			}
			told = item.position
		}
	}
	end := items[len(items)-1]
	if end.position < told || end.position == told && !end.isMark() {
		return told, nil
	}
	return end.position, send(ctx, feedItem{position: end.position}, to)
}

// join adds a follower, and starts the reader if it is not running.
func (t *Tail) join(ctx context.Context, f *follower) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stop == nil {
		if len(t.followers) == 0 { // else somebody has come as far as the tail has, and goes on from there
			head, err := t.store.Head(ctx)
			if err != nil {
				return err
			}
			t.base = head
		}
		reading, stop := context.WithCancel(context.WithoutCancel(ctx))
		t.stop, t.err = stop, nil
		go t.read(reading, t.end())
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
	t.dropped, t.items, t.bytes = t.dropped+len(t.items), nil, 0
}

// end is how far the tail has read. The caller has the lock.
func (t *Tail) end() eventstore.Position {
	if len(t.items) == 0 {
		return t.base
	}
	return t.items[len(t.items)-1].position
}

// read fills the tail until the context ends or the log cannot be read.
func (t *Tail) read(ctx context.Context, after eventstore.Position) {
	err := fmt.Errorf("%w: the subscription ended", eventstore.ErrUnavailable)
	began, events := time.Now(), 0
	for item, failed := range t.store.Subscribe(ctx, after, t.filter) {
		if failed != nil {
			err = failed
			break
		}
		if !t.add(ctx, decoded(item)) {
			return
		}
		if item.Event != nil {
			events++
			continue
		}
		if eventstore.Sleep(ctx, time.Until(began.Add(crowded(tailRest, events)))) != nil { // there is no more for now
			return
		}
		began, events = time.Now(), 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() == nil { // else it was told to stop, and another may read already
		t.stop()
		t.stop, t.err = nil, err
		t.wake()
	}
}

// add is false when the reader was told to stop.
func (t *Tail) add(ctx context.Context, item feedItem) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	t.items = append(t.items, item)
	t.bytes += item.size()
	t.drop()
	t.wake()
	return true
}

// drop drops the items that all have taken and, if there are still too many, the older half.
func (t *Tail) drop() {
	n := 0
	if len(t.items) >= 2*t.most.spare {
		n = t.taken() - t.most.spare
	}
	if len(t.items) > t.most.items || t.bytes > t.most.bytes {
		n = max(n, len(t.items)/2, 1)
	} else if n < max(1, t.most.spare) { // it would not be worth the copy
		return
	}
	for _, item := range t.items[:n] {
		t.bytes -= item.size()
	}
	t.base = t.items[n-1].position
	t.dropped += n
	t.items = slices.Clone(t.items[n:])
}

// taken is how many of the items every follower has taken.
func (t *Tail) taken() int {
	n := len(t.items)
	for f := range t.followers {
		if !f.away {
			n = min(n, f.cursor-t.dropped)
		}
	}
	return n
}

// wake is for those who wait. The caller has the lock.
func (t *Tail) wake() {
	if t.grown != nil {
		close(t.grown)
		t.grown = nil
	}
}

// seek sets a follower to the first item after a position, and returns where the tail begins: if that is after the position, the
// follower has to read by itself.
func (t *Tail) seek(f *follower, after eventstore.Position) (base eventstore.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.cursor = t.dropped + sort.Search(len(t.items), func(i int) bool { return t.items[i].position > after })
	f.away = after < t.base
	return t.base
}

// next waits for the items that a follower takes next. They may be used until the next call. On is false when the tail has
// dropped them: the follower was too slow.
func (t *Tail) next(ctx context.Context, f *follower) (items []feedItem, on bool, err error) {
	clear(f.taken) // so that nothing is kept while nothing comes
	for {
		t.mu.Lock()
		switch i := f.cursor - t.dropped; {
		case i < 0:
			t.mu.Unlock()
			return nil, false, nil
		case i < len(t.items):
			f.taken = append(f.taken[:0], t.items[i:min(i+500, len(t.items))]...)
			f.cursor += len(f.taken)
			t.mu.Unlock()
			return f.taken, true, nil
		case t.stop == nil:
			err := t.err
			t.mu.Unlock()
			return nil, false, err
		}
		if t.grown == nil {
			t.grown = make(chan struct{})
		}
		grown := t.grown
		t.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}
