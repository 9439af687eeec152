package projection

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// memory is a log in memory that is read in pages and can fail.
type memory struct {
	eventstore.Store
	mu     sync.Mutex
	events []eventstore.Recorded
	grown  chan struct{}
	fault  error // of every subscription, until it is set to nil
	page   int
	pages  int
}

func newMemory(page int) *memory { return &memory{grown: make(chan struct{}), page: page} }

func (m *memory) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
	close(m.grown)
	m.grown = make(chan struct{})
}

// append adds an event to a stream. Data that are not JSON cannot be decoded.
func (m *memory) append(stream, data string) {
	m.change(func() {
		m.events = append(m.events, eventstore.Recorded{
			Event: eventstore.Event{
				ID: ulid.Make(), Type: event.ClaimReleased{}.EventType(), Data: []byte(data), At: time.Unix(0, 0),
			},
			Stream: stream, Position: eventstore.Position(len(m.events) + 1),
		})
	})
}

// read returns how many pages all subscriptions have read.
func (m *memory) read() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pages
}

func (m *memory) Head(context.Context) (eventstore.Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return eventstore.Position(len(m.events)), m.fault
}

func (m *memory) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		for {
			m.mu.Lock()
			fault, grown := m.fault, m.grown
			var page []eventstore.Recorded
			if int(after) < len(m.events) {
				page = m.events[after:min(int(after)+m.page, len(m.events))]
				m.pages++
			}
			m.mu.Unlock()
			switch {
			case fault != nil:
				yield(eventstore.Page{}, fault)
				return
			case len(page) > 0:
				after = page[len(page)-1].Position
				selected := slices.DeleteFunc(slices.Clone(page), func(r eventstore.Recorded) bool { return !filter.Matches(r.Stream, r.Type) })
				if !yield(eventstore.Page{Events: selected, Position: after}, nil) {
					return
				}
				continue
			}
			select {
			case <-grown:
			case <-ctx.Done():
				yield(eventstore.Page{}, ctx.Err())
				return
			}
		}
	}
}

// selective is a projector with only a filter.
type selective struct {
	Projector
	filter eventstore.Filter
}

func (selective) Name() string                { return "selective" }
func (s selective) Filter() eventstore.Filter { return s.filter }

func streams(prefixes ...string) eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: prefixes}
}

// next returns the next batch of a follower, of at most 100 events.
func next(ctx context.Context, f *follower) (batch, error) { return f.next(ctx, nil, 100, nil) }

// followTail follows a tail until the end of the test.
func followTail(t *testing.T, tail *Tail, after eventstore.Position, prefixes ...string) *follower {
	t.Helper()
	f, err := tail.follow(t.Context(), after, streams(prefixes...))
	require.NoError(t, err)
	t.Cleanup(f.close)
	return f
}

// awaitEvents returns the next count events of a follower.
func awaitEvents(t *testing.T, f *follower, count int) (events []Event) {
	t.Helper()
	for len(events) < count {
		b, err := next(t.Context(), f)
		require.NoError(t, err)
		events = append(events, b.events...)
	}
	require.Len(t, events, count)
	return events
}

// From any position, with any filter and at any speed, a follower gets each matching event once and in order, and the position of the head
// of the log.
func TestTail_FollowsLikeASubscription(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		filters := []eventstore.Filter{streams("a-"), streams("b-"), streams("a-", "b-")}
		log := newMemory(rapid.IntRange(1, 7).Draw(t, "page"))
		tail := NewTail(log, selective{filter: filters[0]}, selective{filter: filters[1]})
		tail.bounds.events, tail.bounds.spare = rapid.IntRange(1, 20).Draw(t, "most"), rapid.IntRange(0, 5).Draw(t, "spare")
		draw := rapid.SampledFrom([]string{"a-1", "b-1", "c-1"})
		before := rapid.SliceOfN(draw, 0, 30).Draw(t, "before")
		during := rapid.SliceOfN(draw, 0, 60).Draw(t, "during")
		for _, stream := range before {
			log.append(stream, `{}`)
		}
		total := eventstore.Position(len(before) + len(during))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var following sync.WaitGroup
		failures := make(chan string, 4)
		for i := range rapid.IntRange(1, 4).Draw(t, "followers") {
			filter := filters[i%len(filters)]
			after := eventstore.Position(rapid.IntRange(0, len(before)).Draw(t, "after"))
			limit := rapid.IntRange(1, 5).Draw(t, "limit")
			following.Go(func() {
				if wrong := followed(ctx, log, tail, after, total, filter, limit); wrong != "" {
					failures <- wrong
				}
			})
		}
		for _, stream := range during {
			log.append(stream, `{}`)
		}
		following.Wait()
		select {
		case wrong := <-failures:
			t.Fatal(wrong)
		default:
		}
	})
}

