package esdb

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

// process is a store whose calls to the server are scheduled by a test: it stops before one of them, resumes or is
// killed.
type process struct {
	*Store
	mu       sync.Mutex
	calls    int
	stopAt   int // the call before which it calls stop; 0: none
	stop     func()
	killedAt int      // the first call that fails; 0: none
	trail    []string // its calls
}

func startProcess(t *testing.T, options Options) *process {
	t.Helper()
	s, err := Open(t.Context(), options)
	require.NoError(t, err)
	p := &process{Store: s}
	s.locksOnly = true // unless the test stores another server
	s.shortestGrace = 2 * time.Millisecond
	s.beforeCall = p.before
	return p
}

var errKilled = fmt.Errorf("killed: %w", errClosed)

func (p *process) before(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.stop != nil && p.calls == p.stopAt {
		p.trail = append(p.trail, "(stopped)")
		p.stop()
	}
	if p.killedAt > 0 && p.calls >= p.killedAt {
		return errKilled
	}
	p.trail = append(p.trail, what)
	return nil
}

// sent is an append of a process with its result.
type sent struct {
	writes   []eventstore.Write
	position eventstore.Position
	err      error
	made     bool
}

func (p *process) send(a *sent) {
	a.made = true
	a.position, a.err = p.Append(p.closing, a.writes...)
}

func newEvent() eventstore.Event {
	return eventstore.Event{
		ID: ulid.Make(), Type: "test.happened.v1", At: time.Now().UTC().Truncate(time.Millisecond), Data: []byte(`{}`),
	}
}

func write(stream string, expect eventstore.Expected, n int) eventstore.Write {
	w := eventstore.Write{Stream: stream, Expect: expect}
	for range n {
		w.Events = append(w.Events, newEvent())
	}
	return w
}

// readLog appends an event and reads the log up to it.
func readLog(t *testing.T, description string, store *Store) (log []eventstore.Recorded) {
	t.Helper()
	end, err := store.Append(t.Context(), write("end-"+ulid.Make().String(), eventstore.NoStream, 1))
	require.NoError(t, err, description)
	for page, err := range eventstore.ReadTo(t.Context(), store, 0, end, eventstore.Filter{}) {
		require.NoError(t, err, description)
		log = append(log, page.Events...)
	}
	return log
}

// requireSequential requires that the log and the results of the appends equal those of a sequential execution.
func requireSequential(t *testing.T, description string, store *Store, appends []*sent) {
	t.Helper()
	log := readLog(t, description, store)
	streams, index := map[string][]eventstore.Recorded{}, map[ulid.ULID]int{}
	ends := make([]map[string]int, 0, len(log)) // lengths of streams before each event
	for i, r := range log {
		require.EqualValues(t, len(streams[r.Stream]), r.Revision, description)
		_, twice := index[r.ID]
		require.False(t, twice, description)
		before := make(map[string]int, len(streams))
		for s, events := range streams {
			before[s] = len(events)
		}
		ends = append(ends, before)
		streams[r.Stream], index[r.ID] = append(streams[r.Stream], r), i
	}
	for stream, events := range streams {
		var read []eventstore.Recorded
		for r, err := range store.Read(t.Context(), stream, 0) {
			require.NoError(t, err, description)
			read = append(read, r)
		}
		require.Equal(t, events, read, description)
	}
	for _, a := range appends {
		if a.made {
			requireAtomic(t, description, a, log, ends, index)
		}
	}
	conflicts := 0
	for _, a := range appends {
		if a.made && eventstore.Conflict(a.err) != nil {
			conflicts++
		}
	}
	require.Less(t, conflicts, len(appends), "all conflicted\n"+description)
}

// requireAtomic requires that all events of an append or none are on the log, contiguous and as expected, and that its
// result agrees.
func requireAtomic(
	t *testing.T, description string, a *sent, log []eventstore.Recorded, ends []map[string]int,
	index map[ulid.ULID]int,
) {
	t.Helper()
	var events []eventstore.Event
	for _, w := range a.writes {
		events = append(events, w.Events...)
	}
	stored := 0
	for _, e := range events {
		if _, ok := index[e.ID]; ok {
			stored++
		}
	}
	require.True(t, stored == 0 || stored == len(events), "a partial append\n"+description)
	switch {
	case a.err == nil && len(events) > 0:
		require.Equal(t, len(events), stored, description)
		require.Equal(t, log[index[events[len(events)-1].ID]].Position, a.position, description)
	case a.err == nil:
	case eventstore.Conflict(a.err) != nil:
		require.Zero(t, stored, "stored in spite of a conflict\n"+description)
	default:
		require.ErrorIs(t, a.err, errClosed, description)
	}
	if stored == 0 {
		return
	}
	first := index[events[0].ID]
	for i, e := range events {
		require.Equal(t, e.ID, log[first+i].ID, description)
	}
	for _, w := range a.writes {
		if w.Expect != eventstore.Any {
			require.EqualValues(t, ends[first][w.Stream]-1, w.Expect, "%s: %s", w.Stream, description)
		}
	}
}
