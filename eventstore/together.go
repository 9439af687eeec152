package eventstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Together answers the questions of many callers with few queries: while as many queries are under way as there are
// Lanes, questions gather, and the next query takes all of them. A question that finds a free lane is asked at once.
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
	group  *group         // nil while it waits; guarded by the mutex
}

type answer[A any] struct {
	value  A
	err    error
	shared bool // with the questions of others
}

// group is the questions of one query.
type group struct {
	size int // how many of their callers still wait
	end  context.CancelFunc
}

// Answer asks one question. When a query of several questions fails, each is asked again by itself, so that one bad
// question fails alone. The error is Ask's, or that of the context.
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

// take returns the questions of the next query. When there are none it frees the lane.
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
	together := &group{size: n, end: end}
	for _, q := range taken {
		q.group = together
	}
	return taken
}

// leave is called by a caller that no longer waits. The last one of a group ends its query.
func (t *Together[Q, A]) leave(q *question[Q, A]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.group == nil {
		t.waiting = slices.DeleteFunc(t.waiting, func(other *question[Q, A]) bool { return other == q })
		return
	}
	if q.group.size--; q.group.size == 0 {
		q.group.end()
	}
}
