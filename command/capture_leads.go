package command

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Bounds of many arrivals at once.
const (
	// window is how many arrivals of one source are decided on at a time: one batch of the store's appends, and another that
	// is prepared while the first is written.
	window      = 512
	windowBytes = 512 << 10 // bytes of their bodies together; one larger arrival may be in flight by itself
	// maxArrivals is how many arrivals of all sources together are decided on at a time: half of what may wait for the store, so
	// that single captures are not held up.
	maxArrivals = 2048
)

// BatchArrival is one of the arrivals of a batch or an import.
type BatchArrival struct {
	Line  int // in its source, from 1
	Lines int // how many lines of the source it spans
	Bytes int // size of its body
	// Read returns it as a command. Several run at once. An error becomes the arrival's outcome.
	Read func(context.Context) (CaptureLead, error)
}

// BatchOutcome is the outcome of one BatchArrival. Err is an error of CaptureLead or of Read.
type BatchOutcome struct {
	Line  int
	Lines int
	LeadCaptured
	Err error
}

// CaptureLeads decides on many arrivals at once and yields their outcomes in the order of the arrivals. The outcomes are those
// of calling CaptureLead for one after the other: an arrival waits for earlier ones that have a phone, an email, a key or a lead
// in common with it. But what other callers change meanwhile, such as the account, may affect a later arrival and not an earlier
// one. An arrival that fails does not affect the others.
//
// Idle is called before each wait for the next outcome. When the consumer stops, or the context ends, arrivals that are being
// decided on are cancelled: each is on the log as a whole or not at all. The context that arrivals is called with ends then too,
// and the sequence must end with it.
func (h *Handlers) CaptureLeads(
	ctx context.Context, arrivals func(context.Context) iter.Seq[BatchArrival], idle func(),
) iter.Seq[BatchOutcome] {
	return func(yield func(BatchOutcome) bool) {
		var running sync.WaitGroup
		defer running.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		bytes := semaphore.NewWeighted(windowBytes)
		queue := make(chan *inFlight, window)
		running.Go(func() {
			defer close(queue)
			pool := workers{work: make(chan *inFlight), do: func(a *inFlight) {
				defer h.arrivalSlots.Release(1)
				defer a.place.finish()
				a.outcome = h.captureInPlace(ctx, a.place, a.arrival)
			}}
			defer close(pool.work)
			var order order
			for arrival := range arrivals(ctx) {
				a := &inFlight{arrival: arrival, bytes: min(int64(arrival.Bytes), windowBytes)}
				if bytes.Acquire(ctx, a.bytes) != nil || h.arrivalSlots.Acquire(ctx, 1) != nil {
					return
				}
				a.place = order.join()
				pool.take(&running, a)
				select {
				case queue <- a:
				case <-ctx.Done():
					return
				}
			}
		})
		for {
			a, open := next(queue, idle)
			if !open {
				return
			}
			_, _ = next(a.place.done, idle)
			bytes.Release(a.bytes)
			if !yield(a.outcome) {
				return
			}
		}
	}
}

// inFlight is an arrival between being read and being yielded.
type inFlight struct {
	arrival BatchArrival
	place   *place
	bytes   int64
	outcome BatchOutcome // set before place is done
}

// workers is a pool of goroutines that grows to as many as are needed at a time. They are reused because growing a new stack to the
// size that a capture needs takes a noticeable part of the time of the capture.
type workers struct {
	work chan *inFlight
	do   func(*inFlight)
}

// take gives an arrival to a goroutine that is free, or starts a new one.
func (w *workers) take(running *sync.WaitGroup, a *inFlight) {
	select {
	case w.work <- a:
	default:
		running.Go(func() {
			for more := true; more; a, more = <-w.work {
				w.do(a)
			}
		})
	}
}

// next receives a value. It calls idle before it waits for one that is not there yet.
func next[T any](from <-chan T, idle func()) (T, bool) {
	for range 2 {
		select {
		case value, open := <-from:
			return value, open
		default:
			runtime.Gosched() // lets captures finish first, so that many answers are written at a time
		}
	}
	idle()
	value, open := <-from
	return value, open
}

// captureInPlace is CaptureLead for one of many arrivals.
func (h *Handlers) captureInPlace(ctx context.Context, place *place, arrival BatchArrival) (outcome BatchOutcome) {
	defer func() {
		if thrown := recover(); thrown != nil {
			outcome = BatchOutcome{Line: arrival.Line, Lines: arrival.Lines, Err: h.caught(thrown)}
		}
	}()
	cmd, err := arrival.Read(ctx)
	if err != nil {
		return BatchOutcome{Line: arrival.Line, Lines: arrival.Lines, Err: err}
	}
	cmd.Admission.Caller.Line = strconv.Itoa(arrival.Line)
	c := h.newCapture(cmd)
	c.place = place
	captured, err := c.answer(ctx)
	return BatchOutcome{Line: arrival.Line, Lines: arrival.Lines, LeadCaptured: captured, Err: err}
}

