package esdb

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// A process stops between its locks and its commit record. A checkpoint of that time is after the locks.
func TestSubscribe_FromBetweenLocksAndCommit(t *testing.T) {
	t.Parallel()
	options := namespaced(t)
	slow, other, cold := startProcess(t, options), startProcess(t, options), startProcess(t, options)
	for _, p := range []*process{slow, other, cold} {
		t.Cleanup(p.Close)
	}
	_, err := other.Append(t.Context(), write("t", eventstore.NoStream, 1), write("x", eventstore.NoStream, 1))
	require.NoError(t, err)
	var checkpoint eventstore.Position
	slow.stopAt = 4 // the call after two lookups of tails and two locks: the events
	slow.stop = func() {
		var err error
		checkpoint, err = other.Append(t.Context(), write("between", eventstore.NoStream, 2))
		require.NoError(t, err)
	}
	a := sent{
		writes: []eventstore.Write{
			eventstore.Check("t", 0), write("y", eventstore.NoStream, 1), write("z", eventstore.NoStream, 2),
			write("w", eventstore.NoStream, 1),
		},
	}
	slow.send(&a)
	require.NoError(t, a.err, slow.trail)
	require.Positive(t, checkpoint)
	require.Contains(t, strings.Join(slow.trail[:3], "\n"), lockType)

	all := readLog(t, "", cold.Store)
	var events []eventstore.Recorded
	for i, r := range all {
		if r.Position == checkpoint {
			events = all[i+1:]
		}
	}
	require.Len(t, events, 5, "four events of the append and the last event")
	for i := range events { // also from each position within the append
		after := checkpoint
		if i > 0 {
			after = events[i-1].Position
		}
		var got []eventstore.Recorded
		for page, err := range eventstore.ReadTo(t.Context(), cold, after, events[len(events)-1].Position,
			eventstore.Filter{}) {
			require.NoError(t, err)
			got = append(got, page.Events...)
		}
		require.Equal(t, events[i:], got)
	}
}

// A process is killed before each of its calls in turn. Its locks are soon released, and uncommitted events are never
// read.
func TestAppend_KilledProcess(t *testing.T) {
	t.Parallel()
	require.Less(t, longestGrace, time.Second)
	for call, committed := 1, false; !committed; call++ {
		options := namespaced(t)
		killed, other := startProcess(t, options), startProcess(t, options)
		killed.killedAt = call
		a, b := sent{}, sent{}
		a.writes = []eventstore.Write{
			write("x", eventstore.NoStream, 1), write("y", eventstore.NoStream, 2), write("z", eventstore.NoStream, 1),
		}
		b.writes = []eventstore.Write{
			write("z", eventstore.NoStream, 1), write("y", eventstore.NoStream, 1), write("x", eventstore.NoStream, 1),
		}
		killed.send(&a)
		other.send(&b)
		committed = a.err == nil
		if !committed {
			require.NoError(t, b.err, "%d: %q\n%q", call, killed.trail, other.trail)
		}
		requireSequential(t, fmt.Sprint(call, killed.trail, other.trail), other.Store, []*sent{&a, &b})
		killed.Close()
		other.Close()
	}
}

// A transaction commits between a reader's lookups of its two locks on one stream. The reader must not make the second
// lookup.
func TestRead_CommitDuringRead(t *testing.T) {
	t.Parallel()
	readers := map[string]func(*process) (int, error){
		"Read": func(p *process) (n int, err error) {
			for _, err := range p.Read(t.Context(), "y", 0) {
				if err != nil {
					return 0, err
				}
				n++
			}
			return n, nil
		},
		"Last": func(p *process) (int, error) {
			last, err := p.Last(t.Context(), "y")
			if err != nil || last.ID.IsZero() {
				return 0, err
			}
			return int(last.Revision) + 1, nil
		},
	}
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options, commit := stopBeforeCommit(t)
			reader := startProcess(t, options)
			t.Cleanup(reader.Close)
			reader.stopAt = 3 // after reading the stream and looking up one lock
			reader.stop = commit
			n, err := read(reader)
			require.NoError(t, err)
			require.Contains(t, []int{0, 2}, n, "a partial append")
			n, err = read(reader)
			require.NoError(t, err)
			require.Equal(t, 2, n)
		})
	}
}

// A reader has read a pending lock, and then reads an event that was appended after the commit.
func TestResolver_EventAfterPendingLock(t *testing.T) {
	t.Parallel()
	options, commit := stopBeforeCommit(t)
	reader := startProcess(t, options)
	t.Cleanup(reader.Close)
	records := func() []*record {
		page, err := reader.page(t.Context(), "y", client.Forwards, client.Start{}, 10)
		require.NoError(t, err)
		return page
	}
	v := resolver{Store: reader.Store, stream: "y"}
	events, _, err := v.resolve(t.Context(), records()[0])
	require.NoError(t, err)
	require.Empty(t, events)
	commit()
	_, err = reader.Append(t.Context(), write("y", eventstore.At(1), 1))
	require.NoError(t, err)
	_, _, err = v.resolve(t.Context(), records()[2])
	require.ErrorIs(t, err, errMoved)
}

