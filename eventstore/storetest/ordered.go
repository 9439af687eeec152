package storetest

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/leadlog/leadlog/eventstore"
)

// Ordered is what one process sees of a store that applies the writes of an append one after the other, checks first, as
// EventStoreDB does, whatever the store below can do. Several processes on one store are several of these over it.
type Ordered struct {
	eventstore.Store // the store below

	// Before is called before each single thing that the process asks of the store. Others may go on meanwhile. An
	// error stops the process there, as kill -9 would: nothing that it asks for from then on reaches the store.
	Before func(Step) error

	mu      sync.Mutex
	stopped error
}

// Step is a single thing that is asked of a store.
type Step struct {
	Stream string
	Writes bool // otherwise it reads, or checks, which is a read too
}

func (o *Ordered) before(step Step) error {
	o.mu.Lock()
	stopped := o.stopped
	o.mu.Unlock()
	if stopped != nil || o.Before == nil {
		return stopped
	}
	err := o.Before(step)
	if err != nil {
		o.mu.Lock()
		o.stopped = err
		o.mu.Unlock()
	}
	return err
}

func (o *Ordered) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if err := eventstore.Validate(writes); err != nil {
		return 0, err
	}
	bodies := slices.DeleteFunc(slices.Clone(writes), func(w eventstore.Write) bool { return len(w.Events) == 0 })
	for _, check := range writes {
		if len(check.Events) > 0 {
			continue
		}
		if err := o.before(Step{Stream: check.Stream}); err != nil {
			return 0, err
		}
		if _, err := o.Store.Append(ctx, check); err != nil {
			return o.unlessStanding(ctx, bodies, err)
		}
	}
	if len(bodies) == 0 {
		return o.Head(ctx)
	}
	var position eventstore.Position
	for _, w := range bodies {
		if err := o.before(Step{Stream: w.Stream, Writes: true}); err != nil {
			return 0, err
		}
		var err error
		if position, err = o.Store.Append(ctx, w); err != nil {
			return 0, err
		}
	}
	return position, nil
}

// unlessStanding judges a failed check: it counts for nothing if the same append succeeded before the checked stream moved.
func (o *Ordered) unlessStanding(ctx context.Context, bodies []eventstore.Write, failed error) (eventstore.Position, error) {
	var position eventstore.Position
	if eventstore.Conflict(failed) == nil {
		return 0, failed
	}
	for _, w := range bodies {
		var there []eventstore.Recorded
		from := eventstore.Revision(max(w.Expect, eventstore.NoStream) + 1)
		for recorded, err := range o.Read(ctx, w.Stream, from) {
			if err != nil {
				return 0, err
			}
			if len(there) > 0 || w.Expect != eventstore.Any || recorded.ID == w.Events[0].ID {
				there = append(there, recorded)
			}
			if len(there) == len(w.Events) {
				break
			}
		}
		if !slices.Equal(recordedIDs(there), ids(w.Events)) {
			return 0, failed
		}
		position = there[len(there)-1].Position
	}
	if position == 0 {
		return 0, failed
	}
	return position, nil
}

func (o *Ordered) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		if err := o.before(Step{Stream: stream}); err != nil {
			yield(eventstore.Recorded{}, err)
			return
		}
		o.Store.Read(ctx, stream, from)(yield)
	}
}

func (o *Ordered) Last(ctx context.Context, stream string) (eventstore.Recorded, error) {
	if err := o.before(Step{Stream: stream}); err != nil {
		return eventstore.Recorded{}, err
	}
	return o.Store.Last(ctx, stream)
}

func (o *Ordered) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
		if err := o.before(Step{}); err != nil {
			yield(eventstore.Item{}, err)
			return
		}
		o.Store.Subscribe(ctx, after, filter)(yield)
	}
}

// Atomic implements eventstore.Store: whatever the store below does, writes reach it one by one.
func (o *Ordered) Atomic() bool { return false }

func (o *Ordered) Head(ctx context.Context) (eventstore.Position, error) {
	if err := o.before(Step{}); err != nil {
		return 0, err
	}
	return o.Store.Head(ctx)
}
