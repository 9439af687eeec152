package sealed

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Read implements eventstore.Store.
//
// A key is destroyed only after the fact of the erasure is on the stream. So when a key turns out to be gone, the stream is read
// again from there: a caller that gets an erased event also gets, further on, the fact that erased it.
func (s *Store) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	if !About(stream) {
		return s.Store.Read(ctx, stream, from)
	}
	return func(yield func(eventstore.Recorded, error) bool) {
		r := reading{Store: s, stream: stream, from: from}
		for r.again = true; r.again; {
			r.pass(ctx, yield)
		}
	}
}

// Last implements eventstore.Store. As Read, it reads the event again when its key turns out to be gone.
func (s *Store) Last(ctx context.Context, stream string) (eventstore.Recorded, error) {
	if !About(stream) {
		return s.Store.Last(ctx, stream)
	}
	r := reading{Store: s, stream: stream}
	for {
		r.again, r.version = false, r.cache.version()
		recorded, err := s.Store.Last(ctx, stream)
		if err == nil && !recorded.ID.IsZero() {
			err = r.open(ctx, &recorded)
		}
		if err != nil || !r.again {
			return recorded, err
		}
	}
}

// reading is one read of a stream.
type reading struct {
	*Store
	stream  string
	from    eventstore.Revision
	keys    []opener
	gone    []int64 // ids of keys that are not in the vault
	again   bool
	version uint64 // of the key cache, before this pass
	buffer  []byte // for the sealed part of an event
}

func (r *reading) pass(ctx context.Context, yield func(eventstore.Recorded, error) bool) {
	r.again, r.version = false, r.cache.version()
	for recorded, err := range r.Store.Store.Read(ctx, r.stream, r.from) {
		if err == nil {
			err = r.open(ctx, &recorded)
		}
		if r.again {
			return
		}
		if !yield(recorded, err) || err != nil {
			return
		}
		r.from = recorded.Revision + 1
	}
}

// open opens an event. It sets again if the stream is to be read again from there.
func (r *reading) open(ctx context.Context, recorded *eventstore.Recorded) error {
	v, buffer, sealed := openEnvelope(recorded.Data, r.buffer[:0])
	given := recorded.Key
	recorded.Key = nil
	if r.buffer = buffer; !sealed {
		return nil
	}
	if len(r.keys) == 0 {
		if known, ok := r.cache.get(r.stream); ok {
			r.keys = openers([]key{known.key})
			if !known.stored && known.id == v.keyID {
				r.cache.confirm(r.stream, v.keyID)
			}
		}
	}
	if given != nil {
		if err := r.use(*given); err != nil {
			return err
		}
	}
	if !has(r.keys, v.keyID) && !slices.Contains(r.gone, v.keyID) {
		keys, err := r.cache.lookUp(ctx, r.stream)
		if err != nil {
			return err
		}
		if r.keys = openers(keys); !has(r.keys, v.keyID) {
			r.gone, r.again = append(r.gone, v.keyID), true
			return nil
		}
	}
	return r.openWith(r.keys, v, recorded)
}

// use adds a key that the store below has read together with the events.
func (r *reading) use(given eventstore.Key) error {
	if has(r.keys, given.ID) {
		return nil
	}
	opened, err := r.vault.unseal(given)
	if err == nil {
		r.keys = append(r.keys, openers([]key{opened})...)
		r.cache.add(r.stream, opened, r.version, true)
	}
	return err
}

func has(keys []opener, id int64) bool {
	return slices.ContainsFunc(keys, func(o opener) bool { return o.id == id })
}

// openWith opens an event with one of a stream's keys. Without its key, the event is erased.
func (s *Store) openWith(keys []opener, v envelope, recorded *eventstore.Recorded) error {
	for i := range keys {
		if keys[i].id != v.keyID {
			continue
		}
		err := v.open(&keys[i], recorded)
		if s.forensic && errors.Is(err, ErrDamaged) {
			recorded.Damaged = true
			break
		}
		return err
	}
	v.erase(recorded)
	return nil
}

// Bounds of a subscription.
const (
	aheadItems = 2000
	aheadBytes = 4 << 20 // of payload

	keptBuffer = 1 << 20 // bytes of the buffer that are kept for the next batch
)

// Subscribe implements eventstore.Store. It does not wait to fill a batch: all that has arrived when the consumer asks for the next
// event is opened together.
func (s *Store) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		reading, stop := context.WithCancel(ctx)
		a := readAhead{ready: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
		var reader sync.WaitGroup
		defer reader.Wait()
		defer stop()
		reader.Go(func() {
			for item, err := range s.Store.Subscribe(reading, after, filter) {
				if err != nil {
					a.end(err)
					return
				}
				if !a.put(reading, item) {
					a.end(reading.Err())
					return
				}
			}
			a.end(nil)
		})
		var buffer []byte
		damage := unsealedEvents{}
		for {
			items, err, ended := a.take()
			if s.forensic {
				damage.mark(items)
			}
			var opening error
			if buffer, opening = s.openAll(ctx, items, buffer[:0]); opening != nil {
				err = opening
				items = nil
			}
			if cap(buffer) > keptBuffer {
				buffer = nil
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if err != nil {
				yield(eventstore.Item{}, err)
			}
			if err != nil || ended {
				return
			}
		}
	}
}

// ReadRange implements eventstore.RangeReader. The keys of all its events are looked up together.
func (s *Store) ReadRange(ctx context.Context, r eventstore.Range) ([]eventstore.Recorded, eventstore.Position, error) {
	events, reached, err := eventstore.ReadRange(ctx, s.Store, r)
	if err != nil {
		return nil, 0, err
	}
	items := make([]eventstore.Item, len(events))
	for i := range events {
		items[i].Event = &events[i]
	}
	_, err = s.openAll(ctx, items, nil)
	return events, reached, err
}

