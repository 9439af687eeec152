package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

// wroteOne is a batch of one event behind a position.
func wroteOne(after eventstore.Position, bytes int) written {
	return written{after: after, end: after + 1, bytes: bytes, runs: []run{{stream: "lead-1", first: after + 1, events: make([]eventstore.Event, 1)}}}
}

func TestNothingIsMissingInWhatAProcessHasWrittenLately(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		batches []eventstore.Position // each behind that position
		after   eventstore.Position
		want    []eventstore.Position
		missing bool
	}{
		"nothing yet":                      {after: 3},
		"all of it":                        {batches: []eventstore.Position{5, 6, 7}, after: 5, want: []eventstore.Position{6, 7, 8}},
		"the rest":                         {batches: []eventstore.Position{5, 6, 7}, after: 7, want: []eventstore.Position{8}},
		"all is known":                     {batches: []eventstore.Position{5, 6, 7}, after: 8},
		"more than all is known":           {batches: []eventstore.Position{5, 6, 7}, after: 9},
		"something is before it":           {batches: []eventstore.Position{5, 6, 7}, after: 4, missing: true},
		"somebody has written in between":  {batches: []eventstore.Position{5, 6, 9}, after: 6, missing: true},
		"behind what somebody has written": {batches: []eventstore.Position{5, 6, 9}, after: 9, want: []eventstore.Position{10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r recent
			for _, after := range c.batches {
				r.add(wroteOne(after, 1))
			}
			var got []eventstore.Position
			batches, whole := r.since(c.after)
			require.Equal(t, c.missing, !whole)
			for _, b := range batches {
				require.True(t, b.each(c.after, eventstore.Filter{}, func(item eventstore.Item, _ error) bool {
					got = append(got, item.Position)
					return true
				}))
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestWhatAProcessHasWrittenLatelyIsBounded(t *testing.T) {
	t.Parallel()
	var r recent
	for i := range eventstore.Position(10) {
		r.add(wroteOne(i, mostRecent/3))
	}
	atHand := func(after eventstore.Position) int {
		batches, _ := r.since(after)
		return len(batches)
	}
	require.Equal(t, 3, atHand(7))
	require.Zero(t, atHand(6))
	r.add(wroteOne(10, 2*mostRecent)) // is read from the log
	_, whole := r.since(10)
	require.False(t, whole)
	require.Zero(t, atHand(11))
	r.add(wroteOne(11, 1))
	require.Equal(t, 1, atHand(11))
}

// A subscription of the process that writes yields times as the log gives them back.
func TestTimesAreAsTheyAreRead(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 123_456_789, time.FixedZone("IST", 5*3600+1800))
	b := wroteOne(0, 1)
	b.runs[0].events[0].At = at
	b.each(0, eventstore.Filter{}, func(item eventstore.Item, _ error) bool {
		require.Equal(t, time.Date(2026, 3, 1, 6, 30, 0, 123_456_000, time.UTC), item.Event.At)
		return true
	})
	require.Equal(t, at, b.runs[0].events[0].At, "the caller's event stays as it is")
}
