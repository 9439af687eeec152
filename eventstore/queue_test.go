package eventstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// These tests use the fake clock of synctest, as those of the Transactor do.

const engineTime = time.Second // that the engine of a test takes for a group

var testOptions = QueueOptions{Groups: 1, Appends: 100, Bytes: MaxAppend, Waiting: 100, Timeout: time.Hour}

// recorder is an engine that records its groups, by the first stream of each append, and how they ended.
type recorder struct {
	mu     sync.Mutex
	groups []string
	ended  []error // of the contexts
}

func (r *recorder) append(ctx context.Context, group []Append) []Result {
	var names []string
	for _, a := range group {
		names = append(names, a.Writes[0].Stream)
	}
	r.mu.Lock()
	r.groups = append(r.groups, strings.Join(names, " "))
	r.mu.Unlock()
	_ = Sleep(ctx, engineTime)
	r.mu.Lock()
	r.ended = append(r.ended, ctx.Err())
	r.mu.Unlock()
	time.Sleep(time.Nanosecond) // until all callers that end now have left the queue
	return make([]Result, len(group))
}

func testEvent(at time.Time) Event {
	return Event{
		ID: ulid.MustNew(ulid.Timestamp(at), rand.NewChaCha8([32]byte{1})), Type: "a", At: at.UTC(), Data: []byte(`{}`),
	}
}

// sendInOrder starts appends that reach the queue in order. The first stream of each names it: its index, which no
// other append has.
func sendInOrder(ctx context.Context, q *Queue, appends ...[]Write) (errs []<-chan error) {
	for i, writes := range appends {
		writes = append([]Write{Check(fmt.Sprint(i), Any)}, writes...)
		errs = append(errs, start(func() error { _, err := q.Append(ctx, writes...); return err }))
		synctest.Wait()
	}
	return errs
}

func onStreams(written, checked string) (writes []Write) {
	for _, s := range written {
		writes = append(writes, Write{Stream: string(s), Expect: Any, Events: []Event{testEvent(time.UnixMilli(0))}})
	}
	for _, s := range checked {
		writes = append(writes, Check(string(s), Any))
	}
	return writes
}

func TestQueue_SeparatesConflicting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		appends [][2]string // written, checked; the engine is busy with the first when the others come
		groups  []string
	}{
		"different streams": {
			[][2]string{{"x", ""}, {"a", ""}, {"b", ""}, {"c", ""}}, []string{"0", "1 2 3"},
		},
		"a stream that is being written": {[][2]string{{"a", ""}, {"ab", ""}, {"c", ""}}, []string{"0", "1 2"}},
		"checks are shared": {
			[][2]string{{"x", ""}, {"a", "t"}, {"b", "t"}, {"", "t"}}, []string{"0", "1 2 3"},
		},
		"one stream written twice": {
			[][2]string{{"x", ""}, {"a", ""}, {"ab", ""}, {"c", ""}}, []string{"0", "1 3", "2"},
		},
		"a check of a written stream": {
			[][2]string{{"x", ""}, {"t", ""}, {"a", "t"}}, []string{"0", "1", "2"},
		},
		"a write of a checked stream": {
			[][2]string{{"x", ""}, {"a", "t"}, {"t", ""}}, []string{"0", "1", "2"},
		},
		"checks before and after a write": {
			[][2]string{{"x", ""}, {"a", "t"}, {"t", ""}, {"b", "t"}, {"c", "t"}}, []string{"0", "1", "2", "3 4"},
		},
		"another stream of a waiting append": {
			[][2]string{{"x", ""}, {"a", ""}, {"ab", ""}, {"b", ""}}, []string{"0", "1", "2", "3"},
		},
		"the same check as a waiting append": {
			[][2]string{{"x", ""}, {"a", ""}, {"a", "t"}, {"b", "t"}}, []string{"0", "1 3", "2"},
		},
		"a write of what a waiting append check": {
			[][2]string{{"x", ""}, {"a", ""}, {"a", "t"}, {"t", ""}}, []string{"0", "1", "2", "3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var engine recorder
				q := NewQueue(engine.append, testOptions)
				var appends [][]Write
				for _, a := range c.appends {
					appends = append(appends, onStreams(a[0], a[1]))
				}
				for _, err := range sendInOrder(t.Context(), q, appends...) {
					require.NoError(t, <-err)
				}
				require.Equal(t, c.groups, engine.groups)
				synctest.Wait()
				require.Empty(t, q.streams.streams)
				require.Zero(t, q.Waiting())
			})
		})
	}
}