// readAhead holds the items that a subscription has read and its consumer has not. With it, one query looks up the keys of up to
// 2000 events, and reads from the log go on while the consumer works; otherwise a replay would take a round trip for each event.
type readAhead struct {
	mu    sync.Mutex
	items []eventstore.Item
	bytes int
	err   error
	ended bool

	ready chan struct{} // holds one when there is something to take
	taken chan struct{} // holds one when something was taken
}

// put adds an item. It waits while there are too many, and returns false when the context ends.
func (a *readAhead) put(ctx context.Context, item eventstore.Item) bool {
	for {
		a.mu.Lock()
		if len(a.items) < aheadItems && a.bytes < aheadBytes {
			break
		}
		a.mu.Unlock()
		select {
		case <-a.taken:
		case <-ctx.Done():
			return false
		}
	}
	defer a.mu.Unlock()
	if last := len(a.items) - 1; last >= 0 && a.items[last].Event == nil {
		a.items[last] = item // a progress mark is superseded by what follows
	} else {
		a.items = append(a.items, item)
	}
	if item.Event != nil {
		a.bytes += len(item.Event.Data)
	}
	wake(a.ready)
	return true
}

// end records that nothing follows, and why.
func (a *readAhead) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended, a.err = true, err
	wake(a.ready)
}

// take waits for items and returns all. It needs no context: the subscription below ends with its own.
func (a *readAhead) take() (items []eventstore.Item, err error, ended bool) {
	<-a.ready
	a.mu.Lock()
	defer a.mu.Unlock()
	items, a.items, a.bytes = a.items, nil, 0
	wake(a.taken)
	return items, a.err, a.ended
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// openAll opens events in place. It looks up the keys that are not cached together, and does not cache them: a replay reads every
// stream once, and would evict the keys in use. The buffer is for the sealed parts; it is returned for the next batch.
func (s *Store) openAll(ctx context.Context, items []eventstore.Item, buffer []byte) ([]byte, error) {
	type locked struct {
		envelope
		event *eventstore.Recorded
	}
	closed, bytes := s.closed(items)
	if len(closed) == 0 { // as mostly in the process that has appended them
		return buffer, nil
	}
	all := make([]locked, 0, len(closed))
	keysOf := make(map[string][]opener, len(closed))
	var newLeads, others []string // streams whose keys are to be looked up
	buffer = slices.Grow(buffer, bytes)
	for _, r := range closed {
		var v envelope
		var sealed bool
		if v, buffer, sealed = openEnvelope(r.Data, buffer); !sealed {
			continue
		}
		all = append(all, locked{v, r})
		keys, seen := keysOf[r.Stream]
		if !seen {
			if known, ok := s.cache.get(r.Stream); ok {
				keys = openers([]key{known.key})
			}
			keysOf[r.Stream] = keys
		}
		switch {
		case has(keys, v.keyID), seen && len(keys) == 0: // the second is to be looked up already
		case r.Revision == 0 && strings.HasPrefix(r.Stream, event.LeadPrefix):
			newLeads = append(newLeads, r.Stream)
		default:
			others = append(others, r.Stream)
		}
	}
	found, err := s.vault.findMany(ctx, newLeads, others)
	if err != nil {
		return buffer, err
	}
	for stream, keys := range found {
		keysOf[stream] = openers(keys)
	}
	for _, l := range all {
		if err := s.openWith(keysOf[l.event.Stream], l.envelope, l.event); err != nil {
			return buffer, err
		}
	}
	return buffer, nil
}

// closed returns the events that may have to be opened, and the bytes of their data. It restores those that this process has
// appended itself.
func (s *Store) closed(items []eventstore.Item) (closed []*eventstore.Recorded, bytes int) {
	for _, item := range items {
		r := item.Event
		if r == nil || !About(r.Stream) || r.Unsealed.Event != nil && s.restore(r) {
			continue
		}
		closed = append(closed, r)
		bytes += len(r.Data)
	}
	return closed, bytes
}

// restore returns an event to what this process appended, if the key that sealed it is still cached. An event that was forgotten
// meanwhile is opened like any other, and found erased, even if its stream has another key now.
func (s *Store) restore(r *eventstore.Recorded) bool {
	before, id := r.Unsealed.Event, r.Unsealed.KeyID
	r.Unsealed = eventstore.Unsealed{}
	if known, ok := s.cache.get(r.Stream); !ok || known.id != id {
		return false
	}
	r.Data, r.Metadata, r.Decoded = before.Data, before.Metadata, before.Decoded
	return true
}

// Forensic returns the same store for finding damage. An event that does not open, or whose key does not, is returned as damaged
// and erased; the store itself returns ErrDamaged there and nothing after it, because such an event must not be acted on.
// Subscriptions also return each event as it is stored, and mark as damaged one that is not sealed although an earlier one is.
func (s *Store) Forensic() *Store {
	forensic := *s
	forensic.forensic = true
	return &forensic
}

// unsealedEvents detects events that are not sealed after the first sealed one.
type unsealedEvents struct{ sealed bool }

// mark adds to events what a forensic subscription returns, before they are opened.
func (u *unsealedEvents) mark(items []eventstore.Item) {
	for _, item := range items {
		r := item.Event
		if r == nil {
			continue
		}
		stored := r.Event
		r.Stored = &stored
		if !About(r.Stream) || bare(r.Type) {
			continue
		}
		_, _, sealed := openEnvelope(r.Data, nil)
		r.Damaged = u.sealed && !sealed
		u.sealed = u.sealed || sealed
	}
}
