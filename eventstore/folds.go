package eventstore

import (
	"context"
	"fmt"
	"math"

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
	// Keep tells whether a state may be remembered. One of a person must not come of a fact that stays as it is when they are
	// forgotten: that something is gone from it is how it is seen that what is remembered must go too.
	Keep func(S) bool
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
func (f *Folds[S]) Load(ctx context.Context, store Store, stream string) (S, Expected, error) {
	state, last, err := f.LoadTo(ctx, store, stream, math.MaxInt64)
	if last.ID == (ulid.ULID{}) {
		return state, NoStream, err
	}
	return state, At(last.Revision), err
}

// LoadTo folds a stream up to a revision, and returns the event that it came to as well, which is nothing's when there is
// none.
func (f *Folds[S]) LoadTo(ctx context.Context, store Store, stream string, until Revision) (state S, last Recorded, err error) {
	known, remembered := f.known.Get(stream)
	if remembered && known.revision > until {
		known, remembered = folded{}, false
	}
	for recorded, unread := range store.Read(ctx, stream, known.revision) {
		if err = unread; err != nil || recorded.Revision > until {
			break
		}
		if remembered && recorded.Revision == known.revision {
			if recorded.ID != known.id || recorded.Erased || json.Unmarshal(known.state, &state) != nil {
				break // the log is another, or somebody has been forgotten
			}
			last = recorded
			continue
		}
		var fact event.Fact
		if fact, err = recorded.Fact(); err != nil {
			err = fmt.Errorf("stream %s at revision %d: %w", stream, recorded.Revision, err)
			break
		}
		state, last = f.rules.Evolve(state, fact), recorded
	}
	if remembered && last.ID == (ulid.ULID{}) && err == nil {
		f.known.Remove(stream)
		return f.LoadTo(ctx, store, stream, until)
	}
	if last.ID != known.id && int(last.Revision) >= f.rules.Long-1 && f.rules.Keep(state) {
		f.remember(stream, state, last.Revision, last.ID)
	}
	return state, last, err
}

// exactly tells what is not there from what is empty.
var exactly = json.JoinOptions(json.FormatNilMapAsNull(true), json.FormatNilSliceAsNull(true))

func (f *Folds[S]) remember(stream string, state S, revision Revision, id ulid.ULID) {
	if encoded, err := json.Marshal(state, exactly); err == nil && len(encoded) <= f.rules.Largest {
		f.known.Add(stream, folded{encoded, revision, id})
	}
}
