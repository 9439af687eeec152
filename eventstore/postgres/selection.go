package postgres

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
