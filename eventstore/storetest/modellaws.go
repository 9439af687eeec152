package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore"
)

func modelLaws() []law {
	return []law{
		{"any sequence of appends is answered as the model answers it, and leaves the same log", func(t *testing.T, l log) {
			rapid.Check(t, func(check *rapid.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience) // each has its own: there are a hundred
				defer cancel()
				againstModel(ctx, check, l)
			})
		}},
	}
}

// run is one sequence against the store and the model. All runs share a store: each begins where the log ends,
// on streams of its own.
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

// samePosition compares positions: to the number where there are no gaps, else each with what it was before.
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

// compareLogs reads the log of this run, whole and through a filter.
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
		got, err := tail(r.ctx, r.store, r.base, filter, reached(end))
		require.NoError(r.t, err)
		r.sameEvents(r.model.after(r.base, filter), got)
	}
}

func (r *run) drawWrites() []eventstore.Write {
	streams := rapid.Permutation(r.streams).Draw(r.t, "order")
	streams = slices.Clone(streams[:rapid.SampledFrom([]int{1, 1, 1, 2, 2, 3}).Draw(r.t, "streams")])
	if rapid.IntRange(0, 30).Draw(r.t, "twice") == 0 {
		streams = append(streams, streams[0]) // not well formed
	}
	writes := make([]eventstore.Write, len(streams))
	for i, stream := range streams {
		writes[i] = eventstore.Write{Stream: stream, Expect: r.drawExpected(stream)}
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 3, 0}).Draw(r.t, "events") {
			writes[i].Events = append(writes[i].Events, newEvent("test."+rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r.t, "type")+".v1"))
		}
	}
	return writes
}

// drawExpected is right more often than not, lest the streams stay empty.
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
