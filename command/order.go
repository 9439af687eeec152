package command

import (
	"context"
	"sync"
)

// order lets arrivals be decided side by side and still come out as if one had followed the other: each takes a
// place, says what it touches, and waits for those before it that touch the same.
//
// What an arrival touches shows in two stages. Its phone, email and idempotency key do as soon as it is read; which
// lead that is, when there is one, only on the log: the phone in one line and the email in another may belong to the
// same lead. In each stage places speak in their order, so nobody can turn up who should have been waited for. A
// place whose arrival is finished has nothing more to say, and only those who meet a lead wait for the second stage.
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

// stage is how far one round of naming has come.
type stage struct {
	turn  int                   // the place that may speak; all before it have
	early map[int]bool          // places after it that are finished
	ready map[int]chan struct{} // closed when it is the place's turn
	last  map[string]*place     // who named a stream last, if it is not finished
}

// place is an arrival's place among others. Its methods are for one goroutine.
type place struct {
	order  *order
	number int
	named  [stages][]string
	spoken [stages]bool
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

// await names streams in one stage, once, and waits for everybody before who named one of them and is not finished.
// The error is the context's.
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

// happened is an event that nobody has to wait for.
var happened = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// ready is closed when all before a place have spoken.
func (o *order) ready(p *place, stage int) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.stages[stage]
	if s.turn == p.number {
		return happened
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
	p.speak(stage)
	return before
}

// finish leaves the place. It must be called once, whatever became of the arrival.
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
		p.speak(i)
	}
	close(p.done)
}

// speak notes that a place has nothing more to say in a stage, and passes the turn on.
func (p *place) speak(stage int) {
	if p.spoken[stage] {
		return
	}
	p.spoken[stage] = true
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
