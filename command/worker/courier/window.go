package courier

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	maxSlots   = 16 // concurrent attempts at one endpoint
	firstSlots = 4  // before its first success
	maxAhead   = 64 // rows of one proven endpoint, including those in flight

	// maxUnsaved is the maximum number of attempts at one endpoint that are in flight or not saved. When the process is
	// killed, at most as many of its deliveries are sent twice.
	maxUnsaved = 64

	maxRows     = 4096
	maxClaimed  = 1024 // rows of one claim
	maxInFlight = 1024 // attempts at all endpoints
	maxUnproven = 512  // at endpoints that are not proven; the rest is reserved for proven ones
	maxFailing  = 128  // at failing endpoints

	// idleTTL is how long a window without rows is kept for a failing endpoint. It exceeds the longest retry delay of
	// the schedule and Retry-After. An endpoint that is idle for longer is probably deleted.
	idleTTL = 30 * time.Hour
)

// class is the health of an endpoint.
type class int

const (
	unproven class = iota // no response yet
	proven                // the latest attempt succeeded
	failing               // the latest attempt failed
)

// windows gives each endpoint a window of concurrent attempts, so that endpoints that hang do not delay others. An
// endpoint starts with few slots. A success doubles them, and a failure halves them, down to one. For a proven
// endpoint, more rows are claimed than it has slots.
type windows struct {
	mu       sync.Mutex
	byID     map[string]*window
	unsaved  map[string]struct{} // ids of claimed rows that are not saved yet
	again    map[string]row      // of the unsaved rows, those that were claimed again
	inFlight [failing + 1]int
	starved  bool // the last quota was zero, because too many rows were unsaved
	blocked  bool // an attempt waits because too many results of its window are not saved
	stopped  bool
}

// window is the state of an endpoint's attempts. It is not the lane of a delivery, which orders deliveries: see laneOf.
type window struct {
	class           class
	slots, inFlight int
	unsaved         int       // attempts that have ended and are not saved
	waiting         []row     // for a slot
	rate            float64   // rate limit of the endpoint, in attempts per second; 0: none
	paused          time.Time // end of the pause after the rate limit was used up
	idle            time.Time // since when the window has no rows; zero if it has
}

func newWindows() *windows {
	return &windows{byID: map[string]*window{}, unsaved: map[string]struct{}{}, again: map[string]row{}}
}

// free returns how many more rows of a window may be claimed now.
func (ws *windows) free(w *window) int {
	in := w.inFlight + len(w.waiting)
	switch {
	case time.Now().Before(w.paused):
		return 0
	case w.class != proven && !ws.allowed(w.class):
		return 0
	case w.class != proven:
		return max(0, w.slots-in)
	case in > maxAhead/2: // claims of a few rows cost too much
		return 0
	case w.rate > 0:
		return min(maxAhead-in, paced(w.rate))
	}
	return maxAhead - in
}

// paced returns how many rows of a rate-limited endpoint are claimed at once: a quarter of a second's worth, so that
// few are returned.
func paced(rate float64) int { return max(1, int(rate/4)) }

// pause stops claims for an endpoint while its rate limit is used up.
func (ws *windows) pause(webhookID string, rate float64, wait time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byID[webhookID] == nil {
		ws.byID[webhookID] = &window{slots: firstSlots, idle: time.Now()}
	}
	w := ws.byID[webhookID]
	w.rate, w.paused = rate, time.Now().Add(wait)
}

// allowed reports whether another attempt may be made at an endpoint of a class.
func (ws *windows) allowed(c class) bool {
	notProven := ws.inFlight[unproven] + ws.inFlight[failing]
	return notProven+ws.inFlight[proven] < maxInFlight &&
		(c == proven || notProven < maxUnproven) && (c != failing || ws.inFlight[failing] < maxFailing)
}

// quota returns how many rows may be claimed: in total, of each endpoint with a window, and of any other endpoint.
func (ws *windows) quota() (total int, ids []string, each []int32, other int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for id, w := range ws.byID {
		if !w.idle.IsZero() && time.Since(w.idle) > idleTTL {
			delete(ws.byID, id)
			continue
		}
		ids, each = append(ids, id), append(each, int32(ws.free(w)))
	}
	if ws.allowed(unproven) {
		other = firstSlots
	}
	total = min(maxClaimed, maxRows-len(ws.unsaved))
	ws.starved = total == 0
	return total, ids, each, other
}

