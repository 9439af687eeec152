package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
)

func wholeLogTests() []test {
	return []test{
		{"head", func(t *testing.T, l log) {
			empty := l.head(t)
			if l.can.GapFree {
				require.Zero(t, empty)
			}
			first := l.append(t, write("a", eventstore.NoStream, newEvents(1)...))
			require.Greater(t, first, empty)
			require.Equal(t, first, l.head(t))
			second := l.append(t,
				write("b", eventstore.NoStream, newEvents(2)...),
				eventstore.Check("a", eventstore.At(0)),
				write("c", eventstore.NoStream, newEvents(2)...))
			require.Equal(t, second, l.head(t))
			require.Equal(t, second, l.requireStream(t, "c", l.events(t, "c")...)[1].Position)
		}},
		{"checks alone return the head", func(t *testing.T, l log) {
			require.Equal(t, l.head(t), l.append(t, eventstore.Check("a", eventstore.NoStream)))
			begun := l.append(t, write("a", eventstore.NoStream, newEvents(1)...))
			head := l.append(t, write("b", eventstore.NoStream, newEvents(3)...))
			require.Greater(t, head, begun)
			require.Equal(t, head,
				l.append(t, eventstore.Check("a", eventstore.At(0)), eventstore.Check("c", eventstore.NoStream)))
			require.Equal(t, head, l.append(t))
			require.Equal(t, head, l.head(t))
		}},
		{"refused append keeps the head", func(t *testing.T, l log) {
			head := l.append(t, write("a", eventstore.NoStream, newEvents(1)...))
			l.refuse(t,
				eventstore.ConflictError{Stream: "a", Expected: eventstore.NoStream, Actual: eventstore.At(0)},
				write("a", eventstore.NoStream, newEvents(5)...))
			require.Equal(t, head, l.head(t))
			next := l.append(t, write("a", eventstore.At(0), newEvents(1)...))
			if l.can.GapFree {
				require.Equal(t, head+1, next)
			}
		}},
		{"positions without gaps", func(t *testing.T, l log) {
			var last eventstore.Position
			for i := range 20 {
				stream := newStream()
				position := l.append(t, write(stream, eventstore.NoStream, newEvents(i%4+1)...))
				for j, r := range l.requireStream(t, stream, l.events(t, stream)...) {
					if l.can.GapFree {
						require.Equal(t, last+eventstore.Position(j)+1, r.Position)
					}
				}
				require.Greater(t, position, last)
				last = position
			}
		}},
		{"epoch", func(t *testing.T, l log) {
			epoch, err := l.Epoch(l.context(t))
			require.NoError(t, err)
			require.NotEmpty(t, epoch)
			var calls errgroup.Group
			for range 8 {
				l.append(t, write(newStream(), eventstore.NoStream, newEvents(1)...))
				calls.Go(func() error {
					again, err := l.Epoch(t.Context())
					if err == nil && again != epoch {
						t.Errorf("the epoch went from %q to %q", epoch, again)
					}
					return err
				})
			}
			require.NoError(t, calls.Wait())
		}},
	}
}

func (l log) head(t testing.TB) eventstore.Position {
	t.Helper()
	head, err := l.Head(l.context(t))
	require.NoError(t, err)
	return head
}

// events returns the events of a stream, without revisions and positions.
func (l log) events(t testing.TB, stream string) []eventstore.Event {
	t.Helper()
	var events []eventstore.Event
	for _, r := range l.read(t, stream, 0) {
		events = append(events, r.Event)
	}
	return events
}

var everything eventstore.Filter

