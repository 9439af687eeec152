package eventstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/eventstore/event"
)

// Folds is Load for streams of which some grow long, such as that of a lead that a monitor captures every minute. It caches the
// folds of long streams and continues from there. Like every read, the result may be stale; the expected revision of an append
// confirms it.
//
// Its methods may be called from many goroutines.
type Folds[S any] struct {
	rules FoldRules[S]

	mu    sync.Mutex
	known *simplelru.LRU[part, folded]
	bytes int // that known takes
}

// FoldRules say how a kind of stream is folded, and which folds are cached. A state must survive JSON.
type FoldRules[S any] struct {
	// Evolve may change the state that it is given.
	Evolve func(S, event.Fact) S
	// Keep reports whether a state may be cached. For a state about a person, the events it comes from must become
	// unreadable when the person is forgotten: this is how a cached state is found to be stale.
	Keep func(S) bool
	// Long is the number of events from which on a stream is cached.
	Long int
	// Memory is how many bytes all remembered states may take together. One state may take an eighth of that.
	Memory int
}

// part is where in a stream a fold ends. Folds that end early and folds that end late are remembered apart, so that callers of
// the one do not make callers of the other read the stream from its beginning.
type part struct {
	stream string
	// number counts parts of partEvents for a fold that was asked to end at a revision; the stream's end is the highest. It
	// counts down from -1, in parts of momentEvents, for a fold that was asked to end at a moment.
	number Revision
}

const (
	partEvents   = 4096
	momentEvents = 32
	bytesOfEntry = 320 // beside its state
)

// endOf is the part of folds to the stream's end, as Load makes them.
func endOf(stream string) part { return part{stream, math.MaxInt64 / partEvents} }

// moments is the part of a fold up to a moment that has come to a revision. At which one it will end is not known in advance,
// so it is remembered at the end of each part that it passes.
func moments(stream string, revision Revision) part { return part{stream, -1 - revision/momentEvents} }

// folded is a state after an event. It is kept as JSON, so that its size is known and it holds no event in memory.
type folded struct {
	state    []byte // nil: it is only known that the event is there
	revision Revision
	id       ulid.ULID
	at       time.Time // the latest up to there
}

// NewFolds returns a Folds that remembers nothing yet.
func NewFolds[S any](rules FoldRules[S]) *Folds[S] {
	known, err := simplelru.NewLRU[part, folded](math.MaxInt, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Folds[S]{rules: rules, known: known}
}

// Load does what the function Load does. If a read is cut off, the next one goes on from there.
func (f *Folds[S]) Load(ctx context.Context, store Store, stream string) (S, Expected, error) {
	state, last, err := f.LoadTo(ctx, store, stream, math.MaxInt64)
	if last.ID == (ulid.ULID{}) {
		return state, NoStream, err
	}
	return state, At(last.Revision), err
}

// LoadTo folds a stream up to a revision. It also returns the last event it folded: the zero Recorded if there is none.
func (f *Folds[S]) LoadTo(ctx context.Context, store Store, stream string, until Revision) (state S, last Recorded, err error) {
	g := f.recall(stream, until)
	for recorded, unread := range store.Read(ctx, stream, g.known.revision) {
		if err = unread; err != nil || recorded.Revision > until {
			break
		}
		if err = g.take(recorded); err != nil {
			break
		}
	}
	if g.mistaken(err) {
		return f.LoadTo(ctx, store, stream, until)
	}
	g.keep(part{stream, until / partEvents})
	return g.state, g.last, err
}

// LoadAt folds a stream up to a moment, inclusive: the events before the first one that is later. It also returns the last event
// of the whole stream: the zero Recorded if there is none.
func (f *Folds[S]) LoadAt(ctx context.Context, store Store, stream string, moment time.Time) (state S, end Recorded, err error) {
	g := f.recallAt(stream, moment)
	past := false
	for recorded, unread := range store.Read(ctx, stream, g.known.revision) {
		if err = unread; err != nil {
			break
		}
		if past = recorded.At.After(moment); past { // whatever the clock said that follows
			break
		}
		if err = g.take(recorded); err != nil {
			break
		}
		if recorded.Revision%momentEvents == momentEvents-1 {
			g.keep(moments(stream, recorded.Revision))
		}
	}
	if g.mistaken(err) {
		return f.LoadAt(ctx, store, stream, moment)
	}
	end = g.last
	if err == nil && past {
		end, err = store.Last(ctx, stream)
	}
	if err == nil && g.last.ID == end.ID {
		g.keep(endOf(stream))
	} else if err == nil {
		g.keep(moments(stream, g.last.Revision))
		f.noteEnd(stream, end)
	}
	return g.state, end, err
}

// folding is a fold that goes on from what is remembered, if anything is.
type folding[S any] struct {
	*Folds[S]
	at         part // that it is remembered of
	known      folded
	remembered bool
	state      S
	last       Recorded
	latest     time.Time // of the events up to the last: clocks differ, so that it need not be that one's
}

// errMistaken says that what is remembered is not what the log holds: the log was replaced, or a person was forgotten.
var errMistaken = errors.New("what is remembered of a stream is not true")

func (g *folding[S]) take(recorded Recorded) error {
	if g.remembered && recorded.Revision == g.known.revision {
		if recorded.ID != g.known.id || recorded.Erased || json.Unmarshal(g.known.state, &g.state) != nil {
			return errMistaken
		}
		g.last, g.latest = recorded, g.known.at
		return nil
	}
	fact, err := recorded.Fact()
	if err != nil {
		return fmt.Errorf("stream %s at revision %d: %w", recorded.Stream, recorded.Revision, err)
	}
	g.state, g.last = g.rules.Evolve(g.state, fact), recorded
	if recorded.At.After(g.latest) {
		g.latest = recorded.At
	}
	return nil
}

// mistaken reports whether the fold has to begin anew: what was remembered is not true, and is forgotten.
func (g *folding[S]) mistaken(err error) bool {
	if g.remembered && (errors.Is(err, errMistaken) || err == nil && g.last.ID == (ulid.ULID{})) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.forget(g.at)
		return true
	}
	return false
}

