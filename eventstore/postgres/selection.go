package postgres

import (
	"runtime"
	"time"
)

// company is who appends beside each other. A batch of one costs PostgreSQL and this process about what a batch of ten
// does, so a request waits for those that are likely to come: as many as came lately, and no longer than it took to
// write the batch before. With one caller at a time that is nobody.
type company struct {
	size  int // how many came lately, at most enough
	until time.Time
}

const (
	// enough is how many do not wait for more: what the next one would save is little, and while this batch is written
	// others prepare theirs.
	enough = 16
	// longestWait is more than a batch takes to be written on an idle machine.
	longestWait = 1500 * time.Microsecond
)

// await returns who waits already and who has come meanwhile.
func (c *company) await(waiting []*request, queue <-chan *request) []*request {
	runtime.Gosched() // whoever is about to append comes along
	if len(waiting)+len(queue) >= c.size {
		return waiting
	}
	timer := time.NewTimer(time.Until(c.until))
	defer timer.Stop()
	for len(waiting) < c.size {
		select {
		case r := <-queue:
			waiting = append(waiting, r)
		case <-timer.C:
			return waiting
		}
	}
	return waiting
}

// came notes how many there were when a batch had been written. Who stays away is waited for a few times more.
func (c *company) came(size int, began, ended time.Time) {
	c.size = min(enough, max(c.size-1, size))
	c.until = ended.Add(min(longestWait, ended.Sub(began)))
}

// selection divides requests into those of the next batch and those that come later.
//
// All expectations of a batch are compared with the log before it. So an append waits when a stream it writes is
// touched by one ahead of it, or a stream it checks is written by one ahead of it, be that in the batch or itself
// waiting. Appends that touch the same stream keep their order, but for those that only check it: they are many,
// and never in each other's way.
type selection struct {
	batch    []*request
	deferred []*request
	bytes    int
	touched  map[string]bool // streams of all requests offered; true: written
}

func (s *selection) full() bool {
	return len(s.batch) >= maxBatch || s.bytes >= maxBatchBytes || len(s.deferred) >= maxDeferred
}

func (s *selection) offer(r *request) {
	switch free := s.free(r); {
	case r.abandoned():
		return
	case !free || len(s.batch) >= maxBatch || len(s.batch) > 0 && s.bytes+r.bytes > maxBatchBytes:
		s.deferred = append(s.deferred, r)
	case r.take():
		s.batch = append(s.batch, r)
		s.bytes += r.bytes
	default: // left just now
		return
	}
	for _, w := range r.writes {
		s.touched[w.Stream] = s.touched[w.Stream] || len(w.Events) > 0
	}
}

func (s *selection) free(r *request) bool {
	for _, w := range r.writes {
		written, touched := s.touched[w.Stream]
		if written || touched && len(w.Events) > 0 {
			return false
		}
	}
	return true
}
