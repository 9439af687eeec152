package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
)

const (
	writers        = 8
	eventsOfWriter = 1250
)

func manyWritersLaws() []law {
	return []law{
		{"ten thousand events of eight writers reach two subscribers: none skipped, none doubled, in order", tenThousand},
	}
}

func tenThousand(t *testing.T, l log) {
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
			accepted[i], err = writeMany(l.context(t), l, shared)
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
	for _, stream := range shared {
		require.NotEmpty(t, l.holds(t, stream, l.events(t, stream)...))
	}
}

// writeMany appends a writer's share: runs of events on streams of its own, some together with an event on a
// stream that all writers share.
func writeMany(ctx context.Context, store eventstore.Store, shared []string) ([]answer, error) {
	var accepted []answer
	own, end := newStream(), eventstore.NoStream
	for left := eventsOfWriter; left > 0; {
		events := newEvents(min(left, 1+rand.N(6)))
		writes := []eventstore.Write{write(own, end, events...)}
		if n := len(events) - 1; n > 0 && rand.N(3) == 0 {
			writes[0].Events = events[:n]
			writes = append(writes, write(shared[rand.N(len(shared))], eventstore.Any, events[n]))
		}
		position, err := store.Append(ctx, writes...)
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

// requireAll says that the log is exactly what was accepted. Each failure is told by itself, not as two long lists.
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
				r, there := at[e.ID.String()]
				require.True(t, there, "the event %s was accepted before position %d and never seen", e.ID, a.position)
				require.Equal(t, w.Stream, r.Stream)
				require.Equal(t, e, r.Event)
				require.Greater(t, r.Position, lastOf.Position, "events of one append are out of order")
				lastOf = r
				total++
			}
		}
		require.Equal(t, a.position, lastOf.Position)
	}
	require.Len(t, seen, total, "there are events that nobody appended")
	require.Equal(t, writers*eventsOfWriter+1, total)
}