func subscriptionTests() []test {
	return []test{
		{"from the start", func(t *testing.T, l log) {
			events := l.fill(t, 30)
			requireEvents(t, events, l.follow(t, 0, everything, l.head(t)))
		}},
		{"from a position", func(t *testing.T, l log) {
			l.fill(t, 12)
			all := l.follow(t, 0, everything, l.head(t))
			for i, r := range all[:len(all)-1] {
				require.Equal(t, all[i+1:], l.follow(t, r.Position, everything, l.head(t)))
			}
		}},
		{"from the end", func(t *testing.T, l log) {
			l.fill(t, 5)
			head := l.head(t)
			later := l.fill(t, 2)
			requireEvents(t, later, l.follow(t, head, everything, l.head(t)))
		}},
		{"live events", followsLive},
		{"empty log", func(t *testing.T, l log) {
			var reader errgroup.Group
			reader.Go(func() error {
				got, err := tail(l.context(t), l, 0, everything, func(page eventstore.Page) bool {
					return len(page.Events) > 0
				})
				if err == nil && len(got) != 1 {
					err = fmt.Errorf("%d events", len(got))
				}
				return err
			})
			l.fill(t, 1)
			require.NoError(t, reader.Wait())
		}},
		{"progress without matches", marksProgress(eventstore.Filter{
			StreamPrefixes: []string{"none-"}, Types: []string{noted},
		})},
		{"progress after matches", marksProgress(everything)},
		{"progress between matches", func(t *testing.T, l log) {
			var matching []eventstore.Event
			for i := range 40 {
				e := newEvent(noted)
				if i%10 == 3 {
					e.Type = "test.rare.v1"
					matching = append(matching, e)
				}
				l.append(t, write(newStream(), eventstore.NoStream, e))
			}
			requireEvents(t, matching, l.follow(t, 0, eventstore.Filter{Types: []string{"test.rare.v1"}}, l.head(t)))
		}},
		{"subscriber stops early", func(t *testing.T, l log) {
			events := l.fill(t, 30)
			for range rounds(often) {
				for page, err := range l.Subscribe(l.context(t), 0, everything) {
					require.NoError(t, err)
					if len(page.Events) > 0 {
						require.Equal(t, events[0].ID, page.Events[0].ID)
						break
					}
				}
			}
			requireEvents(t, events, l.follow(t, 0, everything, l.head(t)))
		}},
		{"long log", func(t *testing.T, l log) {
			var events []eventstore.Event
			for range 5 { // pages have up to 2000 events
				more := newEvents(1000)
				l.append(t, write(newStream(), eventstore.NoStream, more...))
				events = append(events, more...)
			}
			got := l.follow(t, 0, everything, l.head(t))
			requireEvents(t, events, got)
			require.Equal(t, got[1001:], l.follow(t, got[1000].Position, everything, l.head(t)))
		}},
		{"many at once", func(t *testing.T, l log) {
			const readers = 12
			got := make([][]eventstore.Recorded, readers)
			var group errgroup.Group
			for i := range readers {
				group.Go(func() (err error) {
					got[i], err = tail(l.context(t), l, 0, everything, last)
					return err
				})
			}
			events := l.fill(t, 20)
			end := newEvent(lastType)
			l.append(t, write(newStream(), eventstore.NoStream, end))
			require.NoError(t, group.Wait())
			for _, one := range got {
				requireEvents(t, append(slices.Clone(events), end), one)
			}
		}},
	}
}

// lastType is the type of the event that ends a subscription to several writers.
const lastType = "test.last.v1"

func last(page eventstore.Page) bool {
	return slices.ContainsFunc(page.Events, func(r eventstore.Recorded) bool { return r.Type == lastType })
}

// fill makes n appends of one to three events, alternating between streams.
func (l log) fill(t testing.TB, n int) []eventstore.Event {
	t.Helper()
	var all []eventstore.Event
	streams := []string{newStream(), newStream(), newStream()}
	for i := range n {
		events := newEvents(i%3 + 1)
		l.append(t, write(streams[i%len(streams)], eventstore.Any, events...))
		all = append(all, events...)
	}
	return all
}

// followsLive appends each event after the previous one has arrived, so that each is live.
func followsLive(t *testing.T, l log) {
	const rounds = 20
	stream, events := newStream(), newEvents(rounds)
	l.append(t, write(stream, eventstore.NoStream, events[0]))
	got, err := tail(l.context(t), l, 0, everything, func(page eventstore.Page) bool {
		if len(page.Events) == 0 {
			return false
		}
		end := page.Events[len(page.Events)-1].Revision
		next := int(end) + 1
		if next < rounds {
			l.append(t, write(stream, eventstore.At(end), events[next]))
		}
		return next == rounds
	})
	require.NoError(t, err)
	requireEvents(t, events, got)
}

