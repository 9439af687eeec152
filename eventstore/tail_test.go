package eventstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore/event"
)

// tailLog is a log in memory that is read in pages and can fail.
type tailLog struct {
	Store
	mu     sync.Mutex
	events []Recorded
	grown  chan struct{}
	fault  error // of every subscription, until it is set to nil
	page   int
	pages  int // read by all subscriptions
}

func newTailLog(page int) *tailLog { return &tailLog{grown: make(chan struct{}), page: page} }

func (m *tailLog) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
	close(m.grown)
	m.grown = make(chan struct{})
}

// append adds events to streams. Data that are not JSON cannot be decoded.
func (m *tailLog) append(data string, streams ...string) {
	m.change(func() {
		for _, stream := range streams {
			m.events = append(m.events, Recorded{
				Event: Event{
					ID: ulid.Make(), Type: event.ClaimReleased{}.EventType(), Data: []byte(data), At: time.Unix(0, 0),
				},
				Stream: stream, Position: Position(len(m.events) + 1),
			})
		}
	})
}

// fill adds a number of events to a stream.
func (m *tailLog) fill(stream string, n int) { m.append(`{}`, slices.Repeat([]string{stream}, n)...) }

// erase marks an event as erased, for later reads.
func (m *tailLog) erase(position Position) {
	m.change(func() {
		m.events = slices.Clone(m.events)
		m.events[position-1].Erased = true
	})
}

func (m *tailLog) read() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pages
}

func (m *tailLog) Head(context.Context) (Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Position(len(m.events)), m.fault
}

func (m *tailLog) Subscribe(ctx context.Context, after Position, _ Filter) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		for {
			m.mu.Lock()
			fault, grown := m.fault, m.grown
			var page []Recorded
			if int(after) < len(m.events) {
				page = slices.Clone(m.events[after:min(int(after)+m.page, len(m.events))])
				m.pages++
			}
			m.mu.Unlock()
			switch {
			case fault != nil:
				yield(Page{}, fault)
				return
			case len(page) > 0:
				after = page[len(page)-1].Position
				if !yield(Page{Events: page, Position: after}, nil) {
					return
				}
				continue
			}
			select {
			case <-grown:
			case <-ctx.Done():
				yield(Page{}, ctx.Err())
				return
			}
		}
	}
}

func streams(prefixes ...string) Filter { return Filter{StreamPrefixes: prefixes} }

// startFollowing follows a tail until the end of the test.
func startFollowing(t *testing.T, tail *Tail, start Start) *Follower {
	t.Helper()
	f := tail.Follow(start)
	t.Cleanup(f.Close)
	return f
}

// awaitEvents returns the next count events of a follower.
func awaitEvents(t *testing.T, f *Follower, count int) (events []Decoded) {
	t.Helper()
	for len(events) < count {
		var err error
		events, _, err = f.Next(t.Context(), events, 100_000, nil)
		require.NoError(t, err)
	}
	require.Len(t, events, count)
	return events
}

// nextError returns the first error of a follower, which takes no events before.
func nextError(t *testing.T, f *Follower) error {
	t.Helper()
	for {
		events, _, err := f.Next(t.Context(), nil, 100, nil)
		require.Empty(t, events)
		if err != nil {
			return err
		}
	}
}

// modelFollower is a follower and what it must have.
type modelFollower struct {
	*Follower
	from  Position
	limit int
	got   []Position
}

// Whatever the order of appends, joins, leaves, reads and failures of the log, each follower gets every event that it
// selects once, in order, up to the position that it was given, and in the end all of them.
func TestTail_FollowsLikeASubscription(t *testing.T) {
	t.Parallel()
	rapid.Check(t, followLikeASubscription)
}

