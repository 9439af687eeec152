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

// Load folds a stream. It returns the state, which is the zero value for a stream without events, and the expected
// revision for an append that depends on this state.
func Load[S any](ctx context.Context, store Store, stream string, evolve func(S, event.Fact) S) (S, Expected, error) {
	var state S
	end := NoStream
	for recorded, err := range store.Read(ctx, stream, 0) {
		if err != nil {
			return state, end, err
		}
		fact, err := recorded.Fact()
		if err != nil {
			return state, end, fmt.Errorf("stream %s at revision %d: %w", stream, recorded.Revision, err)
		}
		state = evolve(state, fact)
		end = At(recorded.Revision)
	}
	return state, end, nil
}

// HasEvent reports whether a stream has an event at a revision. A log that lacks an event which it had before was
// replaced or restored.
func HasEvent(ctx context.Context, store Store, stream string, revision Revision, id string) (bool, error) {
	for recorded, err := range store.Read(ctx, stream, revision) {
		return err == nil && recorded.ID.String() == id, err
	}
	return false, ctx.Err()
}

// Folds is Load for kinds of streams that can be long, such as that of a lead that a monitor captures every minute. It
// caches the folds of long streams and continues from there. Like every read, the result may be stale; the expected
// revision of an append detects that.
//
// Its methods are safe for concurrent use.
type Folds[S any] struct {
	rules FoldRules[S]

	mu    sync.Mutex
	known *simplelru.LRU[cacheKey, folded]
	bytes int // size of known
}

// FoldRules define how a kind of stream is folded, and which folds are cached. A state must be unchanged by encoding it
// as JSON.
type FoldRules[S any] struct {
	// Evolve may change the state that it gets.
	Evolve func(S, event.Fact) S
	// Cacheable reports whether a state may be cached. If a state has personal data, its events must become unreadable
	// when the person is erased: this is how a stale cached state is detected.
	Cacheable func(S) bool
	// Long is the number of events from which a stream is cached.
	Long int
	// Memory is the maximum size in bytes of all cached states. One state may take an eighth of that.
	Memory int
}

// cacheKey is the section of a stream in which a cached fold ends. Each section has its own entry, so that callers that
// fold to an early revision do not evict the state of callers that fold to a late one.
type cacheKey struct {
	stream string
	// section numbers sections of sectionEvents for LoadTo; the stream's end is in the highest one. For LoadAt it
	// counts down from -1, in sections of timeSectionEvents.
	section Revision
}

const (
	sectionEvents     = 4096
	timeSectionEvents = 32
	entryOverhead     = 320 // bytes of an entry without its state
)

// endOf is the key of a fold to the stream's end.
func endOf(stream string) cacheKey { return cacheKey{stream, math.MaxInt64 / sectionEvents} }

// timeSection is the key of a fold up to a time, by the revision that it has reached. Its last revision is not known in
// advance, so the state is cached at the end of each section.
func timeSection(stream string, revision Revision) cacheKey {
	return cacheKey{stream, -1 - revision/timeSectionEvents}
}

// folded is the state after an event. It is JSON, so that its size is known and it refers to no event.
type folded struct {
	state    []byte // nil: only the event is known
	revision Revision
	id       ulid.ULID
	at       time.Time // the latest time of the events up to it
}

