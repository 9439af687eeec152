package sealed

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// What a subscription reads ahead of its consumer, so that the keys of many events are looked up at once.
const (
	aheadItems = 2000
	aheadBytes = 4 << 20 // of payload

	// mostBuffer is what a subscription keeps to open the next events in: enough for as many of the usual size.
	mostBuffer = 1 << 20
)

// Subscribe implements eventstore.Store. Nothing waits for more: what has come when the consumer asks is opened together.
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
		looking := forensics{}
		for {
			items, err, ended := a.take()
			if s.forensic {
				looking.note(items)
			}
			var opening error
			if buffer, opening = s.openAll(ctx, items, buffer[:0]); opening != nil {
				err = opening
				items = nil
			}
			if cap(buffer) > mostBuffer {
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

// readAhead is what a subscription has read and its consumer has not.
type readAhead struct {
	mu    sync.Mutex
	items []eventstore.Item
	bytes int
	err   error
	ended bool

	ready chan struct{} // holds one when there is something to take
	taken chan struct{} // holds one when something was taken
}

// put adds an item. It waits while there is too much, and is false when nobody wants any more.
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
		a.items[last] = item // which tells of a later position, so that no consumer rests at marks of long ago
	} else {
		a.items = append(a.items, item)
	}
	if item.Event != nil {
		a.bytes += len(item.Event.Data)
	}
	wake(a.ready)
	return true
}

// end says that nothing follows, and why.
func (a *readAhead) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended, a.err = true, err
	wake(a.ready)
}

// take waits for something and gives all of it. The subscription below ends with its context, so this does not wait for
// ever.
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

// openAll opens events in place. Keys that are not remembered are looked up together, and not remembered after: a replay
// goes over everybody once, and those who were here lately are worth more. What is sealed passes through a buffer, which
// is for the next ones then.
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
	rings := make(map[string][]opener, len(closed))
	var born, others []string // streams whose keys are to be looked up
	buffer = slices.Grow(buffer, bytes)
	for _, r := range closed {
		var v envelope
		var sealed bool
		if v, buffer, sealed = openEnvelope(r.Data, buffer); !sealed {
			continue
		}
		all = append(all, locked{v, r})
		keys, seen := rings[r.Stream]
		if !seen {
			if known, ok := s.cache.get(r.Stream); ok {
				keys = openers([]key{known.key})
			}
			rings[r.Stream] = keys
		}
		switch {
		case has(keys, v.keyID), seen && len(keys) == 0: // which is to be looked up already
		case r.Revision == 0 && strings.HasPrefix(r.Stream, event.LeadPrefix):
			born = append(born, r.Stream)
		default:
			others = append(others, r.Stream)
		}
	}
	found, err := s.vault.findMany(ctx, born, others)
	if err != nil {
		return buffer, err
	}
	for stream, keys := range found {
		rings[stream] = openers(keys)
	}
	for _, l := range all {
		if err := s.openWith(rings[l.event.Stream], l.envelope, l.event); err != nil {
			return buffer, err
		}
	}
	return buffer, nil
}

// unseal gives an event back as this process appended it, as long as the key that sealed it is remembered: what was
// forgotten meanwhile is opened like anything else, and found erased, also when its stream has another key since.
func (s *Store) unseal(r *eventstore.Recorded) bool {
	before, id := r.Unsealed.Event, r.Unsealed.KeyID
	r.Unsealed = eventstore.Unsealed{}
	if known, ok := s.cache.get(r.Stream); !ok || known.id != id {
		return false
	}
	r.Data, r.Metadata, r.Decoded = before.Data, before.Metadata, before.Decoded
	return true
}

// closed are the events that may have to be opened, and what they hold. The others it gives back as they were appended.
func (s *Store) closed(items []eventstore.Item) (closed []*eventstore.Recorded, bytes int) {
	for _, item := range items {
		r := item.Event
		if r == nil || !About(r.Stream) || r.Unsealed.Event != nil && s.unseal(r) {
			continue
		}
		closed = append(closed, r)
		bytes += len(r.Data)
	}
	return closed, bytes
}

// Forensic returns the same store for finding damage. It marks an event that does not open, or whose key does not, as damaged and
// erased; the store itself returns ErrDamaged there and nothing after it, because nobody may act on such an event. Its
// subscriptions also show each event as it is stored, and mark as damaged one that is not sealed although earlier ones are.
func (s *Store) Forensic() *Store {
	forensic := *s
	forensic.forensic = true
	return &forensic
}

// forensics is what a subscription that looks for damage has seen.
type forensics struct{ sealed bool } // any event

// note takes down events before they are opened.
func (f *forensics) note(items []eventstore.Item) {
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
		r.Damaged = f.sealed && !sealed
		f.sealed = f.sealed || sealed
	}
}
