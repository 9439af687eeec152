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
	// lingerSize is how many requests do not wait for more: what the next one would save is little, and while this batch is
	// written others prepare theirs.
	lingerSize = 16
	// longestLinger is more than a batch takes to be written on an idle machine.
	longestLinger = 1500 * time.Microsecond
)

// gather returns the requests that wait already and those that come meanwhile.
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

// wrote notes how many requests there were when a batch had been written. One that stays away is waited for a few times more.
func (l *linger) wrote(size int, began, ended time.Time) {
	l.size = min(lingerSize, max(l.size-1, size))
	l.until = ended.Add(min(longestLinger, ended.Sub(began)))
}
