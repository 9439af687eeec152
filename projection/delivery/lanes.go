package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	mostSlots  = 16 // attempts at one endpoint at a time
	firstSlots = 4  // at one that has not answered well yet
	mostAhead  = 64 // rows in hand of one endpoint that answers well, with those under way

	// mostUnsettled is how many attempts at one endpoint may be under way or not written down yet. So many of its
	// deliveries come twice, at the most, when the process is killed.
	mostUnsettled = 64

	mostInHand   = 4096
	mostClaimed  = 1024 // rows at once
	mostUnderWay = 1024 // attempts at all endpoints
	mostUnproven = 512  // at those that have not answered well: the rest is kept for those that have
	mostFailing  = 128  // at those that have failed

	// remembered is how long a lane knows that its endpoint fails although nothing is sent there: longer than any delivery
	// waits for its next attempt, by DefaultSchedule and a Retry-After. An endpoint of which nothing comes any more is
	// most likely deleted.
	remembered = 30 * time.Hour
)

// class is what is known of an endpoint.
type class int

const (
	unproven class = iota // no answer yet
	proven                // the latest attempt succeeded
	failing               // the latest attempt failed
)

// lanes give each endpoint slots of its own, so that endpoints that hang do not delay others. An endpoint that has not answered yet
// has few slots, and each failure halves them, down to one. For an endpoint that answers well, more rows are claimed than it has
// slots.
type lanes struct {
	mu       sync.Mutex
	byID     map[string]*lane
	inHand   map[string]struct{} // ids of rows that are not written down yet
	again    map[string]row      // of those, rows that were claimed once more
	underWay [failing + 1]int
	starved  bool // nothing was claimed, because too much was in hand
	blocked  bool // an attempt waits, because too many of its lane were not written down
	stopped  bool
}

type lane struct {
	class           class
	slots, underWay int
	unsettled       int       // attempts that are over and not written down
	waiting         []row     // in hand, for a slot
	idle            time.Time // since when it only remembers that its endpoint fails; zero while it has rows
}

func newLanes() *lanes {
	return &lanes{byID: map[string]*lane{}, inHand: map[string]struct{}{}, again: map[string]row{}}
}

// room returns how many more rows of a lane may be claimed.
func (l *lanes) room(lane *lane) int {
	in := lane.underWay + len(lane.waiting)
	switch {
	case lane.class != proven && !l.allowed(lane.class):
		return 0
	case lane.class != proven:
		return max(0, lane.slots-in)
	case in > mostAhead/2: // few at a time would be much work for little
		return 0
	}
	return mostAhead - in
}

// allowed reports whether one more attempt may be made at an endpoint of a class.
func (l *lanes) allowed(c class) bool {
	notProven := l.underWay[unproven] + l.underWay[failing]
	return notProven+l.underWay[proven] < mostUnderWay &&
		(c == proven || notProven < mostUnproven) && (c != failing || l.underWay[failing] < mostFailing)
}

// quota returns how many rows may be claimed: of all endpoints together, of each one that has a lane, and of any other.
func (l *lanes) quota() (total int, ids []string, each []int32, other int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, lane := range l.byID {
		if !lane.idle.IsZero() && time.Since(lane.idle) > remembered {
			delete(l.byID, id)
			continue
		}
		ids, each = append(ids, id), append(each, int32(l.room(lane)))
	}
	if l.allowed(unproven) {
		other = firstSlots
	}
	total = min(mostClaimed, mostInHand-len(l.inHand))
	l.starved = total == 0
	return total, ids, each, other
}

// take adds claimed rows, and returns those whose attempts begin now.
func (l *lanes) take(rows []row) (start []row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		if _, already := l.inHand[r.id]; already {
			l.again[r.id] = r // its lease had been lost, or it was put back a moment ago
			continue
		}
		l.inHand[r.id] = struct{}{}
		if l.byID[r.webhookID] == nil {
			l.byID[r.webhookID] = &lane{slots: firstSlots}
		}
		lane := l.byID[r.webhookID]
		lane.waiting, lane.idle = append(lane.waiting, r), time.Time{}
		start = append(start, l.start(lane)...)
	}
	return start
}

// start removes rows of a lane from waiting, as many as there are free slots, and returns them.
func (l *lanes) start(lane *lane) (rows []row) {
	for len(lane.waiting) > 0 && lane.underWay < lane.slots && l.allowed(lane.class) && !l.stopped {
		if lane.underWay+lane.unsettled >= mostUnsettled {
			l.blocked = true
			break
		}
		rows, lane.waiting = append(rows, lane.waiting[0]), lane.waiting[1:]
		lane.underWay++
		l.underWay[lane.class]++
	}
	return rows
}

// done takes the result of an attempt into account. It returns the rows whose attempts begin now, those to put back into the queue
// because their endpoint fails, and whether there is room for more.
func (l *lanes) done(d result) (start, back []row, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.byID[d.webhookID]
	full := !l.allowed(failing)
	lane.underWay--
	l.underWay[lane.class]--
	if d.attempted {
		lane.unsettled++
	}
	switch {
	case !d.attempted:
	case d.outcome.success():
		l.become(lane, proven)
		lane.slots = min(mostSlots, 2*lane.slots)
	default:
		l.become(lane, failing)
		lane.slots = max(1, lane.slots/2)
		back, lane.waiting = lane.waiting, nil
	}
	start = l.start(lane)
	if full { // others may have waited for this slot
		for _, other := range l.byID {
			start = append(start, l.start(other)...)
		}
	}
	wanted = l.room(lane) > 0
	l.forget(d, lane)
	return start, back, wanted
}

// forget a lane that is idle, unless it remembers that its endpoint fails.
func (l *lanes) forget(d result, lane *lane) {
	switch {
	case lane.underWay+lane.unsettled+len(lane.waiting) > 0:
	case lane.class != failing || d.state == cancelled:
		delete(l.byID, d.webhookID)
	default:
		lane.idle = time.Now()
	}
}

func (l *lanes) become(lane *lane, c class) {
	l.underWay[lane.class] -= lane.underWay
	l.underWay[c] += lane.underWay
	lane.class = c
}

// settled records that results are in the database. It returns the rows to put back: they were claimed again before this call, so
// they have a lease again. Wanted is true when others waited for the room.
func (l *lanes) settled(results []result) (again []result, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if lane := l.byID[r.webhookID]; lane != nil && r.attempted {
			lane.unsettled--
			l.forget(r, lane)
		}
		claimed, twice := l.again[r.id]
		delete(l.again, r.id)
		if twice && r.state == queued {
			again = append(again, result{row: claimed, state: queued, wait: r.wait})
			continue
		}
		delete(l.inHand, r.id)
	}
	return again, l.starved || l.blocked
}

// resume returns the rows whose attempts begin now that others are written down.
func (l *lanes) resume() (start []row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocked {
		l.blocked = false
		for _, lane := range l.byID {
			start = append(start, l.start(lane)...)
		}
	}
	return start
}

// stop prevents further attempts, and returns the rows that waited for a slot.
func (l *lanes) stop() (back []row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	for _, lane := range l.byID {
		back, lane.waiting = append(back, lane.waiting...), nil
	}
	return back
}

// held lists the rows in hand.
func (l *lanes) held() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.inHand))
}

// attempting is how many attempts are under way.
func (l *lanes) attempting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.underWay {
		n += of
	}
	return n
}
