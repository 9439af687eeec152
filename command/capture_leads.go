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
	// window is how many of one source are under way at a time: a batch of the store's appends, and another that is made
	// ready while the first is written.
	window      = 512
	windowBytes = 512 << 10 // that they may hold, but for one that is larger by itself
	// windows is how many of all sources are under way: half of what may wait for the store, so that there is room for
	// who comes alone.
	windows = 2048
)

// Arriving is one of many arrivals that come from one source, in its order.
type Arriving struct {
	Line  int // where it stands in its source
	Bytes int // what it holds
	// Read makes it a command. It runs beside that of others; its error is the arrival's outcome.
	Read func(context.Context) (CaptureLead, error)
}

// Arrived is what became of one of many arrivals. Err is one of CaptureLead's, or Read's.
type Arrived struct {
	Line int
	LeadCaptured
	Err error
}

// CaptureLeads decides on many arrivals, many at a time, and yields what became of them, in their order. The outcomes are
// those of calling CaptureLead for one after the other, only sooner: each is judged as if those before it had been
// answered, as far as they have something in common. What others change meanwhile, such as the account, may meet the rest in
// any order. One that fails does so alone.
//
// Idle is called whenever the next outcome is not there yet. When the consumer stops, or the context ends, what is
// under way is given up: each arrival is on the log as a whole or not at all. The arrivals are read with a context
// that ends then too, and must end with it.
func (h *Handlers) CaptureLeads(
	ctx context.Context, arrivals func(context.Context) iter.Seq[Arriving], idle func(),
) iter.Seq[Arrived] {
	return func(yield func(Arrived) bool) {
		var running sync.WaitGroup
		defer running.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		bytes := semaphore.NewWeighted(windowBytes)
		queue := make(chan *underway, window)
		running.Go(func() {
			defer close(queue)
			team := team{work: make(chan *underway), do: func(u *underway) {
				defer h.windows.Release(1)
				defer u.place.finish()
				u.arrived = h.captureInPlace(ctx, u.place, u.arriving)
			}}
			defer close(team.work)
			var order order
			for arriving := range arrivals(ctx) {
				u := &underway{arriving: arriving, bytes: min(int64(arriving.Bytes), windowBytes)}
				if bytes.Acquire(ctx, u.bytes) != nil || h.windows.Acquire(ctx, 1) != nil {
					return
				}
				u.place = order.join()
				team.take(&running, u)
				select {
				case queue <- u:
				case <-ctx.Done():
					return
				}
			}
		})
		for {
			u, open := next(queue, idle)
			if !open {
				return
			}
			_, _ = next(u.place.done, idle)
			bytes.Release(u.bytes)
			if !yield(u.arrived) {
				return
			}
		}
	}
}

// underway is an arrival on its way.
type underway struct {
	arriving Arriving
	place    *place
	bytes    int64
	arrived  Arrived // once it has left its place
}

// team is as many goroutines as there were ever arrivals under way at a time. Each does one after another, since a stack
// that has grown to what a capture takes costs as much as a part of the capture.
type team struct {
	work chan *underway
	do   func(*underway)
}

// take gives an arrival to somebody who is free, or to somebody new.
func (t *team) take(running *sync.WaitGroup, u *underway) {
	select {
	case t.work <- u:
	default:
		running.Go(func() {
			for more := true; more; u, more = <-t.work {
				t.do(u)
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
			runtime.Gosched() // whoever is about to answer goes first, so that answers are written many at a time
		}
	}
	idle()
	value, open := <-from
	return value, open
}

// captureInPlace is CaptureLead for an arrival among others.
func (h *Handlers) captureInPlace(ctx context.Context, place *place, arriving Arriving) (arrived Arrived) {
	defer func() {
		if thrown := recover(); thrown != nil {
			arrived = Arrived{Line: arriving.Line, Err: h.caught(thrown)}
		}
	}()
	cmd, err := arriving.Read(ctx)
	if err != nil {
		return Arrived{Line: arriving.Line, Err: err}
	}
	cmd.Admission.Caller.Line = strconv.Itoa(arriving.Line)
	c := h.newCapture(cmd)
	c.place = place
	captured, err := c.answer(ctx)
	return Arrived{Line: arriving.Line, LeadCaptured: captured, Err: err}
}

// caught makes a panic the error of the arrival that met it. Nobody else would catch it in a goroutine of ours, and it would
// end the process with all other requests. Its value is told only when the runtime made it: another may hold anything.
func (h *Handlers) caught(thrown any) error {
	said := fmt.Sprintf("%T", thrown)
	if fault, ok := thrown.(runtime.Error); ok {
		said = fault.Error()
	}
	h.log.Error("panic", slog.String("panic", said), slog.String("stack", string(debug.Stack())))
	return fmt.Errorf("panic: %s", said)
}

// await lets those go first that came before and touch the same streams.
func (c *capture) await(ctx context.Context, stage int) error {
	if c.place == nil || c.place.spoken[stage] {
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

// leadStreams are those of the leads that have the arrival's phone or email.
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
