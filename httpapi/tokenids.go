package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// tokenIDs are the ids of the tokens that exist, as far as the view of tokens has shown them. They are read when they are first needed
// and then, at most once a second, those that are new.
type tokenIDs struct {
	now  func() time.Time
	mu   sync.Mutex
	ids  map[ulid.ULID]struct{}
	last ulid.ULID // the newest
	read time.Time
}

const (
	tokenIDsKept  = 500_000         // 16 bytes each, and the map
	tokenIDsPause = time.Second     // between two reads
	tokenIDsClock = 5 * time.Minute // by how much the clocks of processes may differ that make ids
)

// has reports whether a token exists. Load returns the ids behind one, in order. While one caller reads, others use what is there.
func (t *tokenIDs) has(ctx context.Context, id string, load func(ctx context.Context, after string) ([]string, error)) bool {
	wanted, err := ulid.ParseStrict(id)
	if err != nil {
		return false
	}
	if after, due := t.due(); due {
		if found, err := load(ctx, after); err == nil {
			t.add(found)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.ids[wanted]
	return known
}

// due reports whether the ids are to be read again, behind which one.
func (t *tokenIDs) due() (after string, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if len(t.ids) >= tokenIDsKept || !t.read.IsZero() && now.Sub(t.read) < tokenIDsPause {
		return "", false
	}
	t.read = now
	if newest := t.last.Time(); newest > uint64(tokenIDsClock.Milliseconds()) {
		var from ulid.ULID
		_ = from.SetTime(newest - uint64(tokenIDsClock.Milliseconds())) // earlier than one that fits
		after = from.String()
	}
	return after, true
}

func (t *tokenIDs) add(found []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids == nil {
		t.ids = make(map[ulid.ULID]struct{}, len(found))
	}
	for _, text := range found {
		if id, err := ulid.ParseStrict(text); err == nil && len(t.ids) < tokenIDsKept {
			t.ids[id] = struct{}{}
			if id.Compare(t.last) > 0 {
				t.last = id
			}
		}
	}
}
