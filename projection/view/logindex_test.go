package view_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// leadAt appends a lead with a given time.
func leadAt(t *testing.T, w *projectiontest.World, at time.Time) eventstore.Position {
	t.Helper()
	e := w.NewEvent()
	name, data, err := event.Encode(event.LeadCreated{
		LeadFields: event.LeadFields{Name: "Ann", Status: "new"}, Source: "api",
	})
	require.NoError(t, err)
	e.Type, e.Data, e.At, e.Metadata.Account = name, data, at, "acme"
	return storetest.Append(t, w.Store, eventstore.Write{
		Stream: event.LeadStream(e.ID.String()), Expect: eventstore.NoStream, Events: []eventstore.Event{e},
	})
}

func TestPositionBefore_IsEarlier(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	minute := func(n float64) time.Time { return projectiontest.Start.Add(time.Duration(n * float64(time.Minute))) }
	before := func(at time.Time) eventstore.Position {
		t.Helper()
		position, err := view.PositionBefore(t.Context(), w.Pool, w.Store, at)
		require.NoError(t, err)
		return position
	}
	require.Zero(t, before(minute(100)), "no view")
	first := leadAt(t, w, minute(1))
	leadAt(t, w, minute(1.5))
	w.Project(t) // the rows do not depend on where batches end
	leadAt(t, w, minute(1.7))
	second := leadAt(t, w, minute(3.2))
	leadAt(t, w, minute(2)) // appended later than its time
	third := leadAt(t, w, minute(4))
	w.Project(t)
	for at, want := range map[time.Time]eventstore.Position{
		minute(0): 0, minute(1): 0, minute(1.1): first, minute(3.2): first, minute(3.3): second, minute(4): second,
		minute(9): third,
	} {
		require.Equal(t, want, before(at), at)
	}
	require.Equal(t, 3, pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM views.time_index`))
	require.NoError(t, w.Replay(view.LogIndex{}).Run(t.Context()))
	require.Equal(t, third, before(minute(9)))
	require.Equal(t, 3, pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM views.time_index`))

	pgtest.Exec(t, w.Pool, `UPDATE views.checkpoint SET seen_event = 'other' WHERE projector = 'log_index'`)
	require.Zero(t, before(minute(9)), "views of a log that was restored")
}
