package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// existingIDs caches the ids of the tokens or intakes that exist, as their view shows them, so that the limit on look-ups
// can tell an existing one from an invented one. A caller waits for a list that must have its id, such as the first one
// after a start.
type existingIDs struct {
	load  func(ctx context.Context, after string) ([]string, error) // the ids after one, in order
	pause time.Duration                                             // between the beginnings of two loads
	lag   time.Duration                                             // of the view behind the log

	mu      sync.Mutex
	ids     map[ulid.ULID]struct{}
	last    ulid.ULID // the newest
	begun   time.Time // when the last load began that succeeded
	tried   time.Time // when the last load began
	loading *idLoad   // nil: none is under way
	waiting int       // callers
}

// idLoad is a load under way. Err is set before done is closed.
type idLoad struct {
	done chan struct{}
	err  error
}

const (
	existingKept    = 500_000 // 16 bytes each, plus the map
	existingWaiting = 512     // callers; a further one is told that its id does not exist
	existingTimeout = 5 * time.Second
	idClock         = 5 * time.Minute // maximum difference of the clocks of processes that generate ids
)

func newExistingIDs(load func(ctx context.Context, after string) ([]string, error)) *existingIDs {
	return &existingIDs{load: load, pause: 100 * time.Millisecond, lag: time.Second, ids: map[ulid.ULID]struct{}{}}
}

// has reports whether an id exists. The error is that of a load, or of ctx.
func (e *existingIDs) has(ctx context.Context, id string) (bool, error) {
	wanted, err := ulid.ParseStrict(id)
	if err != nil || invented(id) {
		return false, nil
	}
	// A list that began later than this has the id, if it exists.
	enough := time.Now().Add(e.lag)
	if old := ulid.Time(wanted.Time()).Add(idClock); old.Before(enough) {
		enough = old
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for first := true; ; first = false {
		_, known := e.ids[wanted]
		if known || e.begun.After(enough) || len(e.ids) >= existingKept {
			return known, nil
		}
		if first {
			if e.waiting >= existingWaiting {
				return false, nil
			}
			e.waiting++
			defer func() { e.waiting-- }()
		}
		if err := e.wait(ctx); err != nil {
			return false, err
		}
	}
}

// wait waits for the load under way, or until the next one may begin, or makes that. The caller holds the lock, which
// is free meanwhile.
func (e *existingIDs) wait(ctx context.Context) error {
	running, pause := e.loading, time.Until(e.tried.Add(e.pause))
	switch {
	case running != nil:
		e.mu.Unlock()
		defer e.mu.Lock()
		select {
		case <-running.done:
			return running.err
		case <-ctx.Done():
			return ctx.Err()
		}
	case pause > 0:
		e.mu.Unlock()
		defer e.mu.Lock()
		select {
		case <-time.After(pause):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	running = &idLoad{done: make(chan struct{})}
	defer close(running.done)
	e.loading, e.tried = running, time.Now()
	began, after := e.tried, e.after()
	e.mu.Unlock()
	// Others wait for it too, so it does not end with this caller's request.
	loading, cancel := context.WithTimeout(context.WithoutCancel(ctx), existingTimeout)
	defer cancel()
	found, err := e.load(loading, after)
	e.mu.Lock()
	e.loading, running.err = nil, err
	if err == nil {
		e.begun = began
		e.add(found)
	}
	return err
}

// after returns the id after which a load finds all that are new. Another process's clock may be behind.
func (e *existingIDs) after() string {
	newest := e.last.Time()
	if newest <= uint64(idClock.Milliseconds()) {
		return ""
	}
	var from ulid.ULID
	_ = from.SetTime(newest - uint64(idClock.Milliseconds())) // cannot overflow: it is earlier than a valid time
	return from.String()
}

func (e *existingIDs) add(found []string) {
	for _, text := range found {
		if id, err := ulid.ParseStrict(text); err == nil && len(e.ids) < existingKept {
			e.ids[id] = struct{}{}
			if id.Compare(e.last) > 0 {
				e.last = id
			}
		}
	}
}

// invented reports whether an id says that it will be made later, so that it cannot exist.
func invented(id string) bool {
	made, err := ulid.ParseStrict(id)
	return err != nil || ulid.Time(made.Time()).After(time.Now().Add(idClock))
}
