package esdb

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// process is a store whose calls of the server a test schedules: it makes them one by one, stops before one of them, goes on, or is
// killed.
type process struct {
	*Store
	mu     sync.Mutex
	calls  int
	stopAt int      // the call before which it stops; 0: none
	stop   func()   // called there, while it is stopped
	dead   int      // the first call that is no longer made; 0: none
	trail  []string // what it called
}

func startProcess(t *testing.T, options Options) *process {
	t.Helper()
	s, err := Open(t.Context(), options)
	require.NoError(t, err)
	p := &process{Store: s}
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
	if p.dead > 0 && p.calls >= p.dead {
		return errKilled
	}
	p.trail = append(p.trail, what)
	return nil
}

// sent is an append of a process, and its answer.
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
	return eventstore.Event{ID: ulid.Make(), Type: "test.happened.v1", At: time.Now().UTC().Truncate(time.Millisecond), Data: []byte(`{}`)}
}

func write(stream string, expect eventstore.Expected, n int) eventstore.Write {
	w := eventstore.Write{Stream: stream, Expect: expect}
	for range n {
		w.Events = append(w.Events, newEvent())
	}
	return w
}

// pairs are two appends each that get in each other's way. The streams t and x have one event before.
func pairs() map[string]func() (a, b []eventstore.Write) {
	type writes = []eventstore.Write
	none, zero := eventstore.NoStream, eventstore.At(0)
	check := eventstore.Check
	return map[string]func() (a, b []eventstore.Write){
		"the same streams in opposite order": func() (a, b []eventstore.Write) {
			return writes{write("x", zero, 1), write("y", none, 2), write("u", none, 1)}, writes{write("u", none, 1), write("y", none, 1), write("x", zero, 1)}
		},
		"each checks what the other writes": func() (a, b []eventstore.Write) {
			return writes{check("y", none), write("z", none, 1)}, writes{check("z", none), write("y", none, 1)}
		},
		"each checks what the other writes among others": func() (a, b []eventstore.Write) {
			return writes{check("y", none), write("x", zero, 1), write("z", none, 2)}, writes{check("x", zero), write("y", none, 1), write("w", none, 1)}
		},
		"a capture and a rotation": func() (a, b []eventstore.Write) {
			return writes{check("t", zero), write("c", none, 1), write("l", none, 1)}, writes{write("t", zero, 1)}
		},
		"a capture and a rotation among others": func() (a, b []eventstore.Write) {
			return writes{check("t", zero), write("c", none, 1), write("l", none, 1)}, writes{write("t", zero, 1), write("u", none, 1)}
		},
		"a transaction and a single write to its home": func() (a, b []eventstore.Write) {
			return writes{write("x", zero, 1), write("y", none, 1)}, writes{write("y", none, 1)}
		},
		"a transaction and a single write beside its home": func() (a, b []eventstore.Write) {
			return writes{write("x", zero, 1), write("y", none, 1)}, writes{write("x", zero, 1)}
		},
		"two that expect nothing": func() (a, b []eventstore.Write) {
			return writes{write("x", eventstore.Any, 2), write("y", eventstore.Any, 1)}, writes{write("y", eventstore.Any, 1), write("x", eventstore.Any, 1)}
		},
		"the same append twice": func() (a, b []eventstore.Write) {
			w := writes{check("t", zero), write("x", zero, 1), write("y", none, 2)}
			return w, w
		},
		"the same append twice that expects nothing": func() (a, b []eventstore.Write) {
			w := writes{check("t", zero), write("x", eventstore.Any, 1), write("y", eventstore.Any, 2)}
			return w, w
		},
		"checks alone": func() (a, b []eventstore.Write) {
			return writes{check("t", zero), check("x", zero)}, writes{write("t", zero, 1), write("x", zero, 1)}
		},
	}
}

// A schedule stops process A before a call, and process B before one of its own. Then both go on, or are killed: at once, or after
// one more call, as a call goes on that was under way.
type schedule struct {
	stopA, stopB int
	moreA        int  // calls of A after that, before it is killed; -1: it goes on to its end
	killB        bool // else it goes on after A has ended or died
}

// Every interleaving of two processes must look like one append after the other.
func TestAppend_Interleavings(t *testing.T) {
	t.Parallel()
	server := esdbtest.Shared(t)
	for name, pair := range pairs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases := 0
			for stopA := 1; ; stopA++ {
				reached := false
				for stopB := 1; ; stopB++ {
					stopped := false
					for _, moreA := range []int{-1, 0, 1} {
						for _, killB := range []bool{false, true} {
							cases++
							a, b := interleave(t, server, pair, schedule{stopA, stopB, moreA, killB})
							reached, stopped = reached || a, stopped || b
						}
					}
					if !stopped {
						break
					}
				}
				if !reached {
					break
				}
			}
			t.Log(cases, "interleavings")
		})
	}
}

