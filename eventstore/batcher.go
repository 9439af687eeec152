package eventstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Batcher answers questions of many callers with few queries. While Concurrency queries are running, questions wait, and the
// next query takes all of them. While fewer are running, a question is asked at once.
//
// A query starts after each of its questions was asked, so an answer is never older than its question.
type Batcher[Q, A any] struct {
	// Ask returns one answer for each question, in their order. Its context ends when no caller waits for an answer.
	Ask func(ctx context.Context, questions []Q) ([]A, error)
	// Concurrency is how many queries may run at a time, MaxBatch how many questions one takes.
	Concurrency, MaxBatch int
	// Timeout bounds a query.
	Timeout time.Duration

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
func (b *Batcher[Q, A]) Answer(ctx context.Context, asked Q) (A, error) {
	q := &question[Q, A]{asked: asked, answer: make(chan answer[A], 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, q)
	if b.busy < b.Concurrency {
		b.busy++
		go b.work()
	}
	b.mu.Unlock()
	select {
	case a := <-q.answer:
		if a.err != nil && a.shared {
			return b.alone(ctx, asked)
		}
		return a.value, a.err
	case <-ctx.Done():
		b.leave(q)
		var none A
		return none, ctx.Err()
	}
}

func (b *Batcher[Q, A]) alone(ctx context.Context, asked Q) (value A, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	answers, err := b.Ask(ctx, []Q{asked})
	if err != nil {
		return value, err
	}
	return answers[0], nil
}

// work asks what is waiting until nothing is.
func (b *Batcher[Q, A]) work() {
	for {
		runtime.Gosched() // lets goroutines that are about to ask do so first
		ctx, cancel := context.WithTimeout(context.Background(), b.Timeout)
		taken := b.take(cancel)
		if len(taken) == 0 {
			cancel()
			return
		}
		questions := make([]Q, len(taken))
		for i, q := range taken {
			questions[i] = q.asked
		}
		answers, err := b.Ask(ctx, questions)
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

// take returns the questions of the next query, or none when nothing is waiting: then the worker ends.
func (b *Batcher[Q, A]) take(end context.CancelFunc) []*question[Q, A] {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), b.MaxBatch)
	if n == 0 {
		b.busy--
		return nil
	}
	taken := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	taking := &group{size: n, end: end}
	for _, q := range taken {
		q.group = taking
	}
	return taken
}

// leave is called by a caller that no longer waits. The last one of a group ends its query.
func (b *Batcher[Q, A]) leave(q *question[Q, A]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q.group == nil {
		b.waiting = slices.DeleteFunc(b.waiting, func(other *question[Q, A]) bool { return other == q })
		return
	}
	if q.group.size--; q.group.size == 0 {
		q.group.end()
	}
}
