package delivery

import (
	"maps"
	"slices"
	"sync"
)

const (
	mostSlots    = 16  // of one endpoint
	mostInFlight = 256 // of all
	mostFailing  = 128 // of all that fail: the rest is kept for those that do not
)

// lanes are the slots of endpoints. One that fails has ever fewer, down to one, so that it holds nobody up.
type lanes struct {
	mu       sync.Mutex
	byID     map[string]*lane
	rows     map[string]struct{} // in hand
	inFlight int
}

type lane struct{ slots, used int }

func (l *lane) failing() bool { return l.slots < mostSlots }

// free says what may be claimed: how many at all, and how many of the endpoints that are not idle and healthy.
func (l *lanes) free() (total int, ids []string, slots []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	failing := 0
	for _, lane := range l.byID {
		if lane.failing() {
			failing += lane.used
		}
	}
	for id, lane := range l.byID {
		n := max(0, lane.slots-lane.used)
		if lane.failing() {
			n = max(0, min(n, mostFailing-failing))
			failing += n
		}
		ids, slots = append(ids, id), append(slots, int32(n))
	}
	return mostInFlight - l.inFlight, ids, slots
}

// take notes that a row is in hand.
func (l *lanes) take(r row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[r.webhookID] == nil {
		l.byID[r.webhookID] = &lane{slots: mostSlots}
	}
	l.byID[r.webhookID].used++
	l.rows[r.id] = struct{}{}
	l.inFlight++
}

// attempted learns from an attempt.
func (l *lanes) attempted(webhookID string, success bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.byID[webhookID]
	if success {
		lane.slots = min(mostSlots, 2*lane.slots)
		return
	}
	lane.slots = max(1, lane.slots/2)
}

// leave notes that a row is out of hand.
func (l *lanes) leave(r row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := l.byID[r.webhookID]
	if lane.used--; lane.used == 0 && !lane.failing() {
		delete(l.byID, r.webhookID)
	}
	delete(l.rows, r.id)
	l.inFlight--
}

// inHand lists the rows in hand.
func (l *lanes) inHand() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.rows))
}