// NewFolds returns a Folds with an empty cache.
func NewFolds[S any](rules FoldRules[S]) *Folds[S] {
	known, err := simplelru.NewLRU[cacheKey, folded](math.MaxInt, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Folds[S]{rules: rules, known: known}
}

// Load is like the function Load. After an interrupted read, the next call continues from there.
func (f *Folds[S]) Load(ctx context.Context, store Store, stream string) (S, Expected, error) {
	state, last, err := f.LoadTo(ctx, store, stream, math.MaxInt64)
	return state, After(last), err
}

// LoadTo folds a stream up to a revision. It also returns the last folded event, or the zero Recorded.
func (f *Folds[S]) LoadTo(
	ctx context.Context, store Store, stream string, until Revision,
) (state S, last Recorded, err error) {
	g := f.cachedTo(stream, until)
	for recorded, unread := range store.Read(ctx, stream, g.known.revision) {
		if err = unread; err != nil || recorded.Revision > until {
			break
		}
		if err = g.apply(recorded); err != nil {
			break
		}
	}
	if g.dropStale(err) {
		return f.LoadTo(ctx, store, stream, until)
	}
	g.cache(cacheKey{stream, until / sectionEvents})
	return g.state, g.last, err
}

// LoadAt folds a stream up to a time, inclusive: the events before the first later one. It also returns the last event
// of the whole stream, or the zero Recorded.
func (f *Folds[S]) LoadAt(
	ctx context.Context, store Store, stream string, at time.Time,
) (state S, end Recorded, err error) {
	g := f.cachedAt(stream, at)
	past := false
	for recorded, unread := range store.Read(ctx, stream, g.known.revision) {
		if err = unread; err != nil {
			break
		}
		if past = recorded.At.After(at); past { // even if the times of later events are earlier
			break
		}
		if err = g.apply(recorded); err != nil {
			break
		}
		if recorded.Revision%timeSectionEvents == timeSectionEvents-1 {
			g.cache(timeSection(stream, recorded.Revision))
		}
	}
	if g.dropStale(err) {
		return f.LoadAt(ctx, store, stream, at)
	}
	end = g.last
	if err == nil && past {
		end, err = store.Last(ctx, stream)
	}
	if err == nil && g.last.ID == end.ID {
		g.cache(endOf(stream))
	} else if err == nil {
		g.cache(timeSection(stream, g.last.Revision))
		f.cacheEnd(stream, end)
	}
	return g.state, end, err
}

// folding is a fold that continues from a cached state, if there is one.
type folding[S any] struct {
	*Folds[S]
	key    cacheKey // of the cached state
	known  folded
	cached bool
	state  S
	last   Recorded
	latest time.Time // latest time of the folded events: clocks differ, so it may not be that of the last event
}

// errStale means that a cached state does not match the log: the log was replaced, or a person was erased.
var errStale = errors.New("a cached state is stale")

func (g *folding[S]) apply(recorded Recorded) error {
	if g.cached && recorded.Revision == g.known.revision {
		if recorded.ID != g.known.id || recorded.Erased || json.Unmarshal(g.known.state, &g.state) != nil {
			return errStale
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

// dropStale drops the cached state if it is stale, and reports whether the fold has to start again.
func (g *folding[S]) dropStale(err error) bool {
	if g.cached && (errors.Is(err, errStale) || err == nil && g.last.ID == (ulid.ULID{})) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.remove(g.key)
		return true
	}
	return false
}

// cache caches the current state of the fold.
func (g *folding[S]) cache(key cacheKey) {
	if g.last.ID == g.known.id || int(g.last.Revision) < g.rules.Long-1 || !g.rules.Cacheable(g.state) {
		return
	}
	if encoded, err := json.Marshal(g.state, exactly); err == nil && len(encoded) <= g.rules.Memory/8 {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.add(key, folded{encoded, g.last.Revision, g.last.ID, g.latest})
	}
}

// cacheEnd caches the last event of a long stream, without the state.
func (f *Folds[S]) cacheEnd(stream string, end Recorded) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.known.Peek(endOf(stream)); int(end.Revision) >= f.rules.Long-1 && (!ok || known.id != end.ID) {
		f.add(endOf(stream), folded{nil, end.Revision, end.ID, end.At})
	}
}

// cachedTo starts a fold from the latest cached state up to a revision: of its section, or of the section before.
func (f *Folds[S]) cachedTo(stream string, until Revision) *folding[S] {
	f.mu.Lock()
	defer f.mu.Unlock()
	for before := range Revision(2) {
		key := cacheKey{stream, until/sectionEvents - before}
		if known, ok := f.known.Get(key); ok && known.state != nil && known.revision <= until {
			return &folding[S]{Folds: f, key: key, known: known, cached: true}
		}
	}
	return &folding[S]{Folds: f}
}

// cachedAt starts a fold from the latest cached state up to a time.
func (f *Folds[S]) cachedAt(stream string, at time.Time) *folding[S] {
	f.mu.Lock()
	defer f.mu.Unlock()
	end, ok := f.known.Get(endOf(stream))
	if !ok {
		return &folding[S]{Folds: f}
	}
	if end.state != nil && !end.at.After(at) {
		return &folding[S]{Folds: f, key: endOf(stream), known: end, cached: true}
	}
	for key := timeSection(stream, end.revision); key.section < 0; key.section++ {
		if known, ok := f.known.Peek(key); ok && !known.at.After(at) {
			f.known.Get(key)
			return &folding[S]{Folds: f, key: key, known: known, cached: true}
		}
	}
	return &folding[S]{Folds: f}
}

// exactly preserves the difference between nil and empty.
var exactly = json.JoinOptions(json.FormatNilMapAsNull(true), json.FormatNilSliceAsNull(true))

// The caller of add and remove holds the mutex.
func (f *Folds[S]) add(key cacheKey, known folded) {
	f.remove(key)
	f.known.Add(key, known)
	for f.bytes += len(known.state) + entryOverhead; f.bytes > f.rules.Memory; {
		_, oldest, _ := f.known.RemoveOldest()
		f.bytes -= len(oldest.state) + entryOverhead
	}
}

func (f *Folds[S]) remove(key cacheKey) {
	if known, ok := f.known.Peek(key); ok {
		f.known.Remove(key)
		f.bytes -= len(known.state) + entryOverhead
	}
}
