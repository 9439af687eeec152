package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Tail follows the log once for all followers of a process: it reads each page once, opens and decodes each event once,
// and passes it to the followers whose filters select it.
//
// Followers at the end of the log share a reader that does not wait for the slower of them. One that is too slow for it
// reads again from where it is. Followers that are behind, such as those of views that start empty, share a reader that
// waits for the slowest of them, unless it takes nothing for a while. A reader holds only the pages that some of its
// followers have not taken, up to a bound.
type Tail struct {
	store   Store // its events are in stored form
	open    func(ctx context.Context, events []Recorded) error
	decodes Filter
	bounds  bounds

	mu      sync.Mutex
	readers []*tailReader // oldest first
}

// Sealing is a Store whose events are stored in another one in another form.
type Sealing interface {
	// Below is the other store.
	Below() Store
	// Open opens events in stored form, in place. After an error, it may have opened some of them, and may be called
	// with them again.
	Open(ctx context.Context, events []Recorded) error
}

// bounds limit a reader.
type bounds struct {
	events   int
	bytes    int           // of stored payload
	interval time.Duration // least time between two reads at the end of the log
	// time in which other followers may join at the position where a reader that is behind has started
	gather  time.Duration
	maxWait time.Duration // how long a reader that is behind waits for a follower that takes nothing
}

// NewTail prepares a tail of a store, which may be a Sealing one. Only events that the filter selects are opened and
// decoded. The tail reads while it has followers.
func NewTail(store Store, decodes Filter) *Tail {
	t := &Tail{
		store: store, decodes: decodes, open: func(context.Context, []Recorded) error { return nil },
		bounds: bounds{
			events: 3000, bytes: 2 << 20, interval: 4 * time.Millisecond, gather: time.Second,
			maxWait: 5 * time.Second,
		},
	}
	if sealing, ok := store.(Sealing); ok {
		t.store, t.open = sealing.Below(), sealing.Open
	}
	return t
}

// Start is where a follower starts.
type Start struct {
	After Position // a position that the log returned, or 0
	// Since is when the follower's earlier events were read, or later. It gets no events that were read before.
	// Otherwise, it could get an event as it was before an erasure after it got an earlier event of the same stream as
	// it was after the erasure.
	Since  time.Time
	Filter Filter
	Stored bool // only the stored form is used: an event that cannot be opened or decoded is not an error
}

// Follower is one consumer of a tail. Its methods must not be called concurrently.
type Follower struct {
	Start
	tail   *Tail
	reader *tailReader // nil: none yet, or the reader is past the follower's position
	polled time.Time   // when it read events, or joined its reader
}

// tailReader reads the log from a position on.
type tailReader struct {
	stop    context.CancelFunc
	started time.Time
	room    chan struct{} // receives when a follower has taken pages or left

	// Guarded by the mutex of the tail.
	followers     map[*Follower]struct{}
	base          Position // the position before the first page
	pages         []tailPage
	events, bytes int           // of all pages
	live          bool          // it has reached the end of the log
	err           error         // that ended it
	grown         chan struct{} // closed by the next page and by the end
}

// tailPage is a page of the log, decoded.
type tailPage struct {
	events   []Decoded
	position Position
	bytes    int
	opened   time.Time // when its opening began
	live     bool      // it reached the end of the log
}

