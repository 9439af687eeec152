package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
)

const racers = 32

func raceTests() []test {
	return []test{
		{"one begins a stream", func(t *testing.T, l log) {
			stream := newStream()
			won := l.race(t, eventstore.ConflictError{
				Stream: stream, Expected: eventstore.NoStream, Actual: eventstore.At(0),
			},
				func(e eventstore.Event) []eventstore.Write {
					return []eventstore.Write{write(stream, eventstore.NoStream, e)}
				})
			l.requireStream(t, stream, won)
		}},
		{"one appends at a revision", func(t *testing.T, l log) {
			stream, events := l.grow(t, 3)
			won := l.race(t, eventstore.ConflictError{
				Stream: stream, Expected: eventstore.At(2), Actual: eventstore.At(3),
			},
				func(e eventstore.Event) []eventstore.Write {
					return []eventstore.Write{write(stream, eventstore.At(2), e)}
				})
			l.requireStream(t, stream, append(events, won)...)
		}},
		{"all append at any revision", func(t *testing.T, l log) {
			stream := newStream()
			answers := simultaneously(l.context(t), l, racers, func(int) []eventstore.Write {
				return []eventstore.Write{write(stream, eventstore.Any, newEvents(2)...)}
			})
			for _, a := range answers {
				require.NoError(t, a.err)
			}
			recorded := l.requireStream(t, stream, l.events(t, stream)...)
			require.Len(t, recorded, 2*racers)
			for _, a := range answers {
				requireAt(t, a, recorded)
			}
		}},
		{"one append sent many times", func(t *testing.T, l log) {
			one, two, events := newStream(), newStream(), newEvents(3)
			answers := simultaneously(l.context(t), l, racers, func(int) []eventstore.Write {
				return []eventstore.Write{
					write(one, eventstore.NoStream, events[0]),
					write(two, eventstore.NoStream, events[1:]...),
				}
			})
			l.requireStream(t, one, events[0])
			position := l.requireStream(t, two, events[1:]...)[1].Position
			for _, a := range answers {
				require.NoError(t, a.err)
				require.Equal(t, position, a.position)
			}
		}},
		{"checks of one stream", func(t *testing.T, l log) {
			watched, _ := l.grow(t, 1)
			for _, a := range simultaneously(l.context(t), l, racers, func(int) []eventstore.Write {
				return []eventstore.Write{
					eventstore.Check(watched, eventstore.At(0)),
					write(newStream(), eventstore.NoStream, newEvents(1)...),
				}
			}) {
				require.NoError(t, a.err)
			}
		}},
		{"checks against a move", checksAgainstMove},
		{"no write skew", noWriteSkew},
	}
}

// answer is the result of an append.
type answer struct {
	writes   []eventstore.Write
	position eventstore.Position
	err      error
}

// simultaneously sends n appends concurrently and returns their results.
func simultaneously(
	ctx context.Context, store eventstore.Store, n int, writes func(i int) []eventstore.Write,
) []answer {
	answers := make([]answer, n)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		answers[i].writes = writes(i)
		group.Go(func() {
			<-start
			answers[i].position, answers[i].err = appendRetried(ctx, store, answers[i].writes...)
		})
	}
	close(start)
	group.Wait()
	return answers
}

// appendRetried appends, and retries while the store is unavailable or contended on a busy machine.
func appendRetried(
	ctx context.Context, store eventstore.Store, writes ...eventstore.Write,
) (eventstore.Position, error) {
	for {
		position, err := store.Append(ctx, writes...)
		if ctx.Err() != nil || !errors.Is(err, eventstore.ErrUnavailable) && !errors.Is(err, eventstore.ErrContended) {
			return position, err
		}
	}
}

// race sends many concurrent appends of one event each, of which exactly one must succeed, and returns its event.
func (l log) race(
	t *testing.T, conflict eventstore.ConflictError, writes func(eventstore.Event) []eventstore.Write,
) eventstore.Event {
	t.Helper()
	var won []eventstore.Event
	for _, a := range simultaneously(l.context(t), l, racers, func(int) []eventstore.Write {
		return writes(newEvent(noted))
	}) {
		if a.err == nil {
			won = append(won, a.writes[0].Events...)
			continue
		}
		requireConflict(t, conflict, a.err)
	}
	require.Len(t, won, 1)
	return won[0]
}

