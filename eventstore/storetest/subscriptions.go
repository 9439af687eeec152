package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
)

var everything eventstore.Filter

func subscriptionLaws() []law {
	return []law{
		{"from the start yields every event in the order of positions", func(t *testing.T, l log) {
			events := l.fill(t, 30)
			requireEvents(t, events, l.follow(t, 0, everything, l.head(t)))
		}},
		{"from a position yields what comes after it", func(t *testing.T, l log) {
			l.fill(t, 12)
			all := l.follow(t, 0, everything, l.head(t))
			for i, r := range all[:len(all)-1] {
				require.Equal(t, all[i+1:], l.follow(t, r.Position, everything, l.head(t)))
			}
		}},
		{"from the end yields only what is appended later", func(t *testing.T, l log) {
			l.fill(t, 5)
			head := l.head(t)
			later := l.fill(t, 2)
			requireEvents(t, later, l.follow(t, head, everything, l.head(t)))
		}},
		{"follows what is appended while it runs", followsLive},
		{"follows on an empty log", func(t *testing.T, l log) {
			var reader errgroup.Group
			reader.Go(func() error {
				got, err := tail(l.context(t), l, 0, everything, func(i eventstore.Item) bool { return i.Event != nil })
				if err == nil && len(got) != 1 {
					err = fmt.Errorf("%d events", len(got))
				}
				return err
			})
			l.fill(t, 1)
			require.NoError(t, reader.Wait())
		}},
		{"reports progress past events that do not match", marksProgress},
		{"reports progress while a filter matches here and there", func(t *testing.T, l log) {
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
		{"reads a long log whole, whatever pages the store reads it in", func(t *testing.T, l log) {
			var events []eventstore.Event
			for range 13 {
				more := newEvents(1000)
				l.append(t, write(newStream(), eventstore.NoStream, more...))
				events = append(events, more...)
			}
			got := l.follow(t, 0, everything, l.head(t))
			requireEvents(t, events, got)
			require.Equal(t, got[4999:], l.follow(t, got[4998].Position, everything, l.head(t)))
		}},
		{"many at once each yield everything", func(t *testing.T, l log) {
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

// lastType is the type of the event that ends a subscription of a law whose events come from several writers.
const lastType = "test.last.v1"

func last(item eventstore.Item) bool { return item.Event != nil && item.Event.Type == lastType }

// fill makes n appends, of one to three events, now on one stream and now on another.
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

// followsLive appends the next event whenever the one before has arrived, so that each is live.
func followsLive(t *testing.T, l log) {
	const rounds = 20
	stream, events := newStream(), newEvents(rounds)
	l.append(t, write(stream, eventstore.NoStream, events[0]))
	got, err := tail(l.context(t), l, 0, everything, func(item eventstore.Item) bool {
		if item.Event == nil {
			return false
		}
		next := int(item.Event.Revision) + 1
		if next < rounds {
			l.append(t, write(stream, eventstore.At(item.Event.Revision), events[next]))
		}
		return next == rounds
	})
	require.NoError(t, err)
	requireEvents(t, events, got)
}

// marksProgress wants marks first for what was there, then for what is appended while the subscription waits.
func marksProgress(t *testing.T, l log) {
	l.fill(t, 10)
	until, rounds := l.head(t), 0
	nothing := eventstore.Filter{StreamPrefixes: []string{"nobody-"}, Types: []string{noted}}
	got, err := tail(l.context(t), l, 0, nothing, func(item eventstore.Item) bool {
		// A checkpoint beyond the head is taken for one of another log.
		require.LessOrEqual(t, item.Position, l.head(t), "a progress mark beyond the head")
		if item.Position < until {
			return false
		}
		rounds++
		l.fill(t, rounds)
		until = l.head(t)
		return rounds == 5
	})
	require.NoError(t, err)
	require.Empty(t, got)
}
