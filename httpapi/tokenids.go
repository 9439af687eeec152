package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// tokenIDs caches the ids of the tokens that exist, as the view of tokens shows them, so that the limit on look-ups can
// tell an existing token from an invented one. A caller waits for a list that must have its token, such as the first
// one after a start.
type tokenIDs struct {
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
	tokenIDsKept    = 500_000 // 16 bytes each, plus the map
	tokenIDsWaiting = 512     // callers; a further one is told that its token does not exist
	tokenIDsTimeout = 5 * time.Second
	tokenIDsClock   = 5 * time.Minute // maximum difference of the clocks of processes that generate ids
)

func newTokenIDs(load func(ctx context.Context, after string) ([]string, error)) *tokenIDs {
	return &tokenIDs{load: load, pause: 100 * time.Millisecond, lag: time.Second, ids: map[ulid.ULID]struct{}{}}
}

// has reports whether a token exists. The error is that of a load, or of ctx.
func (t *tokenIDs) has(ctx context.Context, id string) (bool, error) {
	wanted, err := ulid.ParseStrict(id)
	if err != nil {
		return false, nil
	}
	// A list that began later than this has the token, if it exists.
	enough := time.Now().Add(t.lag)
	if old := ulid.Time(wanted.Time()).Add(tokenIDsClock); old.Before(enough) {
		enough = old
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for first := true; ; first = false {
		_, known := t.ids[wanted]
		if known || t.begun.After(enough) || len(t.ids) >= tokenIDsKept {
			return known, nil
		}
		if first {
			if t.waiting >= tokenIDsWaiting {
				return false, nil
			}
			t.waiting++
			defer func() { t.waiting-- }()
		}
		if err := t.wait(ctx); err != nil {
			return false, err
		}
	}
}

// wait waits for the load under way, or until the next one may begin, or makes that. The caller holds the lock, which
// is free meanwhile.
func (t *tokenIDs) wait(ctx context.Context) error {
	running, pause := t.loading, time.Until(t.tried.Add(t.pause))
	switch {
	case running != nil:
		t.mu.Unlock()
		defer t.mu.Lock()
		select {
		case <-running.done:
			return running.err
		case <-ctx.Done():
			return ctx.Err()
		}
	case pause > 0:
		t.mu.Unlock()
		defer t.mu.Lock()
		select {
		case <-time.After(pause):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	running = &idLoad{done: make(chan struct{})}
	defer close(running.done)
	t.loading, t.tried = running, time.Now()
	began, after := t.tried, t.after()
	t.mu.Unlock()
	// Others wait for it too, so it does not end with this caller's request.
	loading, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenIDsTimeout)
	defer cancel()
	found, err := t.load(loading, after)
	t.mu.Lock()
	t.loading, running.err = nil, err
	if err == nil {
		t.begun = began
		t.add(found)
	}
	return err
}

// after returns the id after which a load finds all that are new. Another process's clock may be behind.
func (t *tokenIDs) after() string {
	newest := t.last.Time()
	if newest <= uint64(tokenIDsClock.Milliseconds()) {
		return ""
	}
	var from ulid.ULID
	_ = from.SetTime(newest - uint64(tokenIDsClock.Milliseconds())) // cannot overflow: it is earlier than a valid time
	return from.String()
}

func (t *tokenIDs) add(found []string) {
	for _, text := range found {
		if id, err := ulid.ParseStrict(text); err == nil && len(t.ids) < tokenIDsKept {
			t.ids[id] = struct{}{}
			if id.Compare(t.last) > 0 {
				t.last = id
			}
		}
	}
}