func TestQueue_Bounds(t *testing.T) {
	t.Parallel()
	large := func(streams string) []Write {
		writes := onStreams(streams, "")
		writes[0].Events[0].Data = make([]byte, 1000)
		return writes
	}
	for name, c := range map[string]struct {
		change  func(*QueueOptions)
		appends [][]Write
		groups  []string
	}{
		"appends": {func(o *QueueOptions) { o.Appends = 2 }, [][]Write{nil, nil, nil, nil}, []string{"0", "1 2", "3"}},
		"bytes": {
			func(o *QueueOptions) { o.Bytes = 1300 }, [][]Write{nil, onStreams("a", ""), large("b"), nil},
			[]string{"0", "1", "2 3"},
		},
		"an append over the limit is alone": {
			func(o *QueueOptions) { o.Bytes = 500 }, [][]Write{nil, large("a"), onStreams("b", "")},
			[]string{"0", "1", "2"},
		},
		"waiting appends come before later ones": {
			func(o *QueueOptions) { o.Appends = 1 }, [][]Write{onStreams("a", ""), onStreams("a", ""), nil, nil},
			[]string{"0", "1", "2", "3"},
		},
		"groups": {
			func(o *QueueOptions) {
				o.Groups, o.Appends = 2, 1
			}, [][]Write{onStreams("a", ""), onStreams("a", ""), nil, nil}, []string{"0", "2", "1", "3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				options, engine := testOptions, recorder{}
				c.change(&options)
				q := NewQueue(engine.append, options)
				for _, err := range sendInOrder(t.Context(), q, c.appends...) {
					require.NoError(t, <-err)
				}
				if options.Groups == 1 {
					require.Equal(t, c.groups, engine.groups)
				} else {
					require.ElementsMatch(t, c.groups, engine.groups)
					require.Equal(t, c.groups[:2], engine.groups[:2], "one beside the other")
				}
			})
		})
	}
}

func TestQueue_Prepares(t *testing.T) {
	t.Parallel()
	options := testOptions
	options.Prepare = func(a Append) (any, error) {
		if a.Writes[0].Stream == "bad" {
			return nil, ErrInvalid
		}
		return a.Writes[0].Stream, nil
	}
	var prepared []any
	q := NewQueue(func(_ context.Context, group []Append) []Result {
		prepared = append(prepared, group[0].Prepared)
		return make([]Result, len(group))
	}, options)
	_, err := q.Append(t.Context(), Check("bad", Any))
	require.Equal(t, ErrInvalid, err)
	_, err = q.Append(t.Context(), Check("good", Any))
	require.NoError(t, err)
	require.Equal(t, []any{"good"}, prepared)
}

func TestQueue_Full(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var engine recorder
		options := testOptions
		options.Waiting = 1
		q := NewQueue(engine.append, options)
		errs := sendInOrder(t.Context(), q, nil, nil, nil)
		require.Equal(t, 1, q.Waiting())
		require.ErrorIs(t, <-errs[2], ErrUnavailable)
		require.NoError(t, <-errs[0])
		require.NoError(t, <-errs[1])
	})
}

func TestQueue_Cancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var engine recorder
		q := NewQueue(engine.append, testOptions)
		ctx, cancel := context.WithCancelCause(t.Context())
		first := sendInOrder(ctx, q, onStreams("a", ""), onStreams("a", ""), nil)
		last := start(func() error { _, err := q.Append(t.Context(), onStreams("a", "")...); return err })
		synctest.Wait()
		cancel(ErrContended)
		err := <-first[0]
		require.ErrorIs(t, err, ErrUnavailable, "in progress")
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrContended, "the cause may say that nothing was written")
		require.Equal(t, context.Canceled, <-first[1], "behind it")
		require.Equal(t, context.Canceled, <-first[2], "ready")
		require.NoError(t, <-last)
		require.Equal(t, []string{"0", "a"}, engine.groups)
		require.Equal(t, []error{context.Canceled, nil}, engine.ended)
		_, err = q.Append(ctx, onStreams("b", "")...)
		require.Equal(t, context.Canceled, err)
	})
}

// The engine goes on while one caller of a group waits.
func TestQueue_OneOfGroupCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var engine recorder
		q := NewQueue(engine.append, testOptions)
		busy := sendInOrder(t.Context(), q, nil)
		ctx, cancel := context.WithCancel(t.Context())
		left := start(func() error { _, err := q.Append(ctx, onStreams("a", "")...); return err })
		waiting := start(func() error { _, err := q.Append(t.Context(), onStreams("b", "")...); return err })
		require.NoError(t, <-busy[0])
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-left, ErrUnavailable)
		require.NoError(t, <-waiting)
		require.Equal(t, []error{nil, nil}, engine.ended)
	})
}

