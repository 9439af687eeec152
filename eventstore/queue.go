package eventstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Append is an append of a group.
type Append struct {
	Writes   []Write
	Bytes    int // approximate size, with the contents of its writes
	Prepared any // the result of QueueOptions.Prepare
}

// Result is the result of an Append: what Store.Append returns.
type Result struct {
	Position Position
	Err      error
}

// AppendGroup is how an engine takes appends. It returns the result of each, in order.
//
// No append of a group, nor of another group in progress in this process, writes a stream that another one names. So
// the engine may compare all expectations with the log before the group, and store the appends in any order. One that
// fails must not affect the others.
//
// The context ends when no caller waits for a result. The engine then stops retrying, because an append that is stored
// much later would delay others, but the outcome of each append must be known, or certain not to change, when it
// returns.
type AppendGroup func(ctx context.Context, group []Append) []Result

// QueueOptions configure a Queue. All but Prepare are required.
type QueueOptions struct {
	// Prepare encodes an append while others wait for the engine. Its error is the append's.
	Prepare func(Append) (any, error)

	Groups  int           // max groups in progress
	Appends int           // max appends of a group
	Bytes   int           // max size of a group of several appends
	Waiting int           // max appends that wait for a group
	Timeout time.Duration // of an append
}

// Queue implements Append of a store over an engine that takes groups. Appends that name the same streams are in
// different groups, in the order in which they came, except those that only check a stream. All others are collected:
// while the engine has as many groups as it takes, appends wait, and the next group has all of them.
type Queue struct {
	engine  AppendGroup
	options QueueOptions

	mu      sync.Mutex
	streams ticketQueue
	ready   []*queued // first the oldest; may contain appends that were abandoned
	waiting int       // appends that are in no group
	groups  int       // in progress
	closed  bool
	drained chan struct{} // closed when the queue is closed and empty
}

// queued is an append whose result a caller waits for.
type queued struct {
	Append
	ticket
	result chan Result // has capacity 1
	group  *group      // nil until it is in one
}

// group is appends in progress.
type group struct {
	appends []*queued
	callers int // that are still waiting
	cancel  context.CancelFunc
}

// NewQueue returns an empty queue.
func NewQueue(engine AppendGroup, options QueueOptions) *Queue {
	return &Queue{engine: engine, options: options, drained: make(chan struct{})}
}

// Append implements Store. If the context is done while the append waits for a group, nothing was written and the error
// is the context's own. If it is done later, the error is ErrUnavailable too, because the append may still be written.
func (q *Queue) Append(ctx context.Context, writes ...Write) (Position, error) {
	size, err := Size(writes)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	for _, w := range writes {
		for _, c := range w.Contents {
			size += len(c.Sealed)
		}
	}
	a := &queued{
		Append: Append{Writes: writes, Bytes: size}, ticket: newTicket(len(writes)), result: make(chan Result, 1),
	}
	if q.options.Prepare != nil {
		if a.Prepared, err = q.options.Prepare(a.Append); err != nil {
			return 0, err
		}
	}
	if err := q.enter(a); err != nil {
		return 0, err
	}
	timeout := time.NewTimer(q.options.Timeout)
	defer timeout.Stop()
	select {
	case r := <-a.result:
		return r.Position, r.Err
	case <-ctx.Done():
		if q.abandon(a) {
			return 0, ctx.Err()
		}
		return 0, fmt.Errorf("%w: %w: the append was in progress", ErrUnavailable, ctx.Err())
	case <-timeout.C:
		q.abandon(a)
		return 0, fmt.Errorf("%w: no answer in time", ErrUnavailable)
	}
}

// Resize changes how many groups may be in progress, and how many appends may be in one.
func (q *Queue) Resize(groups, appends int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.options.Groups, q.options.Appends = groups, appends
	if len(q.ready) > 0 {
		q.start()
	}
}

// Waiting returns how many appends wait for a group.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Close waits until all appends are done. Further ones fail.
func (q *Queue) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.drain()
	}
	q.mu.Unlock()
	<-q.drained
}

// drain closes drained if the queue is closed and empty. A group is in progress while an append waits. The caller holds
// the mutex.
func (q *Queue) drain() {
	if q.closed && q.groups == 0 {
		close(q.drained)
	}
}

func (q *Queue) enter(a *queued) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return fmt.Errorf("%w: the store is closed", ErrUnavailable)
	case q.waiting >= q.options.Waiting:
		return fmt.Errorf("%w: too many appends are waiting", ErrUnavailable)
	}
	q.waiting++
	a.ready = func() { q.ready = append(q.ready, a) }
	for _, w := range a.Writes {
		q.streams.join(&a.ticket, w.Stream, len(w.Events) > 0)
	}
	if a.blocked == 0 {
		a.ready()
		q.start()
	}
	return nil
}

// start starts a goroutine for another group, if the engine takes one. The caller holds the mutex.
func (q *Queue) start() {
	if q.groups < q.options.Groups {
		q.groups++
		go q.work()
	}
}

// work passes groups to the engine until no append is ready.
func (q *Queue) work() {
	for {
		runtime.Gosched() // lets other goroutines queue their appends first
		ctx, cancel := context.WithCancel(context.Background())
		g := q.next(cancel)
		if g == nil {
			cancel()
			return
		}
		appends := make([]Append, len(g.appends))
		for i, a := range g.appends {
			appends[i] = a.Append
		}
		results := q.engine(ctx, appends)
		cancel()
		q.done(g)
		for i, a := range g.appends {
			a.result <- results[i]
		}
	}
}

// next makes a group of the oldest appends that are ready. It returns nil, and the goroutine must end, if there are
// none.
func (q *Queue) next(cancel context.CancelFunc) *group {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.groups > q.options.Groups { // after Resize
		q.groups--
		return nil
	}
	g := &group{cancel: cancel}
	taken, bytes := 0, 0
	for _, a := range q.ready {
		if !a.left {
			if len(g.appends) == q.options.Appends || len(g.appends) > 0 && bytes+a.Bytes > q.options.Bytes {
				break
			}
			a.group, bytes = g, bytes+a.Bytes
			g.appends = append(g.appends, a)
		}
		taken++
	}
	q.ready = slices.Delete(q.ready, 0, taken)
	g.callers = len(g.appends)
	q.waiting -= len(g.appends)
	if g.callers == 0 {
		q.groups--
		q.drain()
		return nil
	}
	return g
}

// done lets the appends that waited for those of a group be in the next, before later ones.
func (q *Queue) done(g *group) {
	q.mu.Lock()
	defer q.mu.Unlock()
	later := q.ready
	q.ready = nil
	for _, a := range g.appends {
		q.streams.leave(&a.ticket)
	}
	for range len(q.ready) - 1 {
		q.start()
	}
	q.ready = append(q.ready, later...)
}

// abandon is called when the caller of an append no longer waits. It reports whether the append will certainly not be
// written.
func (q *Queue) abandon(a *queued) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.group != nil {
		if a.group.callers--; a.group.callers == 0 {
			a.group.cancel()
		}
		return false
	}
	q.waiting--
	before := len(q.ready)
	q.streams.leave(&a.ticket)
	if len(q.ready) > before {
		q.start()
	}
	return true
}
