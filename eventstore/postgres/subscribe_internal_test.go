package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

// oneEvent returns a batch of one event after a position.
func oneEvent(after eventstore.Position, bytes int) appended {
	return appended{after: after, end: after + 1, bytes: bytes, runs: []run{{stream: "lead-1", first: after + 1, events: make([]eventstore.Event, 1)}}}
}

func TestRecent_Since(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		batches []eventstore.Position // the position before each
		after   eventstore.Position
		want    []eventstore.Position
		missing bool
	}{
		"no batches":                     {after: 3},
		"from the first":                 {batches: []eventstore.Position{5, 6, 7}, after: 5, want: []eventstore.Position{6, 7, 8}},
		"from the last":                  {batches: []eventstore.Position{5, 6, 7}, after: 7, want: []eventstore.Position{8}},
		"at the end":                     {batches: []eventstore.Position{5, 6, 7}, after: 8},
		"after the end":                  {batches: []eventstore.Position{5, 6, 7}, after: 9},
		"before the first":               {batches: []eventstore.Position{5, 6, 7}, after: 4, missing: true},
		"another process appended":       {batches: []eventstore.Position{5, 6, 9}, after: 6, missing: true},
		"after another process appended": {batches: []eventstore.Position{5, 6, 9}, after: 9, want: []eventstore.Position{10}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r recent
			for _, after := range c.batches {
				r.add(oneEvent(after, 1))
			}
			var got []eventstore.Position
			batches, complete := r.since(c.after)
			require.Equal(t, c.missing, !complete)
			for _, b := range batches {
				for _, e := range b.events(nil, c.after, eventstore.Filter{}) {
					got = append(got, e.Position)
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestRecent_Bounded(t *testing.T) {
	t.Parallel()
	var r recent
	for i := range eventstore.Position(10) {
		r.add(oneEvent(i, maxRecent/3))
	}
	count := func(after eventstore.Position) int {
		batches, _ := r.since(after)
		return len(batches)
	}
	require.Equal(t, 3, count(7))
	require.Zero(t, count(6))
	r.add(oneEvent(10, 2*maxRecent)) // larger than the buffer
	_, complete := r.since(10)
	require.False(t, complete)
	require.Zero(t, count(11))
	r.add(oneEvent(11, 1))
	require.Equal(t, 1, count(11))
}

// A subscription yields times as they are stored.
func TestRecent_TimesAsStored(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 123_456_789, time.FixedZone("IST", 5*3600+1800))
	b := oneEvent(0, 1)
	b.runs[0].events[0].At = at
	require.Equal(t, time.Date(2026, 3, 1, 6, 30, 0, 123_456_000, time.UTC), b.events(nil, 0, eventstore.Filter{})[0].At)
	require.Equal(t, at, b.runs[0].events[0].At, "the caller's event is unchanged")
}

// Subscriptions of this process receive the events of a batch as on the log, without its refused appends.
func TestRecent_MatchesLog(t *testing.T) {
	t.Parallel()
	w := batchWriter(t)
	type place struct {
		position eventstore.Position
		stream   string
		revision eventstore.Revision
		id       string
	}
	var buffered []place
	of := func(b appended, after eventstore.Position) (all []place) {
		for _, e := range b.events(nil, after, eventstore.Filter{}) {
			all = append(all, place{e.Position, e.Stream, e.Revision, e.ID.String()})
		}
		return all
	}
	calls := 0
	w.appended = func(b appended, complete bool) {
		if !complete {
			return
		}
		calls++
		all := of(b, b.after)
		require.Equal(t, all[len(all)-1].position, b.end)
		require.Equal(t, all[1:], of(b, b.after+1), "a subscription may begin within a batch")
		buffered = append(buffered, all...)
	}
	token := eventstore.Check("token", eventstore.NoStream)
	old := []eventstore.Write{events("old", eventstore.NoStream, "a", "a")}
	commit(t, w, old)
	commit(t, w,
		[]eventstore.Write{token, events("old", eventstore.At(0), "a"), events("one", eventstore.NoStream, "a")}, // refused
		[]eventstore.Write{events("old", eventstore.At(1), "a", "a"), token, events("two", eventstore.NoStream, "a", "a")},
		[]eventstore.Write{eventstore.Check("other", eventstore.At(7)), events("three", eventstore.NoStream, "a")}, // refused
		[]eventstore.Write{token},
		[]eventstore.Write{token, events("four", eventstore.Any, "a")},
	)
	require.Equal(t, 2, calls)
	var stored []place
	var p place
	rows, err := w.conn.Query(t.Context(), `SELECT position, stream, revision, event_id FROM log.event ORDER BY position`)
	require.NoError(t, err)
	var id ulid.ULID
	_, err = pgx.ForEachRow(rows, []any{&p.position, &p.stream, &p.revision, (*[16]byte)(&id)}, func() error {
		p.id = id.String()
		stored = append(stored, p)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, stored, 7)
	require.Equal(t, stored, buffered)

	commit(t, w, []eventstore.Write{events("five", eventstore.NoStream, "a")}, old)
	require.Equal(t, 2, calls, "a batch with a repeated append is not buffered")
}
