package eventstore

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Folds is Load for streams of which some grow long, such as that of a lead which a monitor brings in every minute. What a
// long stream came to is remembered, and whoever loads it again reads on from there. That is a guess, as every read is,
// which the append's expected revision confirms.
//
// Its methods may be called from many goroutines.
type Folds[S any] struct {
	rules FoldRules[S]
	known *lru.Cache[string, folded]
}

// FoldRules are how a kind of stream is folded, and what of it is remembered. A state must survive JSON.
type FoldRules[S any] struct {
	// Evolve may use up the state that it is given.
	Evolve func(S, event.Fact) S
	// Keep tells whether a state may be remembered after a fact. It must be a fact of which something is gone when a person
	// is forgotten: that is how it is seen that what is remembered must go too.
	Keep func(S, event.Fact) bool
	// Long is from how many events on a stream is remembered.
	Long int
	// Most streams are remembered, of which none takes more bytes than Largest.
	Most, Largest int
}

// folded is what a stream came to with an event. As JSON it takes the bytes that it takes, and holds on to no event.
type folded struct {
	state    []byte
	revision Revision
	id       ulid.ULID
}

// NewFolds has nothing in memory yet.
func NewFolds[S any](rules FoldRules[S]) *Folds[S] {
	known, err := lru.New[string, folded](rules.Most)
	if err != nil {
		panic(err) // a number that is not positive
	}
	return &Folds[S]{rules, known}
}

// Load is Load. Where one is cut off the next goes on.
func (f *Folds[S]) Load(ctx context.Context, store Store, stream string) (state S, end Expected, err error) {
	known, remembered := f.known.Get(stream)
	var last event.Fact
	end = NoStream
	for recorded, unread := range store.Read(ctx, stream, known.revision) {
		if err = unread; err != nil {
			break
		}
		if remembered && recorded.Revision == known.revision {
			if recorded.ID != known.id || recorded.Erased || json.Unmarshal(known.state, &state) != nil {
				break // the log is another, or somebody has been forgotten
			}
			end = At(known.revision)
			continue
		}
		var fact event.Fact
		if fact, err = recorded.Fact(); err != nil {
			err = fmt.Errorf("stream %s at revision %d: %w", stream, recorded.Revision, err)
			break
		}
		state, end, last = f.rules.Evolve(state, fact), At(recorded.Revision), fact
	}
	if remembered && end == NoStream && err == nil {
		f.known.Remove(stream)
		return f.Load(ctx, store, stream)
	}
	if last.Data != nil && int(end) >= f.rules.Long-1 && f.rules.Keep(state, last) {
		f.remember(stream, state, Revision(end), last.ID)
	}
	return state, end, err
}

func (f *Folds[S]) remember(stream string, state S, revision Revision, id ulid.ULID) {
	if encoded, err := json.Marshal(state); err == nil && len(encoded) <= f.rules.Largest {
		f.known.Add(stream, folded{encoded, revision, id})
	}
}