func followLikeASubscription(t *rapid.T) {
	log := newTailLog(rapid.IntRange(1, 7).Draw(t, "page"))
	tail := NewTail(log, streams("a-", "b-"))
	tail.bounds.events = rapid.IntRange(1, 20).Draw(t, "bound")
	tail.bounds.bytes = rapid.IntRange(20, 200).Draw(t, "bytes")
	tail.bounds.interval, tail.bounds.gather, tail.bounds.maxWait = time.Microsecond,
		time.Millisecond, 2*time.Millisecond
	var followers []*modelFollower
	defer func() {
		for _, f := range followers {
			f.Close()
		}
		tail.mu.Lock()
		defer tail.mu.Unlock()
		if len(tail.readers) > 0 {
			t.Fatal("a reader has no followers")
		}
	}()
	take := func(f *modelFollower) {
		events, reached, err := f.Next(context.Background(), nil, f.limit, time.After(time.Millisecond))
		if err != nil && (!errors.Is(err, ErrUnavailable) || reached > 0) {
			t.Fatalf("failed: %v", err)
		}
		if reached == 0 {
			return
		}
		for _, e := range events {
			f.got = append(f.got, e.Position)
		}
		var want []Position
		for _, e := range log.events[f.from:reached] {
			if f.Filter.Matches(e.Stream, e.Type) {
				want = append(want, e.Position)
			}
		}
		if len(events) > f.limit || fmt.Sprint(want) != fmt.Sprint(f.got) {
			t.Fatalf("got %v instead of %v up to %d", f.got, want, reached)
		}
	}
	pick := func(t *rapid.T) *modelFollower {
		if len(followers) == 0 {
			t.Skip()
		}
		return rapid.SampledFrom(followers).Draw(t, "follower")
	}
	t.Repeat(map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			log.append(`{}`,
				rapid.SliceOfN(rapid.SampledFrom([]string{"a-1", "b-1", "c-1"}), 1, 12).Draw(t, "streams")...)
		},
		"join": func(t *rapid.T) {
			after := Position(rapid.IntRange(0, len(log.events)).Draw(t, "after"))
			filter := rapid.SampledFrom([]Filter{streams("a-"), streams("b-"), streams("a-", "b-"), {}}).
				Draw(t, "filter")
			start := Start{
				After: after, Filter: filter,
				Since: time.Now().Add(
					-rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Hour}).Draw(t, "age"),
				),
			}
			followers = append(followers, &modelFollower{
				Follower: tail.Follow(start), from: after, limit: rapid.IntRange(1, 9).Draw(t, "limit"),
			})
		},
		"leave": func(t *rapid.T) {
			left := pick(t)
			left.Close()
			followers = slices.DeleteFunc(followers, func(f *modelFollower) bool { return f == left })
		},
		"take": func(t *rapid.T) { take(pick(t)) },
		"wait": func(t *rapid.T) {
			time.Sleep(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 3 * time.Millisecond}).Draw(t, "time"))
		},
		"fail": func(*rapid.T) {
			log.change(func() { log.fault = ErrUnavailable })
			time.Sleep(100 * time.Microsecond)
			log.change(func() { log.fault = nil })
		},
		"": func(t *rapid.T) {
			tail.mu.Lock()
			defer tail.mu.Unlock()
			for _, r := range tail.readers {
				if len(r.followers) == 0 || len(r.pages) > 1 && r.events > tail.bounds.events+log.page {
					t.Fatalf("a reader has %d followers and %d events", len(r.followers), r.events)
				}
			}
		},
	})
	for _, f := range followers {
		for attempts := 0; f.After < Position(len(log.events)); attempts++ {
			if take(f); attempts > 10_000 {
				t.Fatal("a follower does not reach the end of the log")
			}
		}
	}
}

func TestTail_ReadsTheEndOnce(t *testing.T) {
	t.Parallel()
	log := newTailLog(1)
	tail := NewTail(log, streams("a-"))
	const events = 20
	followers := make([]*Follower, 5)
	for i := range followers {
		followers[i] = startFollowing(t, tail, Start{Filter: streams("a-")})
	}
	all := func(count int) {
		log.fill("a-1", count)
		for _, f := range followers {
			awaitEvents(t, f, count)
		}
	}
	all(1)
	before := log.read()
	all(events)
	require.LessOrEqual(t, log.read()-before, events, "a page of one event is read once for all")
}

