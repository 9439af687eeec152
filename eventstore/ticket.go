package eventstore

// ticketQueue is the queue of every stream: tickets that name a stream get it in the order in which they joined.
// Tickets that only check a stream share it. A ticket joins all its queues at once and waits only for earlier ones, so
// there are no deadlocks.
//
// The zero value is ready to use. The caller of its methods holds a lock.
type ticketQueue struct {
	streams map[string]streamQueue
}

// streamQueue is a stream's tickets in order: each that writes by itself, neighbours that check together.
type streamQueue struct{ first, last *sharers }

type sharers struct {
	write   bool
	tickets int       // that have not left
	waiting []*ticket // that are not first, and may have left
	next    *sharers
}

// ticket is a turn in the queues of the streams that it names.
type ticket struct {
	streams []string
	of      []*sharers // by stream
	blocked int        // number of streams that an earlier ticket has
	left    bool
	ready   func() // called by leave of the last ticket that it waited for
}

// newTicket returns a ticket with room for n streams.
func newTicket(n int) ticket {
	return ticket{streams: make([]string, 0, n), of: make([]*sharers, 0, n)}
}

// join adds a stream to a ticket. A ticket must add all its streams before another joins, and none twice.
func (q *ticketQueue) join(t *ticket, stream string, write bool) {
	if q.streams == nil {
		q.streams = make(map[string]streamQueue)
	}
	line := q.streams[stream]
	last := line.last
	if last == nil || write || last.write {
		last = &sharers{write: write}
		if line.first == nil {
			line.first = last
		} else {
			line.last.next = last
		}
		line.last = last
		q.streams[stream] = line
	}
	last.tickets++
	if line.first != last {
		last.waiting = append(last.waiting, t)
		t.blocked++
	}
	t.streams, t.of = append(t.streams, stream), append(t.of, last)
}

// leave removes a ticket, whether it is ready or not.
func (q *ticketQueue) leave(t *ticket) {
	t.left = true
	for i, stream := range t.streams {
		s := t.of[i]
		if s.tickets--; s.tickets > 0 {
			continue
		}
		line := q.streams[stream]
		if line.first != s {
			continue
		}
		for line.first != nil && line.first.tickets == 0 {
			if line.first = line.first.next; line.first != nil {
				line.first.release()
			}
		}
		if line.first == nil {
			delete(q.streams, stream)
		} else {
			q.streams[stream] = line
		}
	}
}

// release makes the first tickets of a stream ready, unless they wait for other streams.
func (s *sharers) release() {
	for _, t := range s.waiting {
		if t.blocked--; t.blocked == 0 && !t.left {
			t.ready()
		}
	}
	s.waiting = nil
}
