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

// conflictDeadline bounds how long a decision is retried after conflicts.
const conflictDeadline = 5 * time.Second

// Transactor is the queue of the decisions of a process. Decisions on the same streams wait for each other instead of
// racing, so that each of many concurrent arrivals of one person decides on the state that the previous one wrote.
//
// The zero value is ready to use.
type Transactor struct {
	mu      sync.Mutex
	streams ticketQueue
}

// Do makes a decision on streams: it waits until the earlier ones on any of them are made, and calls Retry.
func (t *Transactor) Do(ctx context.Context, streams []string, attempt func(context.Context) error) error {
	decision := t.Join(streams...)
	defer decision.Leave()
	if err := decision.Wait(ctx); err != nil {
		return err
	}
	return Retry(ctx, attempt)
}

// Decision is a turn in the queue of the streams that it was made for.
type Decision struct {
	queue  *Transactor
	ticket ticket
	ready  chan struct{} // closed when all earlier decisions have left; nil if there was none
}

// Join queues for streams. The caller must call Leave in the end. To join other streams before that, all callers must
// join the two kinds of streams in the same order.
func (t *Transactor) Join(streams ...string) *Decision {
	d := &Decision{queue: t, ticket: newTicket(len(streams))}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, s := range streams {
		if !slices.Contains(streams[:i], s) {
			t.streams.join(&d.ticket, s, true)
		}
	}
	if d.ticket.blocked > 0 {
		d.ready = make(chan struct{})
		d.ticket.ready = func() { close(d.ready) }
	}
	return d
}

// Ready reports whether all earlier decisions have left.
func (d *Decision) Ready() bool {
	if d.ready == nil {
		return true
	}
	select {
	case <-d.ready:
		return true
	default:
		return false
	}
}

// Wait waits until all earlier decisions have left. The error is the cause of the context's end.
func (d *Decision) Wait(ctx context.Context) error {
	if d.Ready() {
		return nil
	}
	select {
	case <-d.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Leave ends the decision, or the waiting for it.
func (d *Decision) Leave() {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	d.queue.streams.leave(&d.ticket)
}

// Retry repeats an attempt after each *ConflictError until there is another result. The error is ErrContended after
// five seconds of conflicts.
//
// An attempt loads, folds, decides and appends. It must handle conflicts on any stream: other processes do not share
// the queue.
func Retry(ctx context.Context, attempt func(context.Context) error) error {
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
