package esdb

import (
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

func noted(stream string, revision eventstore.Revision, position eventstore.Position) []*record {
	return []*record{{Recorded: eventstore.Recorded{
		Event: eventstore.Event{ID: ulid.Make()}, Stream: stream, Revision: revision, Position: position,
	}}}
}

func TestObserved_EndOfStream(t *testing.T) {
	t.Parallel()
	o, r := newObserved(), &reader{}
	known := func(stream string, at eventstore.Position) eventstore.Expected {
		s, ok := o.span(stream)
		if !ok || !s.covers(at) {
			return eventstore.Any
		}
		return s.end
	}
	o.note(r, noted("other", 0, 100), 100)
	o.found("s", span{end: 3, from: 101, until: 101})
	require.EqualValues(t, 3, known("s", 101))
	require.EqualValues(t, eventstore.Any, known("s", 102))
	o.note(r, noted("other", 1, 200), 200)
	require.EqualValues(t, 3, known("s", 201), "no event of the stream until then")
	o.note(r, noted("s", 4, 300), 300)
	require.EqualValues(t, eventstore.Any, known("s", 300), "just before its event, which another append may ask")
	require.EqualValues(t, 4, known("s", 301))
	o.note(r, nil, 400)
	require.EqualValues(t, 4, known("s", 401))

	// A read that ended before what was noted may have missed an event.
	o.found("late", span{end: 0, from: 350, until: 400})
	o.note(r, nil, 500)
	require.EqualValues(t, 0, known("late", 400))
	require.EqualValues(t, eventstore.Any, known("late", 401))

	o.leave(r)
	require.EqualValues(t, eventstore.Any, known("s", 501), "nothing is noted any more")
	require.False(t, o.wait(t.Context(), 500))
}

func TestObserved_Positions(t *testing.T) {
	t.Parallel()
	o, r := newObserved(), &reader{}
	first, second := noted("a", 0, 100), noted("b", 0, 110)
	o.note(r, nil, 50)
	known := o.await([]ulid.ULID{first[0].ID, second[0].ID, ulid.Make()})
	o.note(r, first, 100)
	o.note(r, second, 110)
	require.True(t, o.wait(t.Context(), 110))
	require.Equal(t, map[ulid.ULID]eventstore.Position{first[0].ID: 100, second[0].ID: 110}, known())
	require.Empty(t, o.awaited)
}

// A subscription that reads old events is replaced by one at the end of the log.
func TestObserved_LaggingSubscription(t *testing.T) {
	t.Parallel()
	o, old, live := newObserved(), &reader{}, &reader{}
	o.note(old, nil, 100)
	o.note(live, nil, 900)
	require.False(t, o.wait(t.Context(), 900), "the first one reports, and has not reached it")
	require.False(t, o.wait(t.Context(), 901), "without another wait")
	o.note(live, nil, 910)
	require.True(t, o.wait(t.Context(), 900))
	o.note(old, nil, 920)
	o.leave(old)
	require.False(t, o.to > 910)
	require.True(t, o.wait(t.Context(), 910))
}