// Follow adds a follower. The caller must close it.
func (t *Tail) Follow(start Start) *Follower {
	if now := time.Now(); start.After == 0 {
		start.Since = time.Time{} // there are no earlier events
	} else if start.Since.After(now) { // by the clock of another machine
		start.Since = now
	}
	f := &Follower{Start: start, tail: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serve(f)
	return f
}

// Close removes the follower.
func (f *Follower) Close() {
	f.tail.mu.Lock()
	defer f.tail.mu.Unlock()
	f.join(nil)
}

// Next appends the next events, at most limit, and returns the position that they reach. It waits for events, for a
// position without events, or for due, when the position is 0. The error of an event is returned after the events
// before it. After another error, which is that of the store, the next call reads the log again.
func (f *Follower) Next(
	ctx context.Context, to []Decoded, limit int, due <-chan time.Time,
) ([]Decoded, Position, error) {
	for {
		events, reached, grown, err := f.poll(to, limit)
		if err != nil || reached > 0 {
			return events, reached, err
		}
		select {
		case <-grown:
		case <-due:
			return to, 0, nil
		case <-ctx.Done():
			return to, 0, ctx.Err()
		}
	}
}

// Live reports whether the follower's reader has reached the end of the log.
func (f *Follower) Live() bool {
	f.tail.mu.Lock()
	defer f.tail.mu.Unlock()
	return f.reader != nil && f.reader.live
}

// Idle reports whether the follower has read everything at the end of the log.
func (f *Follower) Idle() bool {
	f.tail.mu.Lock()
	defer f.tail.mu.Unlock()
	return f.reader != nil && f.reader.live && f.After >= f.reader.end()
}

// poll returns what the reader has. If that is nothing, it returns a channel that is closed when there may be more.
func (f *Follower) poll(
	to []Decoded, limit int,
) (events []Decoded, reached Position, grown <-chan struct{}, err error) {
	f.tail.mu.Lock()
	defer f.tail.mu.Unlock()
	r := f.tail.serve(f)
	events = to
	for _, page := range r.from(f.After) {
		var position Position
		var all bool
		events, position, all, err = f.read(page, events, limit)
		if position > 0 {
			f.After, reached = position, position
		}
		if !all {
			break
		}
	}
	switch {
	case reached > 0:
		f.polled = time.Now()
		r.drop(f.tail.bounds)
		r.makeRoom()
		f.tail.serve(f)                  // now followers of another reader may be at the same position
		return events, reached, nil, nil // an error is returned by the next call
	case err == nil && r.err != nil:
		err = r.err
		f.join(nil)
	}
	return events, 0, r.grown, err
}

// read appends the selected events of a page, at most limit in total, and returns the position that they reach: 0
// if there are none.
func (f *Follower) read(p tailPage, to []Decoded, limit int) (_ []Decoded, reached Position, all bool, err error) {
	for _, e := range p.events {
		if e.Position <= f.After || !f.Filter.Matches(e.Stream, e.Type) {
			continue
		}
		if e.Err != nil && !f.Stored {
			return to, reached, false, e.Err
		}
		if len(to) == limit {
			return to, reached, false, nil
		}
		to, reached = append(to, e), e.Position
	}
	return to, p.position, true, nil
}

// serve returns the reader of a follower: the oldest one that has what the follower needs, or a new one. The caller
// holds the mutex.
func (t *Tail) serve(f *Follower) *tailReader {
	if r := f.reader; r != nil && r.err != nil && r.serves(f) { // its pages are taken before its error
		return r
	}
	for _, r := range t.readers {
		if r.serves(f) {
			f.join(r)
			return r
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &tailReader{
		stop: stop, started: time.Now(), base: f.After, room: make(chan struct{}, 1), grown: make(chan struct{}),
		followers: map[*Follower]struct{}{},
	}
	t.readers = append(t.readers, r)
	f.join(r)
	go t.run(ctx, r)
	return r
}

// join moves the follower to a reader, or from its reader to none. A reader without followers stops. The caller holds
// the mutex.
func (f *Follower) join(r *tailReader) {
	old := f.reader
	if old == r {
		return
	}
	if f.reader, f.polled = r, time.Now(); r != nil {
		r.followers[f] = struct{}{}
	}
	if old == nil {
		return
	}
	if delete(old.followers, f); len(old.followers) == 0 {
		old.stop()
		f.tail.remove(old)
	}
	old.makeRoom()
}

// remove removes a reader that ends, so that no follower joins it.
func (t *Tail) remove(r *tailReader) {
	t.readers = slices.DeleteFunc(t.readers, func(other *tailReader) bool { return other == r })
}

// serves reports whether a follower can continue with this reader. A follower does not wait for another reader to catch
// up with it.
func (r *tailReader) serves(f *Follower) bool {
	if f.After < r.base || f.reader != r && f.After > r.end() && !r.live {
		return false
	}
	next := r.from(f.After)
	return len(next) == 0 || !next[0].opened.Before(f.Since)
}

// end returns the position up to which the reader has read.
func (r *tailReader) end() Position {
	if n := len(r.pages); n > 0 {
		return r.pages[n-1].position
	}
	return r.base
}

// from returns the pages that end after a position.
func (r *tailReader) from(after Position) []tailPage {
	return r.pages[sort.Search(len(r.pages), func(i int) bool { return r.pages[i].position > after }):]
}

func (r *tailReader) makeRoom() {
	select {
	case r.room <- struct{}{}:
	default:
	}
}

// drop drops the pages that all followers have taken. While followers of a reader that is behind may still join, it
// keeps them.
func (r *tailReader) drop(b bounds) {
	if !r.live && time.Since(r.started) < b.gather {
		return
	}
	taken := r.end()
	for f := range r.followers {
		if f.After >= r.base { // otherwise the follower will leave
			taken = min(taken, f.After)
		}
	}
	for len(r.pages) > 0 && r.pages[0].position <= taken {
		r.dropFirst()
	}
}

func (r *tailReader) dropFirst() {
	first := r.pages[0]
	r.base, r.events, r.bytes = first.position, r.events-len(first.events), r.bytes-first.bytes
	r.pages = slices.Delete(r.pages, 0, 1)
}

// full reports whether a page exceeds the bounds of a reader. Any page fits into an empty one.
func (r *tailReader) full(b bounds, p tailPage) bool {
	return len(r.pages) > 0 && (r.events+len(p.events) > b.events || r.bytes+p.bytes > b.bytes)
}

// waitForSlow returns how long a full reader must wait before it drops a page that some follower has not taken. While
// no follower wants more, it waits: nothing is gained by reading on.
func (r *tailReader) waitForSlow(b bounds) time.Duration {
	wanted, until := false, r.started.Add(b.gather)
	for f := range r.followers {
		wanted = wanted || f.After >= r.end()
		if maxWait := f.polled.Add(b.maxWait); f.After >= r.base && f.After < r.pages[0].position &&
			maxWait.After(until) {
			until = maxWait
		}
	}
	switch {
	case !wanted:
		return b.maxWait
	case r.live:
		return 0
	}
	return time.Until(until)
}

// run reads the log until the reader has no followers, or until an error.
func (t *Tail) run(ctx context.Context, r *tailReader) {
	defer r.stop()
	group, reading := errgroup.WithContext(ctx)
	pages := make(chan pulledPage)
	group.Go(func() error {
		defer close(pages)
		return t.pull(reading, r, pages)
	})
	group.Go(func() error {
		for page := range pages {
			decoded, err := t.decode(reading, page)
			if err == nil {
				err = t.add(reading, r, decoded)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	err := group.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(r)
	r.err = err
	close(r.grown)
}

// pulledPage is a page of the log.
type pulledPage struct {
	Page
	live bool // it reached the end of the log
}

// pull reads the pages of the log. A reader has reached the end of the log when one page reaches the head that was read
// before it.
func (t *Tail) pull(ctx context.Context, r *tailReader, to chan<- pulledPage) error {
	head, err := t.store.Head(ctx)
	if err != nil {
		return err
	}
	send := func(page Page, live bool) error {
		select {
		case to <- pulledPage{page, live}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	after, first := r.base, true // the first page after head was read
	live := after >= head
	if live {
		if err := send(Page{Position: after}, true); err != nil {
			return err
		}
	}
	began := time.Now()
	for page, err := range t.store.Subscribe(ctx, after, Filter{}) {
		if err != nil {
			return err
		}
		reached := page.Position >= head
		live = live || reached && first
		if err = send(page, live); err != nil {
			return err
		}
		switch first = reached; {
		case live: // single appends are read together
			err = Sleep(ctx, time.Until(began.Add(PauseAfter(t.bounds.interval, len(page.Events)))))
			began = time.Now()
		case reached:
			if head, err = t.store.Head(ctx); err == nil && page.Position >= head {
				live, err = true, send(Page{Position: head}, true)
			}
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the subscription ended", ErrUnavailable)
}

// PauseAfter returns the pause after a batch, which grows with its number of events up to five times the interval. A
// read or a transaction costs about the same for any number of events, so a few events are taken soon, and many are
// taken together, later.
func PauseAfter(interval time.Duration, events int) time.Duration {
	const eventsPerInterval = 20
	return interval * time.Duration(min(1+events/eventsPerInterval, 5))
}

// decode opens and decodes the selected events of a page.
func (t *Tail) decode(ctx context.Context, page pulledPage) (tailPage, error) {
	p := tailPage{
		events: make([]Decoded, len(page.Events)), position: page.Position, opened: time.Now(), live: page.live,
	}
	selected := make([]int, 0, len(page.Events))
	for i := range page.Events {
		stored := &page.Events[i]
		p.events[i] = Decoded{Recorded: stored, Stored: stored}
		if p.bytes += len(stored.Data); t.decodes.Matches(stored.Stream, stored.Type) {
			selected = append(selected, i)
		}
	}
	opened, decoded := make([]Recorded, len(selected)), make([]Decoded, len(selected))
	for i, at := range selected {
		opened[i] = page.Events[at]
	}
	err := t.open(ctx, opened)
	if err != nil && (ctx.Err() != nil || errors.Is(err, ErrUnavailable)) {
		return p, err
	}
	for i, at := range selected {
		decoded[i] = Decoded{Recorded: &opened[i], Stored: &page.Events[at]}
		if err != nil { // of one of them
			decoded[i].Err = t.open(ctx, opened[i:i+1])
		}
	}
	DecodeAll(decoded)
	for i, at := range selected {
		p.events[at] = decoded[i]
	}
	return p, nil
}

// add adds a page to a reader. A reader that is behind waits for room.
func (t *Tail) add(ctx context.Context, r *tailReader, p tailPage) error {
	for {
		wait := t.offer(r, p)
		if wait <= 0 {
			return nil
		}
		again := time.NewTimer(wait)
		select {
		case <-r.room:
		case <-again.C:
		case <-ctx.Done():
		}
		if again.Stop(); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// offer adds a page if there is room, or returns how long to wait for it.
func (t *Tail) offer(r *tailReader, p tailPage) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.live = r.live || p.live
	for r.drop(t.bounds); r.full(t.bounds, p); r.dropFirst() {
		if wait := r.waitForSlow(t.bounds); wait > 0 {
			return wait
		}
	}
	switch n := len(r.pages); {
	case p.position <= r.end():
	case n > 0 && len(r.pages[n-1].events) == 0:
		r.pages[n-1] = p // an empty page only has a position
	default:
		r.pages = append(r.pages, p)
	}
	r.events, r.bytes = r.events+len(p.events), r.bytes+p.bytes
	close(r.grown)
	r.grown = make(chan struct{})
	return 0
}
