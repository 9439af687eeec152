package storetest

import (
	"context"
	"iter"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore"
)

// memory makes a store of the model: the suite is tried on it before any engine, and on faults built into it.
type memory struct {
	mu      sync.Mutex
	model   model
	grown   chan struct{} // closed and replaced by every append
	epoch   string
	faulty  fault
	appends int
}

var _ eventstore.Store = (*memory)(nil)

func openMemory(can Capabilities, faulty fault) func(testing.TB) eventstore.Store {
	return func(testing.TB) eventstore.Store {
		return &memory{model: model{can: can}, grown: make(chan struct{}), epoch: ulid.Make().String(), faulty: faulty}
	}
}

func (m *memory) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.appends++
	before := len(m.model.all)
	position, err := m.faulty.append(m, cloned(writes))
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

func (m *memory) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		m.mu.Lock()
		events := m.model.stream(stream)
		m.mu.Unlock()
		for _, r := range events[min(int(from), len(events)):] {
			if ctx.Err() != nil {
				break
			}
			if !yield(m.faulty.read(r), nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(eventstore.Recorded{}, err)
		}
	}
}

func (m *memory) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		for last := after; ; {
			m.mu.Lock()
			events, head, grown := m.model.after(last, everything), m.model.head(), m.grown
			m.mu.Unlock()
			for _, item := range m.faulty.items(events, head, filter) {
				if ctx.Err() != nil {
					break
				}
				if !yield(item, nil) {
					return
				}
			}
			last = head
			select {
			case <-ctx.Done():
				yield(eventstore.Item{}, ctx.Err())
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