func TestQueue_Timeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var engine recorder
		options := testOptions
		options.Timeout = engineTime / 2
		q := NewQueue(engine.append, options)
		begin := time.Now()
		for _, err := range sendInOrder(t.Context(), q, onStreams("a", ""), onStreams("a", "")) {
			require.ErrorIs(t, <-err, ErrUnavailable)
		}
		require.Equal(t, options.Timeout, time.Since(begin))
		q.Close()
		require.Equal(t, []string{"0"}, engine.groups)
		require.Equal(t, []error{context.Canceled}, engine.ended)
	})
}

func TestQueue_Close(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var engine recorder
		q := NewQueue(engine.append, testOptions)
		errs := sendInOrder(t.Context(), q, onStreams("a", ""), onStreams("a", ""), onStreams("a", ""))
		q.Close()
		require.Equal(t, []string{"0", "1", "2"}, engine.groups)
		for _, err := range errs {
			require.NoError(t, <-err)
		}
		_, err := q.Append(t.Context(), onStreams("a", "")...)
		require.ErrorIs(t, err, ErrUnavailable)
		q.Close()
	})
}

// simpleEngine is an engine in memory that relies on what AppendGroup promises: it compares all expectations with the
// log before the group, and stores the appends in any order.
type simpleEngine struct {
	mu      sync.Mutex
	streams map[string]int // lengths
	log     [][]Write      // successful appends in order; the position is the index + 1
	shuffle *rand.Rand
}

func (e *simpleEngine) append(ctx context.Context, group []Append) []Result {
	results := make([]Result, len(group))
	e.mu.Lock()
	for i, a := range group {
		if c := conflictOf(e.streams, a.Writes); c != nil {
			results[i].Err = c
		}
	}
	took, order := time.Duration(1+e.shuffle.IntN(3))*time.Millisecond, e.shuffle.Perm(len(group))
	e.mu.Unlock()
	_ = Sleep(ctx, took)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, i := range order {
		if results[i].Err == nil {
			e.log = append(e.log, group[i].Writes)
			results[i].Position = Position(len(e.log))
			apply(e.streams, group[i].Writes)
		}
	}
	return results
}

func conflictOf(streams map[string]int, writes []Write) *ConflictError {
	for _, w := range writes {
		if actual := Expected(streams[w.Stream] - 1); w.Expect != Any && w.Expect != actual {
			return &ConflictError{Stream: w.Stream, Expected: w.Expect, Actual: actual}
		}
	}
	return nil
}

func apply(streams map[string]int, writes []Write) {
	for _, w := range writes {
		streams[w.Stream] += len(w.Events)
	}
}

// step is what a caller does: an append, or a decision that appends at what it reads, and the result.
type step struct {
	pause    time.Duration
	decision bool
	writes   []Write
	result   Result
	attempts int
}

func drawStep(t *rapid.T) step {
	s := step{
		pause:    time.Duration(rapid.IntRange(0, 3).Draw(t, "pause")) * time.Millisecond,
		decision: rapid.Bool().Draw(t, "decision"),
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 3,
		rapid.ID).Draw(t, "streams") {
		w := Write{Stream: name, Expect: Expected(rapid.IntRange(-2, 3).Draw(t, "expect"))}
		for range rapid.IntRange(0, 2).Draw(t, "events") {
			w.Events = append(w.Events, testEvent(time.UnixMilli(0)))
		}
		s.writes = append(s.writes, w)
	}
	return s
}

// run makes a step. A decision reads without the queue.
func (s *step) run(ctx context.Context, q *Queue, decisions *Transactor, engine *simpleEngine) {
	_ = Sleep(ctx, s.pause)
	if !s.decision {
		s.result.Position, s.result.Err = q.Append(ctx, s.writes...)
		return
	}
	var streams []string
	for _, w := range s.writes {
		streams = append(streams, w.Stream)
	}
	s.result.Err = decisions.Do(ctx, streams, func(ctx context.Context) (err error) {
		s.attempts++
		s.writes = slices.Clone(s.writes)
		engine.mu.Lock()
		for i, w := range s.writes {
			s.writes[i].Expect = Expected(engine.streams[w.Stream] - 1)
		}
		engine.mu.Unlock()
		_ = Sleep(ctx, s.pause)
		s.result.Position, err = q.Append(ctx, s.writes...)
		return err
	})
}

