package eventstore

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/hashicorp/golang-lru/v2/simplelru"
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

	mu    sync.Mutex
	known *simplelru.LRU[part, folded]
	bytes int // that known takes
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
	// Memory is how many bytes all that is remembered may take, and one state an eighth of them.
	Memory int
}

// part is where in a stream a fold was asked to end. Who sends of an event long ago, again, and who sends of the latest do
// not make each other read the stream from its beginning.
type part struct {
	stream string
	number Revision // of partEvents each; Load has one of its own, behind all others
}

const (
	partEvents   = 4096
	bytesOfEntry = 256 // beside its state
)

// folded is what a stream came to with an event. As JSON it takes the bytes that it takes, and holds on to no event.
type folded struct {
	state    []byte
	revision Revision
	id       ulid.ULID
}

// NewFolds has nothing in memory yet.
func NewFolds[S any](rules FoldRules[S]) *Folds[S] {
	known, err := simplelru.NewLRU[part, folded](math.MaxInt, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Folds[S]{rules: rules, known: known}
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
	at, known, remembered := f.recall(stream, until)
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
		f.mu.Lock()
		f.forget(at)
		f.mu.Unlock()
		return f.LoadTo(ctx, store, stream, until)
	}
	if last.ID != known.id && int(last.Revision) >= f.rules.Long-1 && f.rules.Keep(state) {
		f.remember(part{stream, until / partEvents}, state, last)
	}
	return state, last, err
}

// recall gives the latest that is remembered of a stream up to a revision: of its part, or of the one before.
func (f *Folds[S]) recall(stream string, until Revision) (at part, known folded, remembered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for before := range Revision(2) {
		at = part{stream, until/partEvents - before}
		if known, remembered = f.known.Get(at); remembered && known.revision <= until {
			return at, known, true
		}
	}
	return at, folded{}, false
}

// exactly tells what is not there from what is empty.
var exactly = json.JoinOptions(json.FormatNilMapAsNull(true), json.FormatNilSliceAsNull(true))

func (f *Folds[S]) remember(at part, state S, last Recorded) {
	encoded, err := json.Marshal(state, exactly)
	if err != nil || len(encoded) > f.rules.Memory/8 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(at)
	f.known.Add(at, folded{encoded, last.Revision, last.ID})
	for f.bytes += len(encoded) + bytesOfEntry; f.bytes > f.rules.Memory; {
		_, oldest, _ := f.known.RemoveOldest()
		f.bytes -= len(oldest.state) + bytesOfEntry
	}
}

// forget is for who holds the mutex.
func (f *Folds[S]) forget(at part) {
	if known, ok := f.known.Peek(at); ok {
		f.known.Remove(at)
		f.bytes -= len(known.state) + bytesOfEntry
	}
}
