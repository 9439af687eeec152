package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	maxSlots   = 16 // concurrent attempts at one endpoint
	firstSlots = 4  // before its first success
	maxAhead   = 64 // rows held of one proven endpoint, including those in flight

	// maxUnsaved is the maximum number of attempts at one endpoint that are in flight or not saved. When the process is killed, at most as
	// many of its deliveries are sent twice.
	maxUnsaved = 64

	maxHeld     = 4096
	maxClaimed  = 1024 // rows of one claim
	maxInFlight = 1024 // attempts at all endpoints
	maxUnproven = 512  // at endpoints that are not proven; the rest is reserved for proven ones
	maxFailing  = 128  // at failing endpoints

	// idleTTL is how long a lane without rows is kept for a failing endpoint. It exceeds the longest retry delay of DefaultSchedule and
	// Retry-After. An endpoint that is idle for longer is probably deleted.
	idleTTL = 30 * time.Hour
)

// class is the health of an endpoint.
type class int

const (
	unproven class = iota // no response yet
	proven                // the latest attempt succeeded
	failing               // the latest attempt failed
)

// lanes gives each endpoint slots of its own, so that endpoints that hang do not delay others. An endpoint starts with few slots. A success
// doubles them, and a failure halves them, down to one. For a proven endpoint, more rows are claimed than it has slots.
type lanes struct {
	mu       sync.Mutex
	byID     map[string]*lane
	held     map[string]struct{} // ids of claimed rows that are not saved yet
	again    map[string]row      // of the held rows, those that were claimed again
	inFlight [failing + 1]int
	starved  bool // the last quota was zero, because too many rows were held
	blocked  bool // an attempt waits because too many results of its lane are not saved
	stopped  bool
}

type lane struct {
	class           class
	slots, inFlight int
	unsaved         int       // attempts that have ended and are not saved
	waiting         []row     // for a slot
	rate            float64   // rate limit of the endpoint, in attempts per second; 0: none
	paused          time.Time // end of the pause after the rate limit was used up
	idle            time.Time // since when the lane has no rows; zero if it has
}

func newLanes() *lanes {
	return &lanes{byID: map[string]*lane{}, held: map[string]struct{}{}, again: map[string]row{}}
}

// free returns how many more rows of a lane may be claimed now.
func (l *lanes) free(lane *lane) int {
	in := lane.inFlight + len(lane.waiting)
	switch {
	case time.Now().Before(lane.paused):
		return 0
	case lane.class != proven && !l.allowed(lane.class):
		return 0
	case lane.class != proven:
		return max(0, lane.slots-in)
	case in > maxAhead/2: // claims of a few rows cost too much
		return 0
	case lane.rate > 0:
		return min(maxAhead-in, paced(lane.rate))
	}
	return maxAhead - in
}

// paced returns how many rows of a rate-limited endpoint are claimed at once: a quarter of a second's worth, so that few are returned.
func paced(rate float64) int { return max(1, int(rate/4)) }

// pause stops claims for an endpoint while its rate limit is used up.
func (l *lanes) pause(webhookID string, rate float64, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[webhookID] == nil {
		l.byID[webhookID] = &lane{slots: firstSlots, idle: time.Now()}
	}
	of := l.byID[webhookID]
	of.rate, of.paused = rate, time.Now().Add(wait)
}

// allowed reports whether another attempt may be made at an endpoint of a class.
func (l *lanes) allowed(c class) bool {
	notProven := l.inFlight[unproven] + l.inFlight[failing]
	return notProven+l.inFlight[proven] < maxInFlight &&
		(c == proven || notProven < maxUnproven) && (c != failing || l.inFlight[failing] < maxFailing)
}

// quota returns how many rows may be claimed: in total, of each endpoint with a lane, and of any other endpoint.
func (l *lanes) quota() (total int, ids []string, each []int32, other int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, lane := range l.byID {
		if !lane.idle.IsZero() && time.Since(lane.idle) > idleTTL {
			delete(l.byID, id)
			continue
		}
		ids, each = append(ids, id), append(each, int32(l.free(lane)))
	}
	if l.allowed(unproven) {
		other = firstSlots
	}
	total = min(maxClaimed, maxHeld-len(l.held))
	l.starved = total == 0
	return total, ids, each, other
}