// requireSerial requires that the results equal those of the steps one after the other, in an order that has each
// caller's steps in its own order: the order of the log, with each refused append at the first place where it is
// refused in the same way.
func requireSerial(t require.TestingT, engine *simpleEngine, callers [][]step) {
	states := []map[string]int{{}}
	for _, writes := range engine.log {
		before := states[len(states)-1]
		require.Nil(t, conflictOf(before, writes), "stored in spite of a conflict")
		after := map[string]int{}
		for s, n := range before {
			after[s] = n
		}
		apply(after, writes)
		states = append(states, after)
	}
	for _, steps := range callers {
		at := 0 // number of appends on the log before the step
		for _, s := range steps {
			if s.result.Err == nil {
				require.Greater(t, int(s.result.Position), at, "before an earlier step of the caller")
				at = int(s.result.Position)
				require.Equal(t, s.writes, engine.log[at-1])
				continue
			}
			var conflict *ConflictError
			require.ErrorAs(t, s.result.Err, &conflict)
			same := func(streams map[string]int) bool {
				c := conflictOf(streams, s.writes)
				return c != nil && *c == *conflict
			}
			next := slices.IndexFunc(states[at:], same)
			require.GreaterOrEqual(t, next, 0, "no serial order has %v", conflict)
			at += next
		}
	}
}

func TestQueue_SerialOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(draw *rapid.T) {
		callers := rapid.SliceOfN(rapid.SliceOfN(rapid.Custom(drawStep), 1, 6), 1, 8).Draw(draw, "callers")
		options := testOptions
		options.Groups = rapid.IntRange(1, 3).Draw(draw, "groups")
		options.Appends = rapid.IntRange(1, 4).Draw(draw, "appends")
		onlyDecisions := rapid.Bool().Draw(draw, "only decisions")
		engine := &simpleEngine{
			streams: map[string]int{}, shuffle: rand.New(rand.NewPCG(rapid.Uint64().Draw(draw, "seed"), 0)),
		}
		synctest.Test(t, func(t *testing.T) {
			q, decisions := NewQueue(engine.append, options), &Transactor{}
			var running sync.WaitGroup
			for _, steps := range callers {
				running.Go(func() {
					for i := range steps {
						steps[i].decision = steps[i].decision || onlyDecisions
						steps[i].run(t.Context(), q, decisions, engine)
					}
				})
			}
			running.Wait()
			q.Close()
			require.Empty(draw, q.streams.streams)
			require.Empty(draw, decisions.streams.streams)
		})
		requireSerial(draw, engine, callers)
		for _, s := range slices.Concat(callers...) {
			if s.decision {
				require.NoError(draw, s.result.Err)
			}
			if onlyDecisions {
				require.Equal(draw, 1, s.attempts, "a decision reads what the one before has written")
			}
		}
	})
}

// A serial order that does not exist is found.
func TestRequireSerial_Rejects(t *testing.T) {
	t.Parallel()
	a, b := onStreams("a", ""), onStreams("b", "")
	engine := &simpleEngine{log: [][]Write{a, b}}
	ok := func(writes []Write, position Position) step {
		return step{writes: writes, result: Result{Position: position}}
	}
	refused := step{
		writes: []Write{Check("a", 7)}, result: Result{Err: &ConflictError{Stream: "a", Expected: 7, Actual: NoStream}},
	}
	requireSerial(t, engine, [][]step{{refused, ok(a, 1)}, {ok(b, 2)}})
	for name, callers := range map[string][][]step{
		"against a caller's order": {{ok(b, 2), ok(a, 1)}},
		"refused by the past":      {{ok(a, 1), refused}, {ok(b, 2)}},
	} {
		var failed failures
		require.Panics(t, func() { requireSerial(&failed, engine, callers) }, name)
	}
}

// failures is a test that fails by a panic.
type failures struct{}

func (*failures) Errorf(string, ...any) {}
func (*failures) FailNow()              { panic("failed") }

func TestQueue_Resize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		options := testOptions
		options.Groups, options.Appends = 3, 1
		q := NewQueue(r.append, options)
		writes := [][]Write{nil, nil, nil, nil, nil, nil}
		errs := sendInOrder(t.Context(), q, writes...)
		q.Resize(1, 2)
		for _, err := range errs {
			require.NoError(t, <-err)
		}
		require.Equal(t, []string{"0", "1", "2", "3 4", "5"}, r.groups)
		q.Close()
	})
}