// requireAt requires that an append's result is the position of its last event.
func requireAt(t *testing.T, a answer, recorded []eventstore.Recorded) {
	t.Helper()
	events := a.writes[len(a.writes)-1].Events
	for _, r := range recorded {
		if r.ID == events[len(events)-1].ID {
			require.Equal(t, r.Position, a.position)
			return
		}
	}
	t.Errorf("the event of an accepted append is not there")
}

// checksAgainstMove races captures, which check a token, with its rotation: all successful captures must precede it.
// Each caller captures until it is refused, so that some captures are in flight at every moment of the rotation.
func checksAgainstMove(t *testing.T, l log) {
	for range 20 {
		watched, _ := l.grow(t, 1)
		var newest [racers]eventstore.Position
		var captures errgroup.Group
		for i := range newest {
			captures.Go(func() (err error) {
				newest[i], err = captureUntilRefused(l.context(t), l, eventstore.Check(watched, eventstore.At(0)))
				return err
			})
		}
		moved := l.append(t, write(watched, eventstore.At(0), newEvent(noted)))
		require.NoError(t, captures.Wait())
		for _, position := range newest {
			require.Less(t, position, moved)
		}
	}
}

// captureUntilRefused creates new streams under a check until one is refused, and returns the last position.
func captureUntilRefused(
	ctx context.Context, store eventstore.Store, check eventstore.Write,
) (eventstore.Position, error) {
	var newest eventstore.Position
	for {
		stream := newStream()
		position, err := store.Append(ctx, write(stream, eventstore.NoStream, newEvent(noted)), check)
		switch conflict := eventstore.Conflict(err); {
		case err == nil:
			newest = position
		case conflict == nil || *conflict != eventstore.ConflictError{
			Stream: check.Stream, Expected: check.Expect, Actual: check.Expect + 1,
		}:
			return newest, err
		default:
			refused, err := collect(ctx, store, stream, 0)
			if err == nil && len(refused) > 0 {
				err = fmt.Errorf("the refused append on %s is at %d", stream, refused[0].Position)
			}
			return newest, err
		}
	}
}

func noWriteSkew(t *testing.T, l log) {
	const pairs = 16
	var streams [pairs][2]string
	for i := range streams {
		streams[i] = [2]string{newStream(), newStream()}
	}
	answers := simultaneously(l.context(t), l, 2*pairs, func(i int) []eventstore.Write {
		mine, other := streams[i/2][i%2], streams[i/2][1-i%2]
		return []eventstore.Write{
			eventstore.Check(other, eventstore.NoStream),
			write(mine, eventstore.NoStream, newEvent(noted)),
		}
	})
	for i := range pairs {
		a, b := answers[2*i], answers[2*i+1]
		if a.err != nil {
			a, b = b, a
		}
		require.NoError(t, a.err)
		requireConflict(t, eventstore.ConflictError{
			Stream: a.writes[1].Stream, Expected: eventstore.NoStream, Actual: eventstore.At(0),
		}, b.err)
	}
}

const writers = 8

func manyWritersTests() []test {
	return []test{
		{"thousands of events to two subscribers", thousands},
	}
}

