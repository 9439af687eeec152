package postgres

import (
	"runtime"
	"time"
)

// linger decides how long a batch waits for more requests. A batch of one costs PostgreSQL and this process about as much as a
// batch of ten. So the writer waits for as many requests as came recently, but no longer than writing the previous batch took.
// With one caller at a time it does not wait.
type linger struct {
	size  int // how many came lately, at most lingerSize
	until time.Time
}

const (
	// lingerSize is the number of requests that do not wait for more: another one would save little, and while this batch is
	// written, others prepare theirs.
	lingerSize = 16
	// longestLinger is longer than writing a batch takes on an idle machine.
	longestLinger = 1500 * time.Microsecond
)

// gather returns the requests that are waiting and those that come within the wait.
func (l *linger) gather(waiting []*request, queue <-chan *request) []*request {
	runtime.Gosched() // whoever is about to append comes along
	if len(waiting)+len(queue) >= l.size {
		return waiting
	}
	timer := time.NewTimer(time.Until(l.until))
	defer timer.Stop()
	for len(waiting) < l.size {
		select {
		case r := <-queue:
			waiting = append(waiting, r)
		case <-timer.C:
			return waiting
		}
	}
	return waiting
}

// wrote records the size of a batch that was written. When fewer requests come, the expected number falls by one with each batch.
func (l *linger) wrote(size int, began, ended time.Time) {
	l.size = min(lingerSize, max(l.size-1, size))
	l.until = ended.Add(min(longestLinger, ended.Sub(began)))
}
