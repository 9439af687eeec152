package projection

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Bounds of a batch of a fold. With as many batches as are in memory at a time, a replay of a log of any size stays under 256 MiB.
// Larger batches would be slower: the garbage collector scans what is in memory again and again.
const (
	foldEvents = 2000
	foldBytes  = 4 << 20 // of payload
)

// logRange is a part of the log: what a filter selects after a position, up to another position that the log has.
type logRange struct {
	after, end eventstore.Position
	filter     eventstore.Filter
}

// fold calls each with the batches of a range, in the order of the log. Reading, decoding and each run at the same time.
func fold(ctx context.Context, store eventstore.Store, s logRange, each func(context.Context, batch) error) error {
	if s.after >= s.end {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	read, decoded := make(chan batch), make(chan batch)
	group.Go(func() error {
		defer close(read)
		return gather(ctx, store, s, read)
	})
	group.Go(func() error {
		defer close(decoded)
		for b := range read {
			if err := decodeAll(b.events); err != nil {
				return err
			}
			if err := send(ctx, b, decoded); err != nil {
				return err
			}
		}
		return nil
	})
	group.Go(func() error {
		for b := range decoded {
			if err := each(ctx, b); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// send gives something to a channel, unless the context ends.
func send[T any](ctx context.Context, what T, to chan<- T) error {
	select {
	case to <- what:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gather cuts a range into batches, whose events are not decoded yet. The last one ends where the range does.
func gather(ctx context.Context, store eventstore.Store, s logRange, to chan<- batch) error {
	b, bytes := batch{events: make([]Event, 0, foldEvents)}, 0
	for item, err := range store.Subscribe(ctx, s.after, s.filter) {
		if err != nil {
			return err
		}
		if item.Event != nil && item.Position <= s.end {
			b.events = append(b.events, Event{Recorded: item.Event})
			bytes += len(item.Event.Data)
		}
		b.position = min(item.Position, s.end)
		full := len(b.events) >= foldEvents || bytes >= foldBytes
		if b.position < s.end && !full {
			continue
		}
		if err := send(ctx, b, to); err != nil {
			return err
		}
		if b.position == s.end {
			return nil
		}
		b, bytes = batch{events: make([]Event, 0, foldEvents)}, 0
	}
	return fmt.Errorf("%w: the subscription ended", eventstore.ErrUnavailable)
}

// decodeAll decodes a batch on all processors. The error names the first event that this program cannot read.
func decodeAll(events []Event) error {
	var group errgroup.Group
	parts := runtime.GOMAXPROCS(0)
	errs := make([]error, parts)
	for i := range parts {
		part := events[len(events)*i/parts : len(events)*(i+1)/parts]
		group.Go(func() error {
			errs[i] = decodeEach(part)
			return nil
		})
	}
	_ = group.Wait() // errors are told in the order of the log
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeEach(events []Event) (err error) {
	for i := range events {
		if events[i].Data, err = decodeEvent(events[i].Recorded); err != nil {
			return err
		}
	}
	return nil
}

func decodeEvent(r *eventstore.Recorded) (event.Data, error) {
	data, err := r.Decode()
	if err != nil {
		return nil, fmt.Errorf("event at position %d of stream %s: %w", r.Position, r.Stream, err)
	}
	return data, nil
}