// keep remembers what the fold has come to.
func (g *folding[S]) keep(at part) {
	if g.last.ID == g.known.id || int(g.last.Revision) < g.rules.Long-1 || !g.rules.Keep(g.state) {
		return
	}
	if encoded, err := json.Marshal(g.state, exactly); err == nil && len(encoded) <= g.rules.Memory/8 {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.remember(at, folded{encoded, g.last.Revision, g.last.ID, g.latest})
	}
}

// noteEnd remembers the last event of a long stream, without the state there.
func (f *Folds[S]) noteEnd(stream string, end Recorded) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.known.Peek(endOf(stream)); int(end.Revision) >= f.rules.Long-1 && (!ok || known.id != end.ID) {
		f.remember(endOf(stream), folded{nil, end.Revision, end.ID, end.At})
	}
}

// recall begins with the latest remembered state up to a revision: of its part, or of the part before.
func (f *Folds[S]) recall(stream string, until Revision) *folding[S] {
	f.mu.Lock()
	defer f.mu.Unlock()
	for before := range Revision(2) {
		at := part{stream, until/partEvents - before}
		if known, ok := f.known.Get(at); ok && known.state != nil && known.revision <= until {
			return &folding[S]{Folds: f, at: at, known: known, remembered: true}
		}
	}
	return &folding[S]{Folds: f}
}

// recallAt begins with the latest remembered state up to a moment.
func (f *Folds[S]) recallAt(stream string, moment time.Time) *folding[S] {
	f.mu.Lock()
	defer f.mu.Unlock()
	end, ok := f.known.Get(endOf(stream))
	if !ok {
		return &folding[S]{Folds: f}
	}
	if end.state != nil && !end.at.After(moment) {
		return &folding[S]{Folds: f, at: endOf(stream), known: end, remembered: true}
	}
	for at := moments(stream, end.revision); at.number < 0; at.number++ {
		if known, ok := f.known.Peek(at); ok && !known.at.After(moment) {
			f.known.Get(at)
			return &folding[S]{Folds: f, at: at, known: known, remembered: true}
		}
	}
	return &folding[S]{Folds: f}
}

// exactly keeps nil and empty apart.
var exactly = json.JoinOptions(json.FormatNilMapAsNull(true), json.FormatNilSliceAsNull(true))

// remember and forget are called with the mutex held.
func (f *Folds[S]) remember(at part, known folded) {
	f.forget(at)
	f.known.Add(at, known)
	for f.bytes += len(known.state) + bytesOfEntry; f.bytes > f.rules.Memory; {
		_, oldest, _ := f.known.RemoveOldest()
		f.bytes -= len(oldest.state) + bytesOfEntry
	}
}

func (f *Folds[S]) forget(at part) {
	if known, ok := f.known.Peek(at); ok {
		f.known.Remove(at)
		f.bytes -= len(known.state) + bytesOfEntry
	}
}