// marksProgress requires progress up to the head for recorded events, and for events that are appended while the
// subscription waits, whether or not the newest event matches.
func marksProgress(filter eventstore.Filter) func(*testing.T, log) {
	return func(t *testing.T, l log) {
		l.fill(t, 10)
		until, rounds := l.head(t), 0
		_, err := tail(l.context(t), l, 0, filter, func(page eventstore.Page) bool {
			// A consumer would treat a checkpoint beyond the head as one of another log.
			require.LessOrEqual(t, page.Position, l.head(t), "a page beyond the head")
			if page.Position < until {
				return false
			}
			rounds++
			l.fill(t, rounds)
			until = l.head(t)
			return rounds == 5
		})
		require.NoError(t, err)
	}
}

func filterTests() []test {
	selecting := func(says string, filter func(root string) eventstore.Filter, want ...string) test {
		return test{says, func(t *testing.T, l log) {
			root, before, end := l.mixed(t)
			var got []string
			for _, r := range l.follow(t, before, filter(root), end) {
				got = append(got, r.Stream[len(root):]+" "+r.Type)
			}
			require.Equal(t, want, got)
		}}
	}
	return []test{
		selecting("prefix", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "lead-"}}
		}, "lead-1 made.v1", "lead-1 changed.v1", "lead-2 made.v1", "lead-2 changed.v1"),
		selecting("several prefixes", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "token-", root + "lead-2", root + "lead-"}}
		}, "lead-1 made.v1", "token-1 made.v1", "lead-1 changed.v1", "lead-2 made.v1", "lead-2 changed.v1"),
		selecting("whole name", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "lead-1"}}
		}, "lead-1 made.v1", "lead-1 changed.v1"),
		selecting("prefix and type", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "lead-"}, Types: []string{"changed.v1"}}
		}, "lead-1 changed.v1", "lead-2 changed.v1"),
		selecting("several types", func(root string) eventstore.Filter {
			return eventstore.Filter{
				StreamPrefixes: []string{root}, Types: []string{"made.v11", "changed.v1", "other.v1"},
			}
		}, "lead-1 changed.v1", "webhook-1 made.v11", "lead-2 changed.v1"),
		selecting("type is its whole name", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root}, Types: []string{"made.v1"}}
		}, "lead-1 made.v1", "token-1 made.v1", "lead-2 made.v1"),
		selecting("no match", func(root string) eventstore.Filter {
			return eventstore.Filter{StreamPrefixes: []string{root + "token-"}, Types: []string{"changed.v1"}}
		}),
		{"type", func(t *testing.T, l log) {
			eventType := "test." + newStream() + ".v1"
			events := newEvents(6)
			events[1].Type, events[4].Type = eventType, eventType
			var end eventstore.Position
			for _, e := range events {
				end = l.append(t, write(newStream(), eventstore.NoStream, e))
			}
			requireEvents(t, []eventstore.Event{events[1], events[4]},
				l.follow(t, 0, eventstore.Filter{Types: []string{eventType}}, end))
		}},
		{"empty prefix", func(t *testing.T, l log) {
			eventType := "test." + newStream() + ".v1"
			e := newEvent(eventType)
			end := l.append(t, write(newStream(), eventstore.NoStream, e))
			requireEvents(t, []eventstore.Event{e},
				l.follow(t, 0, eventstore.Filter{StreamPrefixes: []string{""}, Types: []string{eventType}}, end))
		}},
	}
}

// mixed appends events of several types to streams of several kinds, under a new root.
func (l log) mixed(t *testing.T) (root string, before, end eventstore.Position) {
	t.Helper()
	root, before = newStream()+"/", l.head(t)
	for _, e := range []struct{ stream, eventType string }{
		{"lead-1", "made.v1"},
		{"token-1", "made.v1"},
		{"lead-1", "changed.v1"},
		{"webhook-1", "made.v11"},
		{"lead-2", "made.v1"},
		{"leader", "noted.v1"},
		{"lead-2", "changed.v1"},
	} {
		end = l.append(t, write(root+e.stream, eventstore.Any, newEvent(e.eventType)))
	}
	return root, before, end
}