// Views that start empty begin within a moment of each other, and fold at different speeds.
func TestTail_ReadsOnceForFollowersThatAreBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pages, size, views = 200, 100, 15
		log := newTailLog(size)
		log.fill("a-1", pages*size)
		tail := NewTail(log, streams("a-"))
		var following sync.WaitGroup
		for i := range views {
			following.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond)
				f := tail.Follow(Start{Filter: streams("a-")})
				defer f.Close()
				for count := 0; count < pages*size; {
					events, _, err := f.Next(t.Context(), nil, 1000, nil)
					if err != nil {
						t.Error(err)
						return
					}
					count += len(events)
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				}
			})
		}
		following.Wait()
		require.Equal(t, pages, log.read())
	})
}

// The positions of views after a crash differ by a few events.
func TestTail_NearbyFollowersMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pages, size = 400, 100
		log := newTailLog(size)
		log.fill("a-1", pages*size)
		tail := NewTail(log, streams("a-"))
		tail.bounds.events = 1000 // each of the followers fills a reader before it meets another
		var following sync.WaitGroup
		for i := range Position(10) {
			following.Go(func() {
				f := tail.Follow(Start{After: 50 - 5*i, Since: time.Now().Add(-time.Hour), Filter: streams("a-")})
				defer f.Close()
				for f.After < pages*size {
					_, _, err := f.Next(t.Context(), nil, 1000, nil)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
			synctest.Wait()
		}
		following.Wait()
		require.Less(t, log.read(), pages*3/2)
	})
}

// At the end of the log no follower waits for a slow one, which gets everything in the end.
func TestTail_SlowFollowerAtTheEnd(t *testing.T) {
	t.Parallel()
	log := newTailLog(10)
	tail := NewTail(log, streams("a-"))
	tail.bounds.events, tail.bounds.maxWait = 50, time.Hour
	quick, slow := startFollowing(t, tail, Start{}), startFollowing(t, tail, Start{})
	log.fill("a-1", 1)
	awaitEvents(t, quick, 1)
	awaitEvents(t, slow, 1)
	for range 20 {
		log.fill("a-1", 10)
		awaitEvents(t, quick, 10)
	}
	awaitEvents(t, slow, 200)
	log.fill("a-1", 1)
	awaitEvents(t, slow, 1)
	awaitEvents(t, quick, 1)
}

// Behind the end of the log, the others wait for a slow follower for a limited time.
func TestTail_SlowFollowerBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := newTailLog(10)
		log.fill("a-1", 1000)
		tail := NewTail(log, streams("a-"))
		tail.bounds.events = 50
		quick, slow := startFollowing(t, tail, Start{}), startFollowing(t, tail, Start{})
		began := time.Now()
		events, _, err := slow.Next(t.Context(), nil, 1, nil)
		require.NoError(t, err)
		require.Len(t, events, 1)
		awaitEvents(t, quick, 50)
		require.Less(t, time.Since(began), tail.bounds.gather)
		events, _, err = quick.Next(t.Context(), nil, 950, nil)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), tail.bounds.maxWait, "it waits for the slow one")
		awaitEvents(t, quick, 950-len(events))
		require.Less(t, time.Since(began), 2*tail.bounds.maxWait)
		awaitEvents(t, slow, 999)
	})
}

// A reader does not leave its only follower behind.
func TestTail_SlowFollowerAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := newTailLog(10)
		log.fill("a-1", 1000)
		tail := NewTail(log, streams("a-"))
		tail.bounds.events = 50
		f := startFollowing(t, tail, Start{})
		for range 3 {
			time.Sleep(time.Hour)
			_, _, err := f.Next(t.Context(), nil, 10, nil)
			require.NoError(t, err)
			synctest.Wait()
			require.LessOrEqual(t, log.read(), 12)
		}
		awaitEvents(t, f, 970)
		time.Sleep(time.Second)
		log.fill("a-1", 1000)
		time.Sleep(time.Hour)
		require.LessOrEqual(t, log.read(), 107, "at the end neither")
		awaitEvents(t, f, 1000)
		require.Equal(t, 200, log.read())
	})
}

