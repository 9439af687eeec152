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

// memory is a log in memory that is subscribed to in pages, and that can fail.
type memory struct {
	eventstore.Store
	mu     sync.Mutex
	events []eventstore.Recorded
	grown  chan struct{}
	fault  error // of every subscription, until it is nil again
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

// append adds an event to a stream; one that is not JSON cannot be decoded.
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

// read is how many pages all subscriptions have read.
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

func (m *memory) Subscribe(ctx context.Context, after eventstore.Position, filter eventstore.Filter) iter.Seq2[eventstore.Item, error] {
	return func(yield func(eventstore.Item, error) bool) {
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
				yield(eventstore.Item{}, fault)
				return
			case len(page) > 0:
				for i := range page {
					if filter.Matches(page[i].Stream, page[i].Type) && !yield(eventstore.Item{Event: &page[i], Position: page[i].Position}, nil) {
						return
					}
				}
				after = page[len(page)-1].Position
				if !yield(eventstore.Item{Position: after}, nil) {
					return
				}
				continue
			}
			select {
			case <-grown:
			case <-ctx.Done():
				yield(eventstore.Item{}, ctx.Err())
				return
			}
		}
	}
}

// selective is a projector of which a tail wants to know the filter alone.
type selective struct {
	Projector
	filter eventstore.Filter
}

func (selective) Name() string                { return "selective" }
func (s selective) Filter() eventstore.Filter { return s.filter }

func streams(prefixes ...string) eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: prefixes}
}