// take adds claimed rows, and returns those whose attempts start now.
func (l *lanes) take(rows []row) (start []row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		if _, already := l.held[r.id]; already {
			l.again[r.id] = r // its lease was lost, or it was just returned to the queue
			continue
		}
		l.held[r.id] = struct{}{}
		if l.byID[r.webhookID] == nil {
			l.byID[r.webhookID] = &lane{slots: firstSlots}
		}
		lane := l.byID[r.webhookID]
		lane.waiting, lane.idle, lane.rate = append(lane.waiting, r), time.Time{}, r.rateLimit
		start = append(start, l.start(lane)...)
	}
	return start
}

// start takes rows from the waiting rows of a lane, as many as there are free slots, and returns them.
func (l *lanes) start(lane *lane) (rows []row) {
	for len(lane.waiting) > 0 && lane.inFlight < lane.slots && l.allowed(lane.class) && !l.stopped {
		if lane.inFlight+lane.unsaved >= maxUnsaved {
			l.blocked = true
			break
		}
		rows, lane.waiting = append(rows, lane.waiting[0]), lane.waiting[1:]
		lane.inFlight++
		l.inFlight[lane.class]++
	}
	return rows
}

// done records the result of an attempt. It returns the rows whose attempts start now, the rows to return to the queue because their
// endpoint fails, and whether more rows may be claimed.
func (l *lanes) done(d result) (start, back []row, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.byID[d.webhookID]
	full := !l.allowed(failing)
	lane.inFlight--
	l.inFlight[lane.class]--
	if d.attempted {
		lane.unsaved++
	}
	switch {
	case !d.attempted:
	case d.outcome.success():
		l.become(lane, proven)
		lane.slots = min(maxSlots, 2*lane.slots)
	default:
		l.become(lane, failing)
		lane.slots = max(1, lane.slots/2)
		back, lane.waiting = lane.waiting, nil
	}
	start = l.start(lane)
	if full { // other lanes may have waited for this slot
		for _, other := range l.byID {
			start = append(start, l.start(other)...)
		}
	}
	wanted = l.free(lane) > 0
	l.forget(d, lane)
	return start, back, wanted
}

// forget deletes a lane without rows, unless its endpoint fails.
func (l *lanes) forget(d result, lane *lane) {
	switch {
	case lane.inFlight+lane.unsaved+len(lane.waiting) > 0:
	case time.Now().Before(lane.paused):
		lane.idle = time.Now()
	case lane.class != failing || d.state == cancelled:
		delete(l.byID, d.webhookID)
	default:
		lane.idle = time.Now()
	}
}

func (l *lanes) become(lane *lane, c class) {
	l.inFlight[lane.class] -= lane.inFlight
	l.inFlight[c] += lane.inFlight
	lane.class = c
}

// saved records that results are in the database. It returns rows that were claimed again before this call and have a new lease: they must
// be returned to the queue. Wanted means that a claim or an attempt was waiting for this, or that the next delivery of an ordering is due
// now.
func (l *lanes) saved(results []result) (again []result, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range results {
		if lane := l.byID[r.webhookID]; lane != nil && r.attempted {
			lane.unsaved--
			l.forget(r, lane)
		}
		claimed, twice := l.again[r.id]
		delete(l.again, r.id)
		if twice && r.state == queued {
			again = append(again, result{row: claimed, state: queued, wait: r.wait})
			continue
		}
		delete(l.held, r.id)
		wanted = wanted || r.row.lane != nil && r.state != queued
	}
	return again, wanted || l.starved || l.blocked
}

// resume returns the rows that can be attempted because the results of others were saved.
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

// stop prevents further attempts, and returns the rows that were waiting for a slot.
func (l *lanes) stop() (back []row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	for _, lane := range l.byID {
		back, lane.waiting = append(back, lane.waiting...), nil
	}
	return back
}

// heldIDs returns the ids of the claimed rows that are not saved.
func (l *lanes) heldIDs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.held))
}

// attempting returns the number of attempts in flight.
func (l *lanes) attempting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.inFlight {
		n += of
	}
	return n
}