// add adds claimed rows, and returns those whose attempts start now.
func (ws *windows) add(rows []row) (start []row) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, r := range rows {
		if _, already := ws.unsaved[r.id]; already {
			ws.again[r.id] = r // its lease was lost, or it was just returned to the queue
			continue
		}
		ws.unsaved[r.id] = struct{}{}
		if ws.byID[r.webhookID] == nil {
			ws.byID[r.webhookID] = &window{slots: firstSlots}
		}
		w := ws.byID[r.webhookID]
		w.waiting, w.idle, w.rate = append(w.waiting, r), time.Time{}, r.rateLimit
		start = append(start, ws.start(w)...)
	}
	return start
}

// start takes rows from the waiting rows of a window, as many as there are free slots, and returns them.
func (ws *windows) start(w *window) (rows []row) {
	for len(w.waiting) > 0 && w.inFlight < w.slots && ws.allowed(w.class) && !ws.stopped {
		if w.inFlight+w.unsaved >= maxUnsaved {
			ws.blocked = true
			break
		}
		rows, w.waiting = append(rows, w.waiting[0]), w.waiting[1:]
		w.inFlight++
		ws.inFlight[w.class]++
	}
	return rows
}

// done records the result of an attempt. It returns the rows whose attempts start now, the rows to return to the queue
// because their endpoint fails, and whether more rows may be claimed.
func (ws *windows) done(d result) (start, back []row, wanted bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byID[d.webhookID]
	full := !ws.allowed(failing)
	w.inFlight--
	ws.inFlight[w.class]--
	if d.attempted {
		w.unsaved++
	}
	switch {
	case !d.attempted:
	case d.outcome.success():
		ws.setClass(w, proven)
		w.slots = min(maxSlots, 2*w.slots)
	default:
		ws.setClass(w, failing)
		w.slots = max(1, w.slots/2)
		back, w.waiting = w.waiting, nil
	}
	start = ws.start(w)
	if full { // other windows may have waited for this slot
		for _, other := range ws.byID {
			start = append(start, ws.start(other)...)
		}
	}
	wanted = ws.free(w) > 0
	ws.forget(d, w)
	return start, back, wanted
}

// forget deletes a window without rows, unless its endpoint fails or is paused.
func (ws *windows) forget(d result, w *window) {
	switch {
	case w.inFlight+w.unsaved+len(w.waiting) > 0:
	case !time.Now().Before(w.paused) && (w.class != failing || d.state == cancelled):
		delete(ws.byID, d.webhookID)
	default:
		w.idle = time.Now()
	}
}

func (ws *windows) setClass(w *window, c class) {
	ws.inFlight[w.class] -= w.inFlight
	ws.inFlight[c] += w.inFlight
	w.class = c
}

// saved records that results are in the database. It returns rows that were claimed again before this call and have a
// new lease: they must be returned to the queue. Wanted means that a claim or an attempt was waiting for this, or that
// the next delivery of an ordering is due now.
func (ws *windows) saved(results []result) (again []result, wanted bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, r := range results {
		if w := ws.byID[r.webhookID]; w != nil && r.attempted {
			w.unsaved--
			ws.forget(r, w)
		}
		claimed, twice := ws.again[r.id]
		delete(ws.again, r.id)
		if twice && r.state == queued {
			again = append(again, result{row: claimed, state: queued, wait: r.wait})
			continue
		}
		delete(ws.unsaved, r.id)
		wanted = wanted || r.row.lane != nil && r.state != queued
	}
	return again, wanted || ws.starved || ws.blocked
}

// resume returns the rows that can be attempted because the results of others were saved.
func (ws *windows) resume() (start []row) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.blocked {
		ws.blocked = false
		for _, w := range ws.byID {
			start = append(start, ws.start(w)...)
		}
	}
	return start
}

// stop prevents further attempts, and returns the rows that were waiting for a slot.
func (ws *windows) stop() (back []row) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.stopped = true
	for _, w := range ws.byID {
		back, w.waiting = append(back, w.waiting...), nil
	}
	return back
}

// isUnsaved reports whether a row is claimed and not saved.
func (ws *windows) isUnsaved(id string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	_, unsaved := ws.unsaved[id]
	return unsaved
}

// unsavedIDs returns the ids of the claimed rows that are not saved.
func (ws *windows) unsavedIDs() []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Collect(maps.Keys(ws.unsaved))
}

// attempting returns the number of attempts in flight.
func (ws *windows) attempting() (n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, inClass := range ws.inFlight {
		n += inClass
	}
	return n
}