// interleave runs one schedule, and reports whether each process came to where it was to be stopped.
func interleave(t *testing.T, url string, pair func() (a, b []eventstore.Write), plan schedule) (reachedA, reachedB bool) {
	options := Options{
		URL: url, Namespace: ulid.Make().String() + "/", Log: slog.New(slog.DiscardHandler), Poll: 5 * time.Millisecond, Patience: time.Minute,
	}
	a, b, judge := startProcess(t, options), startProcess(t, options), startProcess(t, options)
	defer a.Close()
	defer b.Close()
	defer judge.Close()
	for _, s := range []string{"t", "x"} {
		_, err := judge.Append(t.Context(), write(s, eventstore.NoStream, 1))
		require.NoError(t, err)
	}
	var ofA, ofB sent
	ofA.writes, ofB.writes = pair()
	stopped, resume, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	b.stopAt = plan.stopB
	b.stop = func() {
		reachedB = true
		close(stopped)
		if plan.killB {
			b.dead = plan.stopB
			return
		}
		<-resume
	}
	a.stopAt = plan.stopA
	a.stop = func() {
		reachedA = true
		go func() {
			defer close(ended)
			b.send(&ofB)
		}()
		select {
		case <-stopped:
		case <-ended:
		}
		if plan.moreA >= 0 {
			a.dead = plan.stopA + plan.moreA
		}
	}
	a.send(&ofA)
	close(resume)
	if reachedA {
		<-ended
	}
	description := fmt.Sprintf("%+v\nA: %v %v %q\nB: %v %v %q", plan, ofA.position, ofA.err, a.trail, ofB.position, ofB.err, b.trail)
	judgeLog(t, description, judge.Store, []*sent{&ofA, &ofB})
	return reachedA, reachedB
}

// readLog reads the whole log up to a new last event.
func readLog(t *testing.T, says string, store *Store) (log []eventstore.Recorded) {
	t.Helper()
	end, err := store.Append(t.Context(), write("end-"+ulid.Make().String(), eventstore.NoStream, 1))
	require.NoError(t, err, says)
	for item, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
		require.NoError(t, err, says)
		if item.Event != nil {
			log = append(log, *item.Event)
		}
		if item.Position >= end {
			break
		}
	}
	return log
}

// judgeLog requires that the log is what its appends make one after the other, and that their answers were right.
func judgeLog(t *testing.T, says string, store *Store, appends []*sent) {
	t.Helper()
	log := readLog(t, says, store)
	streams, index := map[string][]eventstore.Recorded{}, map[ulid.ULID]int{}
	ends := make([]map[string]int, 0, len(log)) // of streams before each event
	for i, r := range log {
		require.EqualValues(t, len(streams[r.Stream]), r.Revision, says)
		require.NotContains(t, index, r.ID, says)
		before := make(map[string]int, len(streams))
		for s, events := range streams {
			before[s] = len(events)
		}
		ends = append(ends, before)
		streams[r.Stream], index[r.ID] = append(streams[r.Stream], r), i
	}
	for stream, events := range streams {
		var there []eventstore.Recorded
		for r, err := range store.Read(t.Context(), stream, 0) {
			require.NoError(t, err, says)
			there = append(there, r)
		}
		require.Equal(t, events, there, says)
	}
	for _, a := range appends {
		if a.made {
			judgeAppend(t, says, a, log, ends, index)
		}
	}
	conflicts := 0
	for _, a := range appends {
		if a.made && eventstore.Conflict(a.err) != nil {
			conflicts++
		}
	}
	require.Less(t, conflicts, len(appends), "all were refused\n"+says)
}

// judgeAppend requires that all events of an append are there, side by side and as expected, or none; and that this is its answer.
func judgeAppend(t *testing.T, says string, a *sent, log []eventstore.Recorded, ends []map[string]int, index map[ulid.ULID]int) {
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
	require.Contains(t, []int{0, len(events)}, stored, "a part of an append\n"+says)
	switch {
	case a.err == nil && len(events) > 0:
		require.Equal(t, len(events), stored, says)
		require.Equal(t, log[index[events[len(events)-1].ID]].Position, a.position, says)
	case a.err == nil:
	case eventstore.Conflict(a.err) != nil:
		require.Zero(t, stored, "refused, and stored\n"+says)
	default:
		require.ErrorIs(t, a.err, errClosed, says)
	}
	if stored == 0 {
		return
	}
	first := index[events[0].ID]
	for i, e := range events {
		require.Equal(t, e.ID, log[first+i].ID, says)
	}
	for _, w := range a.writes {
		if w.Expect != eventstore.Any {
			require.EqualValues(t, ends[first][w.Stream]-1, w.Expect, "%s: %s", w.Stream, says)
		}
	}
}
