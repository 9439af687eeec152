package eventstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// ErrContended means that an append had conflicts until the deadline. Nothing was written.
var ErrContended = errors.New("too many writers on the same streams")

const (
	// conflictDeadline bounds how long a decision is retried after conflicts.
	conflictDeadline = 5 * time.Second
	// queueDeadline bounds how long a caller waits for its turn, so that each of many callers gets a result.
	queueDeadline = 15 * time.Second
)

// Transactor retries decisions after conflicts. Within the process, callers with the same streams queue instead of racing, so that each of
// many concurrent arrivals of one person decides on the state that the previous one wrote.
//
// The zero value is ready to use.
type Transactor struct {
	mu    sync.Mutex
	queue map[string]*turn
}

// turn is a lock that can be awaited with a context. It is deleted when no caller holds or awaits it.
type turn struct {
	taken   chan struct{} // holds one value while a caller holds the turn
	callers int           // that hold or await it
}

// Do waits for the turn of each stream, and runs attempt while it holds them. It repeats attempt after each *ConflictError until there is
// another result. The error is ErrContended after five seconds of conflicts, or after fifteen without a turn.
//
// An attempt loads, folds, decides and appends. It must handle conflicts on any stream: other processes do not share the queue.
func (t *Transactor) Do(ctx context.Context, streams []string, attempt func(context.Context) error) error {
	release, err := t.enter(ctx, streams)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, conflictDeadline, ErrContended)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 64*time.Millisecond) {
		err := attempt(ctx)
		if Conflict(err) == nil {
			return outcome(ctx, err)
		}
		if Sleep(ctx, rand.N(pause)) != nil {
			return context.Cause(ctx)
		}
	}
}

// Sleep waits for a duration, or until the context is done, and returns the context's error then.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outcome distinguishes the deadline of an attempt from the caller's own: an interrupted attempt may have appended.
func outcome(ctx context.Context, err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), ErrContended) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// enter takes the turns in the order of the stream names, which prevents deadlocks.
func (t *Transactor) enter(ctx context.Context, streams []string) (release func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queueDeadline, ErrContended)
	defer cancel()
	streams = slices.Compact(slices.Sorted(slices.Values(streams)))
	held := 0
	release = func() {
		for _, s := range streams[:held] {
			t.leave(s, true)
		}
	}
	for _, s := range streams {
		select {
		case t.turnOf(s).taken <- struct{}{}:
			held++
		case <-ctx.Done():
			t.leave(s, false)
			release()
			return nil, context.Cause(ctx)
		}
	}
	return release, nil
}

// turnOf returns the turn of a stream, and counts the caller.
func (t *Transactor) turnOf(stream string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue == nil {
		t.queue = make(map[string]*turn)
	}
	entry := t.queue[stream]
	if entry == nil {
		entry = &turn{taken: make(chan struct{}, 1)}
		t.queue[stream] = entry
	}
	entry.callers++
	return entry
}

// leave ends the call of a caller that holds or awaits a turn.
func (t *Transactor) leave(stream string, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := t.queue[stream]
	if held {
		<-turn.taken
	}
	if turn.callers--; turn.callers == 0 {
		delete(t.queue, stream)
	}
}