func thousands(t *testing.T, l log) {
	perWriter := cmp.Or(l.can.Events, 10_000) / writers
	shared := []string{newStream(), newStream(), newStream()}
	var seen [2][]eventstore.Recorded
	var readers errgroup.Group
	for i := range seen {
		readers.Go(func() (err error) {
			seen[i], err = tail(l.context(t), l, 0, everything, last)
			return err
		})
	}
	var accepted [writers][]answer
	var writing errgroup.Group
	for i := range accepted {
		writing.Go(func() (err error) {
			accepted[i], err = writeMany(l.context(t), l, shared, perWriter)
			return err
		})
	}
	require.NoError(t, writing.Wait())
	end := write(newStream(), eventstore.NoStream, newEvent(lastType))
	endAt := l.append(t, end)
	require.NoError(t, readers.Wait())

	require.Equal(t, recordedIDs(seen[0]), recordedIDs(seen[1]), "two subscribers saw different logs")
	require.Equal(t, seen[0], seen[1])
	all := []answer{{writes: []eventstore.Write{end}, position: endAt}}
	for _, answers := range accepted {
		all = append(all, answers...)
	}
	requireAll(t, l.can, all, seen[0])
	require.Len(t, seen[0], writers*perWriter+1)
	for _, stream := range shared {
		require.NotEmpty(t, l.requireStream(t, stream, l.events(t, stream)...))
	}
}

// writeMany appends a writer's share: batches of events on its own streams, some together with an event on a stream
// that all writers share.
func writeMany(ctx context.Context, store eventstore.Store, shared []string, total int) ([]answer, error) {
	var accepted []answer
	own, end := newStream(), eventstore.NoStream
	for left := total; left > 0; {
		events := newEvents(min(left, 1+rand.N(6)))
		writes := []eventstore.Write{write(own, end, events...)}
		if n := len(events) - 1; n > 0 && rand.N(3) == 0 {
			writes[0].Events = events[:n]
			writes = append(writes, write(shared[rand.N(len(shared))], eventstore.Any, events[n]))
		}
		position, err := appendRetried(ctx, store, writes...)
		if err != nil {
			return nil, fmt.Errorf("with %d events left: %w", left, err)
		}
		accepted = append(accepted, answer{writes: writes, position: position})
		left -= len(events)
		if end = max(end, -1) + eventstore.Expected(len(writes[0].Events)); rand.N(20) == 0 {
			own, end = newStream(), eventstore.NoStream
		}
	}
	return accepted, nil
}

// requireAll requires that the log has exactly the accepted events. Failures are reported one by one, not as two long
// lists.
func requireAll(t *testing.T, can Capabilities, accepted []answer, seen []eventstore.Recorded) {
	t.Helper()
	at := make(map[string]eventstore.Recorded, len(seen))
	revisions := make(map[string]eventstore.Revision)
	for i, r := range seen {
		at[r.ID.String()] = r
		require.Equal(t, revisions[r.Stream], r.Revision, "on stream %s at position %d", r.Stream, r.Position)
		revisions[r.Stream]++
		if can.GapFree {
			require.Equal(t, eventstore.Position(i+1), r.Position)
		}
	}
	require.Len(t, at, len(seen), "an event came twice")
	total := 0
	for _, a := range accepted {
		var lastOf eventstore.Recorded
		for _, w := range a.writes {
			for _, e := range w.Events {
				r, seen := at[e.ID.String()]
				require.True(t, seen, "the event %s was accepted before position %d and never seen", e.ID, a.position)
				require.Equal(t, w.Stream, r.Stream)
				require.Equal(t, e, r.Event)
				require.Greater(t, r.Position, lastOf.Position, "events of one append are out of order")
				lastOf = r
				total++
			}
		}
		require.Equal(t, a.position, lastOf.Position)
	}
	require.Len(t, seen, total, "there are events that were not appended")
}

// often exceeds the size of any pool, so that a leak exhausts it.
const often = 50

// longest bounds the total time of a test's rounds. A store whose rounds wait for a server runs fewer.
const longest = 10 * time.Second

// rounds counts to n, and stops early after longest.
func rounds(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		begun := time.Now()
		for i := range n {
			if !yield(i) || time.Since(begun) > longest {
				return
			}
		}
	}
}

