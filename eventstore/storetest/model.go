package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore"
)

// model is a store as a list of events, without an engine, durability or concurrency. It implements the comments of
// eventstore.Store as plainly as possible.
type model struct {
	base    eventstore.Position // of the log before the first event of the model
	all     []eventstore.Recorded
	streams map[string][]eventstore.Recorded
}

func (m *model) head() eventstore.Position { return m.base + eventstore.Position(len(m.all)) }

func (m *model) stream(name string) []eventstore.Recorded { return m.streams[name] }

func (m *model) end(stream string) eventstore.Expected {
	return eventstore.Expected(len(m.streams[stream]) - 1)
}

func (m *model) append(writes []eventstore.Write) (eventstore.Position, error) {
	if err := eventstore.Validate(writes); err != nil {
		return 0, err
	}
	if position, found := m.stored(writes); found {
		return position, nil
	}
	return m.allOrNothing(writes)
}

func (m *model) allOrNothing(writes []eventstore.Write) (eventstore.Position, error) {
	for _, w := range writes {
		if conflict := m.conflict(w); conflict != nil {
			return 0, conflict
		}
	}
	for _, w := range writes {
		m.put(w)
	}
	return m.head(), nil
}

func (m *model) conflict(w eventstore.Write) error {
	if actual := m.end(w.Stream); w.Expect != eventstore.Any && w.Expect != actual {
		return &eventstore.ConflictError{Stream: w.Stream, Expected: w.Expect, Actual: actual}
	}
	return nil
}

func (m *model) put(w eventstore.Write) eventstore.Position {
	if m.streams == nil {
		m.streams = make(map[string][]eventstore.Recorded)
	}
	for _, e := range w.Events {
		r := eventstore.Recorded{
			Event:    e,
			Stream:   w.Stream,
			Revision: eventstore.Revision(len(m.streams[w.Stream])),
			Position: m.head() + 1,
		}
		m.all = append(m.all, r)
		m.streams[w.Stream] = append(m.streams[w.Stream], r)
	}
	return m.head()
}

// stored reports whether all events of an append are stored at their revisions, and the position of the last one.
func (m *model) stored(writes []eventstore.Write) (eventstore.Position, bool) {
	var position eventstore.Position
	for _, w := range writes {
		if len(w.Events) == 0 {
			continue
		}
		recorded := m.stream(w.Stream)
		from := int(w.Expect) + 1
		if w.Expect == eventstore.Any {
			from = slices.IndexFunc(recorded, func(r eventstore.Recorded) bool { return r.ID == w.Events[0].ID })
		}
		to := from + len(w.Events)
		if from < 0 || to > len(recorded) || !slices.Equal(recordedIDs(recorded[from:to]), ids(w.Events)) {
			return 0, false
		}
		position = recorded[to-1].Position
	}
	return position, position > 0
}

// after returns the events after a position. Positions increase, so it searches the first one.
func (m *model) after(position eventstore.Position) []eventstore.Recorded {
	from, _ := slices.BinarySearchFunc(m.all, position+1, func(r eventstore.Recorded, p eventstore.Position) int {
		return int(r.Position) - int(p)
	})
	return m.all[from:len(m.all):len(m.all)]
}

func modelTests() []test {
	return []test{
		{"any sequence of calls", func(t *testing.T, l log) {
			rapid.Check(t, func(check *rapid.T) {
				// each has its own context: there are a hundred
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				againstModel(ctx, check, l)
			})
		}},
	}
}

// run is one sequence of calls of the store and the model. All runs share a store: each starts at the end of the log,
// on its own streams.
type run struct {
	t       *rapid.T
	ctx     context.Context
	store   log
	model   *model
	base    eventstore.Position
	root    string
	streams []string
	sent    [][]eventstore.Write
	at      map[eventstore.Position]eventstore.Position // from the model's positions to the store's
}

func againstModel(ctx context.Context, t *rapid.T, l log) {
	base, err := l.Head(ctx)
	require.NoError(t, err)
	root := newStream() + "-"
	r := &run{
		t: t, ctx: ctx, store: l, base: base, root: root,
		model:   &model{base: base},
		streams: []string{root + "a", root + "b", root + "ab"},
		at:      map[eventstore.Position]eventstore.Position{base: base},
	}
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		switch rapid.IntRange(0, 5).Draw(t, "step") {
		case 0:
			r.retry()
		case 1:
			r.read()
		default:
			r.append(r.drawWrites())
		}
	}
	r.compareLogs()
}

