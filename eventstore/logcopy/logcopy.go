// Package logcopy copies a log into another store, and compares the two: every event, in log order, with its id, stream
// and revision. Only positions differ.
//
// The target must be empty or contain exactly the first events of the source. So an interrupted copy continues where it
// stopped, new events of the source can be copied later, and a log that was moved can be moved back.
package logcopy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/leadlog/leadlog/eventstore"
)

// ErrOther means that the target's events are not the first events of the source.
var ErrOther = errors.New("the target is not a copy of the source")

// Copy copies the events of From to To. There must be no other writer of To; From may grow.
type Copy struct {
	From, To eventstore.Store
	Progress func(done, end eventstore.Position) // of From
}

// Run copies the events up to the present head of From.
func (c Copy) Run(ctx context.Context) error {
	end, err := c.From.Head(ctx)
	if err != nil {
		return err
	}
	have, err := c.To.Head(ctx)
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(upTo(ctx, c.To, have))
	defer stop()
	b := batch{store: c.To}
	for e, err := range upTo(ctx, c.From, end) {
		if err != nil {
			return err
		}
		copied, err, more := next()
		switch {
		case err != nil:
			return err
		case more && !same(e, copied):
			return fmt.Errorf("%w: at its position %d is revision %d of stream %s, not revision %d of stream %s as "+
				"at position %d of the source",
				ErrOther, copied.Position, copied.Revision, copied.Stream, e.Revision, e.Stream, e.Position)
		case !more:
			if err := b.add(ctx, e); err != nil {
				return err
			}
		}
		c.Progress(e.Position, end)
	}
	if copied, err, more := next(); err != nil {
		return err
	} else if more {
		return fmt.Errorf("%w: it has more events after position %d, where the source ends", ErrOther, copied.Position)
	}
	return b.flush(ctx)
}

// upTo yields the events of a log up to a position.
func upTo(ctx context.Context, store eventstore.Store, end eventstore.Position) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		for page, err := range eventstore.ReadTo(ctx, store, 0, end, eventstore.Filter{}) {
			if err != nil {
				yield(eventstore.Recorded{}, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// same compares all fields except the position.
func same(a, b eventstore.Recorded) bool {
	return a.ID == b.ID && a.Stream == b.Stream && a.Revision == b.Revision && a.Type == b.Type && a.At.Equal(b.At) &&
		a.Metadata == b.Metadata && bytes.Equal(a.Data, b.Data)
}

// batch collects events for one append. Its writes are in log order, which every store keeps.
type batch struct {
	store  eventstore.Store
	writes []eventstore.Write
	within map[string]bool
	events int
	bytes  int // of data and metadata
}

const (
	maxEvents = 256
	maxBytes  = 512 << 10 // well below the limit of EventStoreDB; a single event may be larger
)

func (b *batch) add(ctx context.Context, e eventstore.Recorded) error {
	metadata, err := e.Metadata.Encode()
	if err != nil {
		return err
	}
	size := len(e.Data) + len(metadata)
	last := len(b.writes) - 1
	goesOn := last >= 0 && b.writes[last].Stream == e.Stream
	if b.events >= maxEvents || b.events > 0 && b.bytes+size > maxBytes || b.within[e.Stream] && !goesOn {
		if err := b.flush(ctx); err != nil {
			return err
		}
		goesOn = false
	}
	b.events++
	b.bytes += size
	if goesOn {
		b.writes[last].Events = append(b.writes[last].Events, e.Event)
		return nil
	}
	if b.within == nil {
		b.within = make(map[string]bool)
	}
	b.within[e.Stream] = true
	b.writes = append(b.writes, eventstore.Write{
		// NoStream is at -1
		Stream: e.Stream, Expect: eventstore.At(e.Revision - 1), Events: []eventstore.Event{e.Event},
	})
	return nil
}

// flush appends the collected events.
func (b *batch) flush(ctx context.Context) error {
	if b.events == 0 {
		return nil
	}
	_, err := b.store.Append(ctx, b.writes...)
	if conflict := eventstore.Conflict(err); conflict != nil {
		err = fmt.Errorf("%w: it has another writer: %w", ErrOther, err)
	}
	*b = batch{store: b.store}
	return err
}