func interruptionTests() []test {
	return []test{
		{"cancelled context", func(t *testing.T, l log) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			stream, events := l.grow(t, 1)

			_, err := l.Append(ctx, write(stream, eventstore.At(0), newEvent(noted)))
			require.ErrorIs(t, err, context.Canceled)
			_, err = collect(ctx, l, stream, 0)
			require.ErrorIs(t, err, context.Canceled)
			_, err = tail(ctx, l, 0, everything, func(eventstore.Page) bool { return false })
			require.ErrorIs(t, err, context.Canceled)
			_, err = l.Head(ctx)
			require.ErrorIs(t, err, context.Canceled)

			requireEvents(t, events, l.read(t, stream, 0)[:1])
		}},
		{"cancelled append, retried", func(t *testing.T, l log) {
			for range rounds(often) {
				stream, events := newStream(), newEvents(2)
				again := write(stream, eventstore.NoStream, events...)
				if err := cutOff(t.Context(), l, again); err != nil {
					require.Nil(t, eventstore.Conflict(err))
				}
				position := l.append(t, again)
				require.Equal(t, position, l.requireStream(t, stream, events...)[1].Position)
			}
		}},
		{"cancelled append beside others", func(t *testing.T, l log) {
			ctx, cancel := context.WithCancel(t.Context())
			answers := make(chan []answer)
			go func() {
				defer cancel()
				answers <- simultaneously(ctx, l, racers, func(int) []eventstore.Write {
					return []eventstore.Write{write(newStream(), eventstore.NoStream, newEvent(noted))}
				})
			}()
			for i := range often {
				l.grow(t, 1)
				if i == 0 {
					cancel()
				}
			}
			for _, a := range <-answers {
				position := l.append(t, a.writes...)
				if a.err == nil {
					require.Equal(t, position, a.position)
				}
				l.requireStream(t, a.writes[0].Stream, a.writes[0].Events...)
			}
		}},
		{"cancelled subscription", func(t *testing.T, l log) {
			before := l.head(t)
			stream, _ := l.grow(t, 3)
			ctx, cancel := context.WithCancel(l.context(t))
			defer cancel()
			var ended error
			for page, err := range l.Subscribe(ctx, before, eventstore.Filter{StreamPrefixes: []string{stream}}) {
				require.NoError(t, ended, "something came after the error")
				ended = err
				if n := len(page.Events); n > 0 && page.Events[n-1].Revision == 2 {
					cancel()
				}
			}
			require.ErrorIs(t, ended, context.Canceled)
		}},
		{"cancelled read", func(t *testing.T, l log) {
			const n = 3000
			stream, _ := l.grow(t, n)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			count := 0
			var ended error
			for _, err := range l.Read(ctx, stream, 0) {
				if ended = err; err == nil {
					count++
				}
				cancel()
			}
			if ended != nil {
				require.ErrorIs(t, ended, context.Canceled)
			} else {
				require.Equal(t, n, count)
			}
		}},
		{"reader stops early", func(t *testing.T, l log) {
			stream, _ := l.grow(t, 100)
			for range often {
				for r, err := range l.Read(l.context(t), stream, 10) {
					require.NoError(t, err)
					require.Equal(t, eventstore.Revision(10), r.Revision)
					break
				}
			}
			require.Len(t, l.read(t, stream, 0), 100)
		}},
		{"consumer uses the store", func(t *testing.T, l log) {
			before := l.head(t)
			stream, events := l.grow(t, 5)
			filter := eventstore.Filter{StreamPrefixes: []string{stream}}
			for r, err := range l.Read(l.context(t), stream, 0) {
				require.NoError(t, err)
				requireEvents(t, events[r.Revision:], l.read(t, stream, r.Revision))
				if r.Revision == 4 {
					break
				}
			}
			_, err := tail(l.context(t), l, before, filter, func(page eventstore.Page) bool {
				if len(page.Events) == 0 {
					return false
				}
				l.grow(t, 1)
				l.requireStream(t, stream, events...)
				return page.Events[len(page.Events)-1].Revision == 4
			})
			require.NoError(t, err)
		}},
	}
}

// cutOff appends and cancels the append at the same time.
func cutOff(ctx context.Context, store eventstore.Store, writes ...eventstore.Write) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go cancel()
	_, err := store.Append(ctx, writes...)
	return err
}