// followed follows up to a position and returns the first error found.
func followed(ctx context.Context, log *memory, tail *Tail, after, total eventstore.Position, filter eventstore.Filter, limit int) string {
	f, err := tail.follow(ctx, after, filter)
	if err != nil {
		return err.Error()
	}
	defer f.close()
	var got []eventstore.Position
	for position := after; position < total; {
		b, err := f.next(ctx, nil, limit, nil)
		if err != nil {
			return fmt.Sprintf("failed: %v", err)
		}
		if b.position <= position || len(b.events) > limit || len(b.events) > 0 && last(b.events) > b.position {
			return fmt.Sprintf("%d events up to %d after %d", len(b.events), b.position, position)
		}
		position = b.position
		for _, e := range b.events {
			got = append(got, e.Position)
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	var want []eventstore.Position
	for _, e := range log.events[after:total] {
		if filter.Matches(e.Stream, e.Type) {
			want = append(want, e.Position)
		}
	}
	if fmt.Sprint(want) != fmt.Sprint(got) {
		return fmt.Sprintf("got %v instead of %v", got, want)
	}
	return ""
}

func TestTail_ReadsOnceForAllFollowers(t *testing.T) {
	t.Parallel()
	log := newMemory(1)
	tail := NewTail(log, selective{filter: streams("a-")})
	const events = 20
	followers := make([]*follower, 5)
	for i := range followers {
		followers[i] = followTail(t, tail, 0, "a-")
	}
	all := func(count int) {
		for range count {
			log.append("a-1", `{}`)
		}
		for _, f := range followers {
			awaitEvents(t, f, count)
		}
	}
	all(1) // now each follower is at the end
	before := log.read()
	all(events)
	require.LessOrEqual(t, log.read()-before, events, "a page of one event is read once for all")
}

func TestTail_ReportsErrorToEveryFollower(t *testing.T) {
	t.Parallel()
	log := newMemory(10)
	tail := NewTail(log, selective{filter: streams("a-")})
	followers := []*follower{followTail(t, tail, 0, "a-"), followTail(t, tail, 0, "a-")}
	log.append("a-1", `{}`)
	for _, f := range followers {
		awaitEvents(t, f, 1)
	}
	log.change(func() { log.fault = eventstore.ErrUnavailable })
	for _, f := range followers {
		var err error
		for err == nil {
			_, err = next(t.Context(), f)
		}
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
	}
	log.change(func() { log.fault = nil })
	log.append("a-1", `{}`)
	again := awaitEvents(t, followTail(t, tail, 1, "a-"), 1)
	require.EqualValues(t, 2, again[0].Position)
}

func TestTail_UndecodableEvent(t *testing.T) {
	t.Parallel()
	log := newMemory(10)
	tail := NewTail(log, selective{filter: streams("a-", "b-")})
	selects, other := followTail(t, tail, 0, "a-"), followTail(t, tail, 0, "b-")
	log.append("a-1", `{}`)
	log.append("a-1", `not JSON`)
	log.append("b-1", `{}`)
	awaitEvents(t, selects, 1)
	var err error
	for err == nil {
		var b batch
		b, err = next(t.Context(), selects)
		require.Empty(t, b.events)
	}
	require.ErrorContains(t, err, "position 2")
	awaitEvents(t, other, 1)

	byItself := followTail(t, NewTail(log), 0, "a-")
	require.EqualValues(t, 1, awaitEvents(t, byItself, 1)[0].Position)
	_, err = next(t.Context(), byItself)
	require.ErrorContains(t, err, "position 2")
}

// The reader failed, and a second follower restarts it before the first one notices. The first follower must also get the events that were
// appended in between.
func TestTail_RestartSkipsNothing(t *testing.T) {
	t.Parallel()
	log := newMemory(10)
	tail := NewTail(log, selective{filter: streams("a-")})
	first := followTail(t, tail, 0, "a-")
	log.change(func() { log.fault = eventstore.ErrUnavailable })
	require.Eventually(t, func() bool {
		tail.mu.Lock()
		defer tail.mu.Unlock()
		return tail.stop == nil
	}, time.Minute, time.Millisecond)
	log.change(func() { log.fault = nil })
	log.append("a-1", `{}`)
	followTail(t, tail, 1, "a-")
	log.append("a-1", `{}`)
	require.EqualValues(t, 1, awaitEvents(t, first, 2)[0].Position)
}

func TestTail_HoldsWhatAFollowerHasNotTaken(t *testing.T) {
	t.Parallel()
	log := newMemory(1)
	tail := NewTail(log, selective{filter: streams("a-")})
	tail.bounds = bounds{events: 100, bytes: 1 << 20, spare: 5}
	quick, slow, lagging := followTail(t, tail, 0, "a-"), followTail(t, tail, 0, "a-"), followTail(t, tail, 0, "a-")
	held := func() int {
		tail.mu.Lock()
		defer tail.mu.Unlock()
		return tail.events
	}
	for _, f := range []*follower{quick, slow} { // now they take from the tail
		f.lagging = false
	}
	require.True(t, lagging.lagging)
	for range 40 {
		log.append("a-1", `{}`)
	}
	awaitEvents(t, quick, 40)
	require.GreaterOrEqual(t, held(), 40)
	awaitEvents(t, slow, 40)
	log.append("a-1", `{}`)
	awaitEvents(t, quick, 1)
	require.Less(t, held(), 15)
}

// An erasure makes an event unreadable that the tail has decoded. A projector that restarted, read the previous event from the log and took
// this one from the tail failed, again and again while the tail held the event.
func TestTail_RejoinReadsErasures(t *testing.T) {
	t.Parallel()
	log := newMemory(10)
	tail := NewTail(log, selective{filter: streams("a")})
	first := followTail(t, tail, 0, "a")
	log.append("a", `{}`)
	awaitEvents(t, first, 1)
	log.append("a", `{}`)
	require.False(t, awaitEvents(t, first, 1)[0].Erased, "by way of the tail, which the first event has started")
	log.change(func() {
		log.events = slices.Clone(log.events)
		log.events[1].Erased = true
	})
	require.True(t, awaitEvents(t, followTail(t, tail, 1, "a"), 1)[0].Erased)
}

// TestDelay_OldestUnappliedEvent uses events of 1970 and a view of accounts.
func TestDelay_OldestUnappliedEvent(t *testing.T) {
	t.Parallel()
	log := newMemory(2)
	log.append("lead-1", "{}")
	log.append("account-1", "{}")
	log.append("lead-1", "{}")
	log.append("lead-2", "{}")
	log.append("lead-3", "{}")
	view := selective{filter: streams(event.AccountPrefix)}
	unread, read := NewTail(log, view), NewTail(log, view)
	require.NoError(t, readLog(t.Context(), log, logRange{end: 5, filter: view.Filter()}, 0, read.add))
	since1970 := time.Since(time.Unix(0, 0))
	asked := log.pages
	for _, tail := range []*Tail{read, unread} {
		r := &Runner{store: log, workers: []*worker{{projector: view, tail: tail}}}
		for _, c := range []struct {
			position eventstore.Position
			waits    bool
		}{{0, true}, {1, true}, {2, false}, {5, false}} {
			delay, err := r.Delay(t.Context(), Status{Name: view.Name(), Position: c.position, Lag: uint64(5 - c.position)})
			require.NoError(t, err)
			if c.waits {
				require.GreaterOrEqual(t, delay, since1970, "at %d", c.position)
			} else {
				require.Zero(t, delay, "at %d", c.position)
			}
		}
		require.Equal(t, tail == unread, log.pages > asked, "the log is asked for what the tail does not hold, and for nothing else")
	}
}