// The clock of the database that dates a checkpoint may be ahead.
func TestTail_SinceTheFuture(t *testing.T) {
	t.Parallel()
	log := newTailLog(10)
	log.fill("a-1", 2)
	awaitEvents(t, startFollowing(t, NewTail(log, streams("a-")), Start{After: 1, Since: time.Now().Add(time.Hour)}), 1)
}

func TestTail_ReportsErrorToEveryFollower(t *testing.T) {
	t.Parallel()
	log := newTailLog(10)
	tail := NewTail(log, streams("a-"))
	followers := []*Follower{startFollowing(t, tail, Start{}), startFollowing(t, tail, Start{})}
	log.fill("a-1", 1)
	for _, f := range followers {
		awaitEvents(t, f, 1)
	}
	log.change(func() { log.fault = ErrUnavailable })
	for _, f := range followers {
		require.ErrorIs(t, nextError(t, f), ErrUnavailable)
	}
	log.change(func() { log.fault = nil })
	log.fill("a-1", 1)
	require.EqualValues(t, 2, awaitEvents(t, followers[0], 1)[0].Position)
	require.EqualValues(t, 2, awaitEvents(t, startFollowing(t, tail, Start{After: 1}), 1)[0].Position)
}

// The reader failed, and a new follower starts another one before the first follower notices.
func TestTail_RestartSkipsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := newTailLog(10)
		tail := NewTail(log, streams("a-"))
		first := startFollowing(t, tail, Start{})
		_, reached, err := first.Next(t.Context(), nil, 1, time.After(time.Second))
		require.NoError(t, err)
		require.Zero(t, reached)
		log.change(func() { log.fault = ErrUnavailable })
		synctest.Wait()
		log.change(func() { log.fault = nil })
		log.fill("a-1", 1)
		second := startFollowing(t, tail, Start{After: 1})
		log.fill("a-1", 1)
		awaitEvents(t, second, 1)
		require.ErrorIs(t, nextError(t, first), ErrUnavailable)
		require.EqualValues(t, 1, awaitEvents(t, first, 2)[0].Position)
	})
}

func TestTail_UndecodableEvent(t *testing.T) {
	t.Parallel()
	log := newTailLog(10)
	tail := NewTail(log, streams("a-", "b-"))
	selects, other := startFollowing(t, tail, Start{Filter: streams("a-")}),
		startFollowing(t, tail, Start{Filter: streams("b-")})
	stored := startFollowing(t, tail, Start{Stored: true})
	log.append(`{}`, "a-1")
	log.append(`not JSON`, "a-1")
	log.append(`{}`, "b-1", "c-1")
	awaitEvents(t, selects, 1)
	require.ErrorContains(t, nextError(t, selects), "position 2")
	require.ErrorContains(t, nextError(t, selects), "position 2", "again")
	require.IsType(t, event.ClaimReleased{}, awaitEvents(t, other, 1)[0].Data)
	all := awaitEvents(t, stored, 4)
	require.Nil(t, all[3].Data, "the tail does not select it")
}

// sealedLog seals events. Opening data that begin with ! fails.
type sealedLog struct {
	*tailLog
	calls int
}

var errSeal = errors.New("damaged")

func (s *sealedLog) Below() Store { return s.tailLog }

func (s *sealedLog) Open(_ context.Context, events []Recorded) error {
	s.calls++
	for i := range events {
		if strings.HasPrefix(string(events[i].Data), "!") {
			return errSeal
		}
		events[i].Data = []byte(strings.TrimPrefix(string(events[i].Data), "sealed"))
	}
	return nil
}

