package eventstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrContended says that an append met conflict after conflict until the deadline. Nothing was written.
var ErrContended = errors.New("too many writers on the same streams")

const (
	// conflictDeadline bounds how long a decision is taken again and again on conflicts.
	conflictDeadline = 5 * time.Second
	// queueDeadline bounds how long a caller waits for its turn, so that every caller of a crowd is answered, even if each
	// takes a while.
	queueDeadline = 15 * time.Second
)

// Transactor decides again when another writer was first. Within the process, callers that contend for the same
// streams queue instead of racing, so that of many simultaneous arrivals of one person each decides on what the
// one before it wrote.
//
// The zero value is ready to use.
type Transactor struct {
	mu    sync.Mutex
	queue map[string]*turn
}

// turn is a lock that can be waited for with a context. It is dropped when nobody has it or waits for it.
type turn struct {
	taken   chan struct{} // holds one value while somebody has the turn
	waiting int           // those who wait, and who has it
}

// Do runs attempt while holding the turn of every stream named, and again after each *ConflictError it returns,
// for at most five seconds; then the error is ErrContended, as it is after fifteen without the turn. Any other result
// ends it.
//
// An attempt loads, folds, decides and appends. It must not assume that the streams named are the only ones that
// can conflict: other processes know nothing of the queue.
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

// Sleep waits. It is cut short, with the context's error, when the context ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// outcome tells the deadline of an attempt under way from the caller's own: cut off in the middle,
// the attempt may have appended.
func outcome(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), ErrContended) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// enter takes the turns in the order of the names, so that two callers never wait for each other.
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
		case t.line(s).taken <- struct{}{}:
			held++
		case <-ctx.Done():
			t.leave(s, false)
			release()
			return nil, context.Cause(ctx)
		}
	}
	return release, nil
}

func (t *Transactor) line(stream string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue == nil {
		t.queue = make(map[string]*turn)
	}
	line := t.queue[stream]
	if line == nil {
		line = &turn{taken: make(chan struct{}, 1)}
		t.queue[stream] = line
	}
	line.waiting++
	return line
}

func (t *Transactor) leave(stream string, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.queue[stream]
	if held {
		<-line.taken
	}
	if line.waiting--; line.waiting == 0 {
		delete(t.queue, stream)
	}
}

// Load folds a stream. It returns the state, which for a stream without events is the zero value, and the
// revision to expect of the stream when appending what was decided on that state.
func Load[S any](ctx context.Context, store Store, stream string, evolve func(S, event.Fact) S) (S, Expected, error) {
	var state S
	end := NoStream
	for recorded, err := range store.Read(ctx, stream, 0) {
		if err != nil {
			return state, end, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return state, end, fmt.Errorf("stream %s at revision %d: %w", stream, recorded.Revision, err)
		}
		state = evolve(state, fact)
		end = At(recorded.Revision)
	}
	return state, end, nil
}