// caught turns a panic into the error of its arrival. In a goroutine that we started, nothing else would recover it, and it would
// end the process with all other requests. The value is logged only when it comes from the runtime: any other may contain
// personal data.
func (h *Handlers) caught(thrown any) error {
	message := fmt.Sprintf("%T", thrown)
	if fault, ok := thrown.(runtime.Error); ok {
		message = fault.Error()
	}
	h.log.Error("panic", slog.String("panic", message), slog.String("stack", string(debug.Stack())))
	return fmt.Errorf("panic: %s", message)
}

// await waits, in a batch or import, for the earlier arrivals that touch the same streams.
func (c *capture) await(ctx context.Context, stage int) error {
	if c.place == nil || c.place.passed[stage] {
		return nil
	}
	if stage == byClaim {
		return c.place.await(ctx, stage, c.claimStreams())
	}
	leads, err := c.leadStreams(ctx)
	if err != nil {
		return err
	}
	return c.place.await(ctx, stage, leads)
}

// leadStreams returns the streams of the leads that have the arrival's phone or email.
func (c *capture) leadStreams(ctx context.Context) (streams []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	if known, ok, err := c.recognise(ctx); ok || err != nil {
		return []string{known.stream}, err
	}
	for _, stream := range []string{c.phone, c.email} {
		if stream == "" {
			continue
		}
		held, _, err := eventstore.Load(ctx, c.store, stream, claim.Evolve)
		if err != nil {
			return nil, err
		}
		if held.Holder != "" {
			streams = append(streams, event.LeadStream(held.Holder))
		}
	}
	return streams, nil
}

// order makes arrivals that are decided concurrently have the same outcomes as one after the other: each takes a place, names the
// streams that it reads or writes, and waits for earlier places that named one of them.
//
// An arrival names its streams in two stages. The claims on its phone, email and idempotency key are known as soon as it is
// parsed. Which existing lead it belongs to is known only after reading the log: the phone in one line and the email in another
// may belong to the same lead. In each stage the places name their streams in order, so that no place that has to be waited for
// comes later. An arrival that is finished counts as having named its streams; one that meets no lead finishes without the
// second stage.
type order struct {
	mu     sync.Mutex
	taken  int
	stages [stages]stage
}

const (
	byClaim = iota
	byLead
	stages
)

// stage is the state of one round of naming.
type stage struct {
	turn  int                   // the place whose turn it is; all before it have named their streams
	early map[int]bool          // later places that are finished already
	ready map[int]chan struct{} // closed when it is the place's turn
	last  map[string]*place     // the last place that named a stream, unless it is finished
}

// place is an arrival's place among others. Its methods are for one goroutine.
type place struct {
	order  *order
	number int
	named  [stages][]string
	passed [stages]bool
	done   chan struct{}
}

// join takes the next place.
func (o *order) join() *place {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := &place{order: o, number: o.taken, done: make(chan struct{})}
	o.taken++
	return p
}

// await names the place's streams in a stage, at most once, and waits until all earlier places that named one of them are
// finished. The error is the context's.
func (p *place) await(ctx context.Context, stage int, streams []string) error {
	if err := wait(ctx, p.order.ready(p, stage)); err != nil {
		return err
	}
	for _, before := range p.order.name(p, stage, streams) {
		if err := wait(ctx, before.done); err != nil {
			return err
		}
	}
	return nil
}

func wait(ctx context.Context, event <-chan struct{}) error {
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closedChannel is a channel that is closed already.
var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// ready returns a channel that is closed when all earlier places have named their streams in a stage.
func (o *order) ready(p *place, stage int) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.stages[stage]
	if s.turn == p.number {
		return closedChannel
	}
	if s.ready == nil {
		s.ready = make(map[int]chan struct{})
	}
	turn := make(chan struct{})
	s.ready[p.number] = turn
	return turn
}

func (o *order) name(p *place, stage int, streams []string) (before []*place) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.stages[stage]
	if s.last == nil {
		s.last = make(map[string]*place)
	}
	for _, stream := range streams {
		if other := s.last[stream]; other != nil && other != p {
			before = append(before, other)
		}
		s.last[stream] = p
	}
	p.named[stage] = streams
	p.pass(stage)
	return before
}

// finish frees the place, so that later ones continue. It must be called exactly once for every place.
func (p *place) finish() {
	p.order.mu.Lock()
	defer p.order.mu.Unlock()
	for i := range p.order.stages {
		s := &p.order.stages[i]
		for _, stream := range p.named[i] {
			if s.last[stream] == p {
				delete(s.last, stream)
			}
		}
		p.pass(i)
	}
	close(p.done)
}

// pass records that a place has named its streams in a stage, and passes the turn on.
func (p *place) pass(stage int) {
	if p.passed[stage] {
		return
	}
	p.passed[stage] = true
	s := &p.order.stages[stage]
	if s.early == nil {
		s.early = make(map[int]bool)
	}
	s.early[p.number] = true
	for s.early[s.turn] {
		delete(s.early, s.turn)
		s.turn++
	}
	if turn, waiting := s.ready[s.turn]; waiting {
		delete(s.ready, s.turn)
		close(turn)
	}
}