func TestTail_OpensEventsOnce(t *testing.T) {
	t.Parallel()
	log := &sealedLog{tailLog: newTailLog(10)}
	log.append(`sealed{}`, "a-1", "a-1", "c-1")
	tail := NewTail(log, streams("a-", "b-"))
	stored := startFollowing(t, tail, Start{Stored: true})
	for _, f := range []*Follower{
		startFollowing(t, tail, Start{Filter: streams("a-")}), startFollowing(t, tail, Start{Filter: streams("a-")}),
	} {
		for _, e := range awaitEvents(t, f, 2) {
			require.Equal(t, `{}`, string(e.Recorded.Data))
			require.IsType(t, event.ClaimReleased{}, e.Data)
		}
	}
	for _, e := range awaitEvents(t, stored, 3) {
		require.Equal(t, `sealed{}`, string(e.Stored.Data))
	}
	require.Equal(t, 1, log.calls)
}

func TestTail_DamagedEvent(t *testing.T) {
	t.Parallel()
	log := &sealedLog{tailLog: newTailLog(10)}
	log.append(`sealed{}`, "a-1", "b-1")
	log.append(`!`, "a-1")
	log.append(`sealed{}`, "b-1")
	tail := NewTail(log, streams("a-", "b-"))
	selects, other := startFollowing(t, tail, Start{Filter: streams("a-")}),
		startFollowing(t, tail, Start{Filter: streams("b-")})
	awaitEvents(t, selects, 1)
	require.ErrorIs(t, nextError(t, selects), errSeal)
	awaitEvents(t, other, 2)
}

func TestTail_HoldsUnreadPages(t *testing.T) {
	t.Parallel()
	log := newTailLog(1)
	tail := NewTail(log, streams("a-"))
	quick, slow := startFollowing(t, tail, Start{}), startFollowing(t, tail, Start{})
	log.fill("a-1", 1)
	awaitEvents(t, quick, 1)
	awaitEvents(t, slow, 1)
	held := func() int {
		tail.mu.Lock()
		defer tail.mu.Unlock()
		require.Len(t, tail.readers, 1)
		return tail.readers[0].events
	}
	log.fill("a-1", 40)
	awaitEvents(t, quick, 40)
	require.Equal(t, 40, held())
	before := log.read()
	awaitEvents(t, slow, 40)
	require.Zero(t, held())
	require.Equal(t, before, log.read())
}

// A projector restarted, read an event from the log and took the next one of the stream from memory, as it was before
// an erasure. It failed again and again.
func TestTail_RejoinReadsErasures(t *testing.T) {
	t.Parallel()
	log := newTailLog(10)
	tail := NewTail(log, streams("a"))
	first, slow := startFollowing(t, tail, Start{}), startFollowing(t, tail, Start{})
	log.fill("a", 1)
	awaitEvents(t, first, 1)
	awaitEvents(t, slow, 1)
	read := time.Now()
	log.fill("a", 1)
	require.False(t, awaitEvents(t, first, 1)[0].Erased)
	log.erase(2)
	require.False(t, awaitEvents(t, startFollowing(t, tail, Start{After: 1, Since: read}), 1)[0].Erased,
		"slow keeps the event in memory")
	require.True(t, awaitEvents(t, startFollowing(t, tail, Start{After: 1, Since: time.Now()}), 1)[0].Erased)
	require.False(t, awaitEvents(t, slow, 1)[0].Erased)
}

func TestFollower_Idle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := newTailLog(10)
		log.fill("a-1", 100)
		f := startFollowing(t, NewTail(log, streams("a-")), Start{})
		require.False(t, f.Idle())
		awaitEvents(t, f, 100)
		synctest.Wait()
		require.True(t, f.Idle(), "the log does not grow")
		require.True(t, f.Live())
		log.fill("a-1", 10)
		time.Sleep(time.Second)
		require.False(t, f.Idle())
		awaitEvents(t, f, 10)
		require.True(t, f.Idle())
	})
}

func TestPauseAfter_GrowsUpToALimit(t *testing.T) {
	t.Parallel()
	const interval = 20 * time.Millisecond
	for events, want := range map[int]time.Duration{
		0: interval, 1: interval, 19: interval, 20: 2 * interval, 60: 4 * interval, 80: 5 * interval,
		100_000: 5 * interval,
	} {
		require.Equal(t, want, PauseAfter(interval, events), "%d events", events)
	}
}