// stopBeforeCommit stops a process whose transaction has two locks on the stream y before its commit. It returns the
// options of the store and a function that resumes the process.
func stopBeforeCommit(t *testing.T) (options Options, commit func()) {
	t.Helper()
	options = namespaced(t)
	p := startProcess(t, options)
	t.Cleanup(p.Close)
	stopped, resume, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.stopAt = 2 // after the locks: the events
	p.stop = func() {
		close(stopped)
		<-resume
	}
	a := sent{writes: []eventstore.Write{write("y", eventstore.NoStream, 2), write("x", eventstore.NoStream, 1)}}
	go func() {
		defer close(ended)
		p.send(&a)
	}()
	<-stopped
	finish := sync.OnceFunc(func() {
		close(resume)
		<-ended
	})
	t.Cleanup(finish)
	return options, func() {
		finish()
		require.NoError(t, a.err)
	}
}

// Another process closes the slot of a slow one, which must not commit later.
func TestAppend_ClosedSlot(t *testing.T) {
	t.Parallel()
	options := namespaced(t)
	slow, other := startProcess(t, options), startProcess(t, options)
	t.Cleanup(slow.Close)
	t.Cleanup(other.Close)
	a := sent{writes: []eventstore.Write{write("x", eventstore.NoStream, 1), write("y", eventstore.NoStream, 1)}}
	b := sent{writes: []eventstore.Write{write("x", eventstore.NoStream, 1)}}
	slow.stopAt = 2 // before its events
	slow.stop = func() { other.send(&b) }
	slow.send(&a)
	require.NoError(t, b.err)
	require.Contains(t, strings.Join(other.trail, "\n"), closedType)
	require.Equal(t, &eventstore.ConflictError{Stream: "x", Expected: eventstore.NoStream, Actual: 0},
		eventstore.Conflict(a.err))
	requireSequential(t, fmt.Sprint(slow.trail, other.trail), other.Store, []*sent{&a, &b})
}

func TestGrace(t *testing.T) {
	t.Parallel()
	s := &Store{shortestGrace: shortestGrace}
	require.Equal(t, shortestGrace, s.grace("b.0", "", 0), "without locks the grace does not depend on the age")
	require.Equal(t, shortestGrace, s.grace("b.0", "c.0", 0), "a younger holder")
	require.Equal(t, shortestGrace/8, s.grace("b.0", "a.0", 0), "an older holder")
	require.Equal(t, 4*shortestGrace, s.grace("b.0", "c.2", 2), "doubles with each failed attempt")
	require.Equal(t, longestGrace, s.grace("b.0", "c.9", 9))
	s.latency.note(80 * time.Millisecond) // an average of 10 ms
	require.Equal(t, graceFactor*10*time.Millisecond, s.grace("b.0", "", 0))
}

func namespaced(t *testing.T) Options {
	t.Helper()
	return Options{
		URL: esdbtest.Shared(t), Namespace: "test-" + ulid.Make().String() + "/", Log: slog.New(slog.DiscardHandler),
		Poll: 5 * time.Millisecond, Timeout: time.Minute,
	}
}

func TestCache_Bounded(t *testing.T) {
	t.Parallel()
	c := newCache(10*entryBytes+1000, func(key string, value int) int { return len(key) + value })
	for i := range 100 {
		c.add(fmt.Sprintf("%03d", i%50), i)
		require.LessOrEqual(t, c.bytes, c.limit)
	}
	value, found := c.get("049")
	require.True(t, found)
	require.Equal(t, 99, value)
	c.add("large", 1<<20)
	_, found = c.get("large")
	require.False(t, found)
	require.Zero(t, c.bytes)
	require.Zero(t, c.known.Len())
}

// A consumer would treat a checkpoint beyond the head as one of another log.
func TestSubscribe_CheckpointsUpToHead(t *testing.T) {
	t.Parallel()
	server := esdbtest.Start(t)
	store := startProcess(t, Options{URL: server.URL(), Log: slog.New(slog.DiscardHandler), Poll: time.Minute})
	t.Cleanup(store.Close)
	first, err := store.Append(t.Context(), write("first", eventstore.NoStream, 1))
	require.NoError(t, err)
	server.Noise(10)
	for page, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
		require.NoError(t, err)
		require.Len(t, page.Events, 1)
		if page.Events[0].Stream == "last" {
			return
		}
		require.Equal(t, first, page.Position)
		go func() {
			_, _ = store.Append(t.Context(), write("last", eventstore.NoStream, 1)) // a failure ends the subscription
		}()
	}
}
