// Package draft is a log for dry runs, and for decisions that are appended together. Its appends are read after the
// events of the log below, but are only in memory. The log below is never written to.
package draft

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/leadlog/leadlog/eventstore"
)

// Store is a draft on a store. It keeps all its appends in memory. Subscriptions, the head and the epoch are those of
// the log below, without the draft.
type Store struct {
	eventstore.Store      // the log below
	presumes         bool // that streams are as appends expect them

	writes []eventstore.Write // all appends as one
	index  map[string]int     // of the write of a stream

	mu       sync.Mutex
	streams  map[string]*stream
	position eventstore.Position // of the newest event of the draft, from 1
}

// stream is the events that a draft adds to a stream.
type stream struct {
	first  eventstore.Revision // revision of the first added event; earlier events are in the log below
	events []eventstore.Recorded
}

func (s *stream) end() eventstore.Expected {
	return eventstore.At(s.first + eventstore.Revision(len(s.events)) - 1)
}

// On returns an empty draft on a log.
func On(below eventstore.Store) *Store {
	return &Store{Store: below, streams: map[string]*stream{}, index: map[string]int{}}
}

// Presuming returns an empty draft on a log whose streams are not looked up: an append to one that the draft has not
// changed always passes. An append of Writes then tells whether it was right.
func Presuming(below eventstore.Store) *Store {
	s := On(below)
	s.presumes = true
	return s
}

// Writes returns all appends of the draft as one append to the log below. It fails there when a stream is not as the
// first append that named it expected.
func (s *Store) Writes() []eventstore.Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// note adds a write to those of the draft. The caller holds the lock.
func (s *Store) note(w eventstore.Write) {
	i, known := s.index[w.Stream]
	if !known {
		s.index[w.Stream] = len(s.writes)
		w.Events = slices.Clip(w.Events)
		s.writes = append(s.writes, w)
		return
	}
	s.writes[i].Events = append(s.writes[i].Events, w.Events...)
}

// Append implements eventstore.Store, except that repeated appends are not idempotent: the result of an append to a
// draft is never lost. A check of a stream that the draft has not changed always passes: the stream was just read, and
// concurrent appends of others are not part of the draft.
func (s *Store) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if err := eventstore.Validate(writes); err != nil {
		return 0, err
	}
	below := make([]eventstore.Expected, len(writes))
	for i, w := range writes {
		var err error
		if below[i], err = s.endBelow(ctx, w); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range writes {
		if here := s.streams[w.Stream]; here != nil {
			below[i] = here.end()
		}
		if w.Expect != below[i] && w.Expect != eventstore.Any {
			return 0, &eventstore.ConflictError{Stream: w.Stream, Expected: w.Expect, Actual: below[i]}
		}
	}
	for i, w := range writes {
		s.add(w, below[i])
		s.note(w)
	}
	return s.position, nil
}

// endBelow returns the end of a write's stream on the log below, or the expected one if that is presumed or the write is
// a check.
func (s *Store) endBelow(ctx context.Context, w eventstore.Write) (eventstore.Expected, error) {
	if len(w.Events) == 0 || s.presumes && w.Expect != eventstore.Any || s.known(w.Stream) != nil {
		return w.Expect, nil
	}
	last, err := s.Store.Last(ctx, w.Stream)
	return eventstore.After(last), err
}

func (s *Store) known(name string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[name]
}

// add appends events to a stream in memory. The caller holds the lock.
func (s *Store) add(w eventstore.Write, end eventstore.Expected) {
	if len(w.Events) == 0 {
		return
	}
	here := s.streams[w.Stream]
	if here == nil {
		here = &stream{first: eventstore.Revision(end) + 1} // no stream is -1
		s.streams[w.Stream] = here
	}
	for _, e := range w.Events {
		s.position++
		here.events = append(here.events, eventstore.Recorded{
			Event: e, Stream: w.Stream, Revision: here.first + eventstore.Revision(len(here.events)),
			Position: s.position,
		})
	}
}

// Read implements eventstore.Store: the events of the log below, then those of the draft.
func (s *Store) Read(ctx context.Context, name string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		s.mu.Lock()
		var here stream
		if known := s.streams[name]; known != nil {
			here = *known // later appends follow these events
		}
		s.mu.Unlock()
		if here.events == nil || from < here.first {
			for recorded, err := range s.Store.Read(ctx, name, from) {
				if err == nil && here.events != nil && recorded.Revision >= here.first {
					break // appended to the log below since
				}
				if !yield(recorded, err) || err != nil {
					return
				}
			}
		}
		for _, recorded := range here.events {
			if recorded.Revision >= from && !yield(recorded, nil) {
				return
			}
		}
	}
}

// Last implements eventstore.Store.
func (s *Store) Last(ctx context.Context, name string) (eventstore.Recorded, error) {
	if here := s.end(name); here.Revision >= 0 {
		return here, nil
	}
	return s.Store.Last(ctx, name)
}

// end returns the last event that the draft adds to a stream; its revision is negative if there is none.
func (s *Store) end(name string) eventstore.Recorded {
	s.mu.Lock()
	defer s.mu.Unlock()
	if here := s.streams[name]; here != nil && len(here.events) > 0 {
		return here.events[len(here.events)-1]
	}
	return eventstore.Recorded{Revision: -1}
}
