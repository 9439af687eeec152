package storetest

import (
	"context"
	"iter"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
)

// Memory returns an in-memory store, for tests with more cases than an engine can run in time.
func Memory() eventstore.Store { return newMemory(correct{}) }

// memory is a store on top of the model.
type memory struct {
	mu        sync.Mutex
	model     model
	grown     chan struct{} // closed and replaced by every append
	epoch     string
	behaviour behaviour
	appends   int
}

var _ eventstore.Store = (*memory)(nil)

// behaviour is the behaviour of a memory store: that of the model, or with a fault.
type behaviour interface {
	append(m *memory, writes []eventstore.Write) (eventstore.Position, error)
	read(r eventstore.Recorded) eventstore.Recorded
	pages(read []eventstore.Recorded, after, head eventstore.Position, filter eventstore.Filter) []eventstore.Page
}

// correct is the behaviour without faults.
type correct struct{}

func (correct) append(m *memory, writes []eventstore.Write) (eventstore.Position, error) {
	return m.model.append(writes)
}

func (correct) read(r eventstore.Recorded) eventstore.Recorded { return r }

func (correct) pages(
	read []eventstore.Recorded, _, head eventstore.Position, filter eventstore.Filter,
) []eventstore.Page {
	if len(read) == 0 {
		return nil
	}
	page := eventstore.Page{Position: head}
	for _, r := range read {
		if filter.Matches(r.Stream, r.Type) {
			page.Events = append(page.Events, r)
		}
	}
	return []eventstore.Page{page}
}

func newMemory(behaviour behaviour) *memory {
	return &memory{grown: make(chan struct{}), epoch: ulid.Make().String(), behaviour: behaviour}
}

func (m *memory) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.appends++
	before := len(m.model.all)
	position, err := m.behaviour.append(m, cloned(writes))
	if len(m.model.all) > before {
		close(m.grown)
		m.grown = make(chan struct{})
	}
	return position, err
}

func cloned(writes []eventstore.Write) []eventstore.Write {
	writes = append([]eventstore.Write(nil), writes...)
	for i := range writes {
		events := append([]eventstore.Event(nil), writes[i].Events...)
		for j := range events {
			events[j].Data = append([]byte(nil), events[j].Data...)
		}
		writes[i].Events = events
	}
	return writes
}

func (m *memory) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		m.mu.Lock()
		events := m.model.stream(stream)
		m.mu.Unlock()
		for _, r := range events[min(int(from), len(events)):] {
			if ctx.Err() != nil {
				break
			}
			if !yield(m.behaviour.read(r), nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(eventstore.Recorded{}, err)
		}
	}
}

func (m *memory) Last(ctx context.Context, stream string) (eventstore.Recorded, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.model.stream(stream)
	if len(events) == 0 || ctx.Err() != nil {
		return eventstore.Recorded{}, ctx.Err()
	}
	return m.behaviour.read(events[len(events)-1]), nil
}

// pageEvents bounds the events that a page is made of.
const pageEvents = 500

func (m *memory) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		for last := after; ; {
			m.mu.Lock()
			events, head, grown := m.model.after(last), m.model.head(), m.grown
			m.mu.Unlock()
			if len(events) > pageEvents {
				events = events[:pageEvents]
				head = events[pageEvents-1].Position
			}
			for _, page := range m.behaviour.pages(events, last, head, filter) {
				if ctx.Err() != nil {
					break
				}
				if !yield(page, nil) {
					return
				}
			}
			last = head
			if len(events) == pageEvents && ctx.Err() == nil {
				continue
			}
			select {
			case <-ctx.Done():
				yield(eventstore.Page{}, ctx.Err())
				return
			case <-grown:
			}
		}
	}
}

func (m *memory) Head(ctx context.Context) (eventstore.Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.model.head(), ctx.Err()
}

func (m *memory) Epoch(ctx context.Context) (string, error) { return m.epoch, ctx.Err() }
