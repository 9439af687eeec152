package eventstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Together answers the questions of many callers with few queries, as their appends share transactions: while Lanes
// queries are under way questions gather, and the next query takes all of them. A question that comes when there is a
// lane waits for nobody.
//
// A query begins after each of its questions was asked, so an answer is never older than its question.
type Together[Q, A any] struct {
	// Ask answers questions, one by one in their order. Its context ends when nobody waits for an answer any more.
	Ask func(ctx context.Context, questions []Q) ([]A, error)
	// Lanes is how many queries may be under way, Most how many questions one takes.
	Lanes, Most int
	// Patience bounds a query.
	Patience time.Duration

	mu      sync.Mutex
	waiting []*question[Q, A]
	busy    int
}

// question is one caller's.
type question[Q, A any] struct {
	asked  Q
	answer chan answer[A] // holds one
	party  *party         // nil while it waits; guarded by the mutex
}

type answer[A any] struct {
	value  A
	err    error
	shared bool // with the questions of others
}

// party are those whose questions went into one query.
type party struct {
	size int // how many still wait
	end  context.CancelFunc
}

// Answer asks one question. When a query fails that many share, each asks again by itself, so that what is wrong with
// one question is nobody else's.
func (t *Together[Q, A]) Answer(ctx context.Context, asked Q) (A, error) {
	q := &question[Q, A]{asked: asked, answer: make(chan answer[A], 1)}
	t.mu.Lock()
	t.waiting = append(t.waiting, q)
	if t.busy < t.Lanes {
		t.busy++
		go t.work()
	}
	t.mu.Unlock()
	select {
	case a := <-q.answer:
		if a.err != nil && a.shared {
			return t.alone(ctx, asked)
		}
		return a.value, a.err
	case <-ctx.Done():
		t.leave(q)
		var none A
		return none, ctx.Err()
	}
}

func (t *Together[Q, A]) alone(ctx context.Context, asked Q) (value A, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	answers, err := t.Ask(ctx, []Q{asked})
	if err != nil {
		return value, err
	}
	return answers[0], nil
}

// work asks what is waiting until nothing is.
func (t *Together[Q, A]) work() {
	for {
		runtime.Gosched() // so that those who are about to ask come along
		ctx, cancel := context.WithTimeout(context.Background(), t.Patience)
		taken := t.take(cancel)
		if len(taken) == 0 {
			cancel()
			return
		}
		questions := make([]Q, len(taken))
		for i, q := range taken {
			questions[i] = q.asked
		}
		answers, err := t.Ask(ctx, questions)
		cancel()
		for i, q := range taken {
			a := answer[A]{err: err, shared: len(taken) > 1}
			if err == nil {
				a.value = answers[i]
			}
			q.answer <- a
		}
	}
}

// take gives the next query its questions. When there are none the lane is free again.
func (t *Together[Q, A]) take(end context.CancelFunc) []*question[Q, A] {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(t.waiting), t.Most)
	if n == 0 {
		t.busy--
		return nil
	}
	taken := slices.Clone(t.waiting[:n])
	t.waiting = slices.Delete(t.waiting, 0, n)
	together := &party{size: n, end: end}
	for _, q := range taken {
		q.party = together
	}
	return taken
}

// leave says that a caller waits no longer.
func (t *Together[Q, A]) leave(q *question[Q, A]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.party == nil {
		t.waiting = slices.DeleteFunc(t.waiting, func(other *question[Q, A]) bool { return other == q })
		return
	}
	if q.party.size--; q.party.size == 0 {
		q.party.end()
	}
}