// Whoever follows from wherever, with whatever filter and however slowly, gets every event that matches, once and in
// order, and hears how far the log goes.
func TestEveryFollowerGetsWhatASubscriptionWouldGive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		filters := []eventstore.Filter{streams("a-"), streams("b-"), streams("a-", "b-")}
		log := newMemory(rapid.IntRange(1, 7).Draw(t, "page"))
		tail := NewTail(log, selective{filter: filters[0]}, selective{filter: filters[1]})
		tail.most.items, tail.most.spare = rapid.IntRange(1, 20).Draw(t, "most"), rapid.IntRange(0, 5).Draw(t, "spare")
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
			ahead := rapid.IntRange(0, 4).Draw(t, "ahead")
			following.Go(func() {
				if wrong := followed(ctx, log, tail, after, total, filter, ahead); wrong != "" {
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

// followed follows up to a position and tells what was not as it should have been.
func followed(ctx context.Context, log *memory, tail *Tail, after, total eventstore.Position, filter eventstore.Filter, ahead int) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	items := make(chan feedItem, ahead)
	failed := make(chan error, 1)
	go func() { failed <- tail.follow(ctx, after, filter, items) }()
	var got []eventstore.Position
	for position := after; position < total; {
		select {
		case item := <-items:
			if item.position < position || item.err != nil {
				return fmt.Sprintf("%d after %d: %v", item.position, position, item.err)
			}
			if position = item.position; !item.isMark() {
				got = append(got, position)
			}
		case err := <-failed:
			return fmt.Sprintf("failed: %v", err)
		}
	}
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

func TestFollowersAtTheEndOfTheLogReadItOnce(t *testing.T) {
	t.Parallel()
	log := newMemory(1)
	tail := NewTail(log, selective{filter: streams("a-")})
	const followers, events = 5, 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	feeds := make([]*feed, followers)
	for i := range feeds {
		feeds[i] = openFeed(ctx, tail, 0, streams("a-"), events)
	}
	all := func(count int) {
		for range count {
			log.append("a-1", `{}`)
		}
		for _, f := range feeds {
			for seen := 0; seen < count; {
				b, err := f.collect(ctx, 100, time.Now(), nil)
				require.NoError(t, err)
				seen += len(b.events)
			}
		}
	}
	all(1) // now each of them is at the end
	before := log.read()
	all(events)
	require.LessOrEqual(t, log.read()-before, events, "a page of one event is read once for all")
}

func TestWhenTheLogCannotBeReadEveryFollowerHearsIt(t *testing.T) {
	t.Parallel()
	log := newMemory(10)
	tail := NewTail(log, selective{filter: streams("a-")})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one, other := openFeed(ctx, tail, 0, streams("a-"), 1), openFeed(ctx, tail, 0, streams("a-"), 1)
	log.append("a-1", `{}`)
	for _, f := range []*feed{one, other} {
		b, err := f.collect(ctx, 1, time.Now(), nil)
		require.NoError(t, err)
		require.Len(t, b.events, 1)
	}
	log.change(func() { log.fault = eventstore.ErrUnavailable })
	for _, f := range []*feed{one, other} {
		var err error
		for err == nil {
			_, err = f.collect(ctx, 1, time.Now(), nil)
		}
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
	}
	log.change(func() { log.fault = nil })
	log.append("a-1", `{}`)
	again := openFeed(ctx, tail, 1, streams("a-"), 1)
	b, err := again.collect(ctx, 1, time.Now(), nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, b.position)
}

func TestAnEventThatCannotBeReadStopsThoseItIsFor(t *testing.T) {
	t.Parallel()
	log := newMemory(10)
	tail := NewTail(log, selective{filter: streams("a-", "b-")})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	concerned, other := openFeed(ctx, tail, 0, streams("a-"), 1), openFeed(ctx, tail, 0, streams("b-"), 1)
	log.append("a-1", `not JSON`)
	log.append("b-1", `{}`)
	_, err := concerned.collect(ctx, 1, time.Now(), nil)
	require.ErrorContains(t, err, "position 1")
	var b batch
	for b.position < 2 { // a mark that says that position 1 is not of b- may come alone
		b, err = other.collect(ctx, 1, time.Now(), nil)
		require.NoError(t, err)
	}
	require.Len(t, b.events, 1)
}

// One follower has not yet heard that the reader failed when another one has it read again. What was appended in between
// is for the first one too.
func TestAReaderThatBeginsAgainSkipsNothing(t *testing.T) {
	t.Parallel()
	log := newMemory(10)
	tail := NewTail(log, selective{filter: streams("a-")})
	first, second := &follower{}, &follower{}
	require.NoError(t, tail.join(t.Context(), first))
	defer tail.leave(first)
	tail.seek(first, 0)
	log.change(func() { log.fault = eventstore.ErrUnavailable })
	require.Eventually(t, func() bool {
		tail.mu.Lock()
		defer tail.mu.Unlock()
		return tail.stop == nil
	}, time.Minute, time.Millisecond)
	log.change(func() { log.fault = nil })
	log.append("a-1", `{}`)
	require.NoError(t, tail.join(t.Context(), second))
	defer tail.leave(second)
	log.append("a-1", `{}`)
	items, on, err := tail.next(t.Context(), first)
	require.NoError(t, err)
	require.True(t, on)
	require.EqualValues(t, 1, items[0].position)
}

func TestATailHoldsWhatSomebodyHasNotTaken(t *testing.T) {
	t.Parallel()
	log := newMemory(10)
	tail := NewTail(log, selective{filter: streams("a-")})
	tail.most = bounds{items: 100, bytes: 1 << 20, spare: 5}
	quick, slow, away := &follower{}, &follower{}, &follower{away: true}
	for _, f := range []*follower{quick, slow, away} {
		require.NoError(t, tail.join(t.Context(), f))
		defer tail.leave(f)
	}
	tail.seek(quick, 0)
	tail.seek(slow, 0)
	events := func(f *follower, n int) {
		for n > 0 {
			items, on, err := tail.next(t.Context(), f)
			require.NoError(t, err)
			require.True(t, on)
			for _, item := range items {
				if !item.isMark() {
					n--
				}
			}
		}
	}
	held := func() (n int) {
		tail.mu.Lock()
		defer tail.mu.Unlock()
		return len(tail.items)
	}
	for range 40 {
		log.append("a-1", `{}`)
	}
	events(quick, 40)
	require.GreaterOrEqual(t, held(), 40)
	events(slow, 40)
	log.append("a-1", `{}`)
	events(quick, 1)
	require.Less(t, held(), 15)
}

// An erasure makes an event unreadable that the tail has decoded before. A projector that began again with the event before it from
// the log and then took this one from the tail failed, and went on failing as long as the tail held it.
func TestTail_RejoinReadsErasures(t *testing.T) {
	t.Parallel()
	log, filter := newMemory(10), streams("a")
	tail := NewTail(log, selective{filter: filter})
	follow := func(after eventstore.Position) <-chan feedItem {
		items := make(chan feedItem, 10)
		go func() { _ = tail.follow(t.Context(), after, filter, items) }() // it ends with the test
		return items
	}
	next := func(items <-chan feedItem) feedItem {
		for {
			if item := <-items; !item.isMark() {
				return item
			}
		}
	}
	first := follow(0)
	log.append("a", `{}`)
	next(first)
	log.append("a", `{}`)
	require.False(t, next(first).event.Erased, "by way of the tail, which the first event has started")
	log.change(func() {
		log.events = slices.Clone(log.events)
		log.events[1].Erased = true
	})
	require.True(t, next(follow(1)).event.Erased)
}
