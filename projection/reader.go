package projection

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
)

// batch is the events that a view selects from a range of the log, applied in one transaction. Without events it only
// moves the checkpoint.
type batch struct {
	events   []Event
	position eventstore.Position // everything up to here is in this batch or an earlier one; 0: empty
}

// A replay gathers pages into batches of about this size. Larger batches are slower: the garbage collector scans their
// events again and again.
const (
	readEvents = 2000
	readBytes  = 4 << 20 // of payload
)

// logRange is a range of the log: the events that a filter selects after one position, up to another.
type logRange struct {
	after, end eventstore.Position
	filter     eventstore.Filter
}

// readLog calls each with the decoded batches of a range, in the order of the log. Reading, decoding and each run
// concurrently.
func readLog(ctx context.Context, store eventstore.Store, r logRange, each func(context.Context, batch) error) error {
	if r.after >= r.end {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	gathered, decoded := make(chan batch), make(chan batch)
	group.Go(func() error {
		defer close(gathered)
		return gather(ctx, store, r, gathered)
	})
	group.Go(func() error {
		defer close(decoded)
		for b := range gathered {
			eventstore.DecodeAll(b.events)
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

// gather cuts a range into batches of undecoded events. The last batch ends at the end of the range.
func gather(ctx context.Context, store eventstore.Store, r logRange, to chan<- batch) error {
	var b batch
	bytes := 0
	for page, err := range eventstore.ReadTo(ctx, store, r.after, r.end, r.filter) {
		if err != nil {
			return err
		}
		b.position = page.Position
		b.events = slices.Grow(b.events, len(page.Events))
		for i := range page.Events {
			b.events = append(b.events, Event{Recorded: &page.Events[i]})
			bytes += len(page.Events[i].Data)
		}
		if b.position < r.end && len(b.events) < readEvents && bytes < readBytes {
			continue // pages of which the filter selects little share a batch
		}
		if err := send(ctx, b, to); err != nil {
			return err
		}
		b, bytes = batch{}, 0
	}
	return nil
}

// send sends a value to a channel, unless the context is done.
func send[T any](ctx context.Context, value T, to chan<- T) error {
	select {
	case to <- value:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
