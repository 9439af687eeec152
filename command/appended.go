package command

import (
	"context"
	"sync/atomic"

	"github.com/leadlog/leadlog/eventstore"
)

// countingStore counts the bytes that commands append, for those who limit them.
type countingStore struct{ eventstore.Store }

type appendedKey struct{}

// CountAppended returns a context in which commands add the bytes that they append to a counter.
func CountAppended(ctx context.Context, counter *atomic.Int64) context.Context {
	return context.WithValue(ctx, appendedKey{}, counter)
}

// Append implements eventstore.Store.
func (s countingStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	position, err := s.Store.Append(ctx, writes...)
	if counter, counts := ctx.Value(appendedKey{}).(*atomic.Int64); counts && err == nil {
		counter.Add(bytesOf(writes))
	}
	return position, err
}

// bytesOfEvent is what an event takes beside its data and what the caller chose of its metadata.
const bytesOfEvent = 256

func bytesOf(writes []eventstore.Write) (n int64) {
	for _, w := range writes {
		for i := range w.Events {
			e := &w.Events[i]
			n += int64(len(e.Data) + len(e.Metadata.RequestID) + len(e.Metadata.UserAgent) + bytesOfEvent)
		}
	}
	return n
}
