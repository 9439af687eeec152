package postgres

// selection divides requests into those of the next batch and those that come later.
//
// All expectations of a batch are compared with the log as it was before the batch. So an append has to wait if an earlier one,
// in the batch or waiting too, touches a stream that it writes, or writes a stream that it checks. Appends that touch the same
// stream keep their order, except those that only check it: there are many of them, and they never have to wait for each other.
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
