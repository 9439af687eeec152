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

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/eventstore"
)

// Bounds of many arrivals at once.
const (
	// window is how many arrivals of one source are decided on at a time: one batch of the store's appends, and another
	// that is prepared while the first is written.
	window      = 512
	windowBytes = 512 << 10 // bytes of their bodies together; one larger arrival may be in flight by itself
	// maxArrivals is how many arrivals of all sources together are decided on at a time: half of what may wait for the
	// store, so that single captures are not held up.
	maxArrivals = 2048
)

// BatchArrival is one of the arrivals of a batch or an import.
type BatchArrival struct {
	Line  int // in its source, from 1
	Lines int // how many lines of the source it spans
	Bytes int // size of its body
	// Read returns it as a command. It is called once for each arrival. Several run at once, and one may wait for those
	// of earlier arrivals. An error becomes the arrival's outcome.
	Read func(context.Context) (CaptureLead, error)
}

// BatchOutcome is the outcome of one BatchArrival. Err is an error of CaptureLead or of Read.
type BatchOutcome struct {
	Line  int
	Lines int
	Noted field.Warnings
	LeadCaptured
	Err error
}

// CaptureLeads decides on many arrivals at once and yields their outcomes in the order of the arrivals. The outcomes
// are those of calling CaptureLead for one after the other: an arrival waits for earlier ones that have a phone, an
// email, a key or a lead in common with it. But what other callers change meanwhile, such as the account, may affect a
// later arrival and not an earlier one. An arrival that fails does not affect the others.
//
// Idle is called before each wait for the next outcome. When the consumer stops, or the context ends, arrivals that are
// being decided on are cancelled: each is on the log as a whole or not at all. The context that arrivals is called with
// ends then too, and the sequence must end with it.
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
				defer close(a.done)
				defer a.line.end()
				a.outcome = h.captureLine(ctx, a.line, a.arrival)
			}}
			defer close(pool.work)
			var last *line
			for arrival := range arrivals(ctx) {
				a := &inFlight{
					arrival: arrival, bytes: min(int64(arrival.Bytes), windowBytes), done: make(chan struct{}),
				}
				if bytes.Acquire(ctx, a.bytes) != nil || h.arrivalSlots.Acquire(ctx, 1) != nil {
					return
				}
				last = last.next()
				a.line = last
				pool.run(&running, a)
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
			_, _ = next(a.done, idle)
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
	line    *line
	bytes   int64
	outcome BatchOutcome
	done    chan struct{} // closed when outcome is set
}

// workers is a pool of goroutines that grows to as many as are needed at a time. They are reused because growing a new
// stack to the size that a capture needs takes a noticeable part of the time of the capture.
type workers struct {
	work chan *inFlight
	do   func(*inFlight)
}

// run gives an arrival to a goroutine that is free, or starts a new one.
func (w *workers) run(running *sync.WaitGroup, a *inFlight) {
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

// captureLine is CaptureLead for one of many arrivals.
func (h *Handlers) captureLine(ctx context.Context, line *line, arrival BatchArrival) (outcome BatchOutcome) {
	outcome = BatchOutcome{Line: arrival.Line, Lines: arrival.Lines}
	defer func() {
		if thrown := recover(); thrown != nil {
			outcome.Err = h.caught(thrown)
		}
	}()
	cmd, err := arrival.Read(ctx)
	if outcome.Noted = cmd.Noted; err != nil {
		outcome.Err = err
		return outcome
	}
	cmd.Admission.Caller.Line = strconv.Itoa(arrival.Line)
	c := h.newCapture(cmd)
	c.line = line
	outcome.LeadCaptured, outcome.Err = c.answer(ctx)
	return outcome
}

// caught turns a panic into the error of its arrival. In a goroutine that we started, nothing else would recover it,
// and it would end the process with all other requests. The value is logged only when it comes from the runtime: any
// other may contain personal data.
func (h *Handlers) caught(thrown any) error {
	message := fmt.Sprintf("%T", thrown)
	if fault, ok := thrown.(runtime.Error); ok {
		message = fault.Error()
	}
	h.log.Error("panic", slog.String("panic", message), slog.String("stack", string(debug.Stack())))
	return fmt.Errorf("panic: %s", message)
}

// line is the number of an arrival among those of its batch. The streams that arrivals have in common are queued for in
// the order of the lines, so that lines that are decided on concurrently have the same outcomes as one after the other.
//
// An arrival queues in two steps. The claims on its phone, email and idempotency key are known as soon as it is parsed.
// Which leads it belongs to is known only after reading the log: the phone in one line and the email in another may
// belong to the same lead.
type line struct {
	before [steps]<-chan struct{} // closed when all earlier lines have queued; nil for the first
	queued [steps]chan struct{}   // closed when this one has too
	done   [steps]bool
}

const (
	forClaims = iota
	forLeads
	steps
)

// next returns the line after this one, and the first after nil.
func (l *line) next() *line {
	n := &line{}
	for i := range steps {
		n.queued[i] = make(chan struct{})
		if l != nil {
			n.before[i] = l.queued[i]
		}
	}
	return n
}

// join calls queue after the earlier lines have queued in this step. The error is the context's. A nil line waits for
// none.
func (l *line) join(ctx context.Context, step int, queue func() *eventstore.Decision) (*eventstore.Decision, error) {
	if l == nil {
		return queue(), nil
	}
	if before := l.before[step]; before != nil {
		select {
		case <-before:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	decision := queue()
	l.done[step] = true
	close(l.queued[step])
	return decision, nil
}

// end lets later lines pass in the steps that this one does not need.
func (l *line) end() {
	for i := range steps {
		if !l.done[i] {
			go func() {
				if l.before[i] != nil {
					<-l.before[i]
				}
				close(l.queued[i])
			}()
		}
	}
}

// enter waits until the process has decided on all earlier arrivals with the same phone, email or idempotency key,
// unless it has done so before. Later ones wait until leave.
func (c *capture) enter(ctx context.Context) (err error) {
	if c.onClaims != nil {
		return nil
	}
	c.onClaims, err = c.line.join(ctx, forClaims, func() *eventstore.Decision {
		return c.transact.Join(c.claimStreams()...)
	})
	if err != nil {
		return err
	}
	return c.onClaims.Wait(ctx)
}

// enterLeads waits until the process has made all earlier decisions on leads. Later ones wait until leave.
func (c *capture) enterLeads(ctx context.Context, leads []string) (err error) {
	if c.onLeads == nil {
		c.onLeads, err = c.line.join(ctx, forLeads, func() *eventstore.Decision { return c.transact.Join(leads...) })
		if err != nil {
			return err
		}
	}
	return c.onLeads.Wait(ctx)
}

// leave lets later arrivals be decided on.
func (c *capture) leave() {
	for _, d := range []**eventstore.Decision{&c.onLeads, &c.onClaims} {
		if *d != nil {
			(*d).Leave()
			*d = nil
		}
	}
}