func (r *run) append(writes []eventstore.Write) {
	r.sent = append(r.sent, writes)
	want, wantErr := r.model.append(writes)
	got, err := r.store.Append(r.ctx, writes...)
	if conflict := eventstore.Conflict(wantErr); conflict != nil {
		require.NotNil(r.t, eventstore.Conflict(err), "not a conflict: %v", err)
		require.Equal(r.t, *conflict, *eventstore.Conflict(err))
		return
	}
	if wantErr != nil {
		require.ErrorIs(r.t, err, eventstore.ErrInvalid)
		return
	}
	require.NoError(r.t, err)
	r.samePosition(want, got)
}

// samePosition compares positions: for equality in a store without gaps, otherwise with the earlier position of the
// same event.
func (r *run) samePosition(want, got eventstore.Position) {
	if r.store.can.GapFree {
		require.Equal(r.t, want, got)
		return
	}
	if known, seen := r.at[want]; seen {
		require.Equal(r.t, known, got)
	}
	r.at[want] = got
}

func (r *run) retry() {
	if len(r.sent) > 0 {
		r.append(rapid.SampledFrom(r.sent).Draw(r.t, "again"))
	}
}

func (r *run) read() {
	stream := rapid.SampledFrom(r.streams).Draw(r.t, "read")
	from := rapid.IntRange(0, 6).Draw(r.t, "from")
	want := r.model.stream(stream)
	got, err := collect(r.ctx, r.store, stream, eventstore.Revision(from))
	require.NoError(r.t, err)
	r.sameEvents(want[min(from, len(want)):], got)
}

func (r *run) sameEvents(want, got []eventstore.Recorded) {
	require.Equal(r.t, recordedIDs(want), recordedIDs(got))
	for i := range want {
		r.samePosition(want[i].Position, got[i].Position)
		at := got[i]
		at.Position = want[i].Position
		require.Equal(r.t, want[i], at)
	}
}

// compareLogs reads the log of this run, without and with a filter on types.
func (r *run) compareLogs() {
	end, err := r.store.Head(r.ctx)
	require.NoError(r.t, err)
	if end == r.base {
		require.Empty(r.t, r.model.all)
		return
	}
	for _, filter := range []eventstore.Filter{
		{StreamPrefixes: []string{r.root}},
		{StreamPrefixes: []string{r.root + "a"}, Types: []string{"test.b.v1", "test.c.v1"}},
	} {
		got, err := tail(r.ctx, r.store, r.base, filter, func(page eventstore.Page) bool {
			return page.Position >= end
		})
		require.NoError(r.t, err)
		want := slices.DeleteFunc(slices.Clone(r.model.after(r.base)), func(e eventstore.Recorded) bool {
			return !filter.Matches(e.Stream, e.Type)
		})
		r.sameEvents(want, got)
	}
}

func (r *run) drawWrites() []eventstore.Write {
	streams := rapid.Permutation(r.streams).Draw(r.t, "order")
	streams = slices.Clone(streams[:rapid.SampledFrom([]int{1, 1, 1, 2, 2, 3}).Draw(r.t, "streams")])
	if rapid.IntRange(0, 30).Draw(r.t, "twice") == 0 {
		streams = append(streams, streams[0]) // invalid
	}
	writes := make([]eventstore.Write, len(streams))
	for i, stream := range streams {
		writes[i] = eventstore.Write{Stream: stream, Expect: r.drawExpected(stream)}
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 3, 0}).Draw(r.t, "events") {
			writes[i].Events = append(writes[i].Events,
				newEvent("test."+rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r.t, "type")+".v1"))
		}
	}
	return writes
}

// drawExpected mostly draws the right expectation, so that the streams do not stay empty.
func (r *run) drawExpected(stream string) eventstore.Expected {
	switch rapid.IntRange(0, 9).Draw(r.t, "expect") {
	case 0:
		return eventstore.NoStream
	case 1:
		return eventstore.Any
	case 2:
		return eventstore.At(eventstore.Revision(rapid.IntRange(0, 8).Draw(r.t, "revision")))
	default:
		return r.model.end(stream)
	}
}
