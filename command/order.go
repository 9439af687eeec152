package command

import (
	"context"
	"sync"
)

// order lets arrivals be decided concurrently with the same outcomes as one after the other: each takes a place, names the
// streams that it touches, and waits for earlier places that named one of the same.
//
// An arrival names its streams in two stages. The claims on its phone, email and idempotency key are known as soon as it is
// parsed. Which existing lead it belongs to is known only after reading the log: the phone in one line and the email in another
// may belong to the same lead. In each stage the places name their streams in order, so that nobody who has to be waited for
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

// stage is how far one round of naming has come.
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

// happened is a channel that is closed already.
var happened = func() chan struct{} {
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

// finish frees the place, and lets later ones go on. It must be called exactly once, whatever became of the arrival.
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

// speak records that a place has named its streams in a stage, and passes the turn on.
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
