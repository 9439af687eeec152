package esdb

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
)

// Many callers in three processes write to few streams and check others. Some calls are cancelled or lose their
// response. The log must be linearizable: the result of a sequential execution in an order that agrees with real time.
// A concurrent subscription must yield it.
func TestAppend_Storm(t *testing.T) {
	t.Parallel()
	for name, locksOnly := range map[string][3]bool{
		"by locks": {true, true, true}, "by AppendRecords": {}, "in both forms": {true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storm(t, locksOnly)
		})
	}
}

func storm(t *testing.T, locksOnly [3]bool) {
	const rounds = 30 // per caller
	server := esdbtest.Start(t)
	server.Upgrade()
	options := Options{
		URL: server.URL(), Log: slog.New(slog.DiscardHandler), Poll: 5 * time.Millisecond, Timeout: time.Minute,
	}
	names := []string{"a", "b", "c", "d", "e", "f"}
	type timed struct {
		sent
		begun, ended int64
	}
	var clock atomic.Int64
	var mu sync.Mutex
	var all []*timed
	var callers sync.WaitGroup
	var live []eventstore.Recorded
	last := func(e eventstore.Recorded) bool { return e.Stream == "last" } // later events may be on the same page
	following, cancel := context.WithCancel(t.Context())
	var follower sync.WaitGroup
	for i := range 3 {
		store, err := Open(t.Context(), options)
		require.NoError(t, err)
		t.Cleanup(store.Close)
		store.locksOnly = locksOnly[i]
		if i == 0 {
			follower.Go(func() {
				for page := range store.Subscribe(following, 0, eventstore.Filter{}) {
					live = append(live, page.Events...)
					if slices.ContainsFunc(page.Events, last) {
						return
					}
				}
			})
		}
		for range 4 {
			callers.Go(func() {
				for range rounds {
					s := timed{sent: sent{made: true, writes: drawWrites(t, store, names)}}
					ctx, cancel := context.WithCancel(t.Context())
					if rand.N(10) == 0 {
						ctx, cancel = context.WithTimeout(ctx, rand.N(5*time.Millisecond))
					}
					s.begun = clock.Add(1)
					if s.position, s.err = store.Append(ctx, s.writes...); s.err != nil &&
						eventstore.Conflict(s.err) == nil {
						s.err = errors.Join(s.err, errClosed) // the outcome is unknown
					}
					s.ended = clock.Add(1)
					cancel()
					mu.Lock()
					all = append(all, &s)
					mu.Unlock()
					if rand.N(100) == 0 {
						server.LoseReplies(1)
					}
				}
			})
		}
	}
	callers.Wait()
	server.LoseReplies(0)
	fresh, err := Open(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(fresh.Close)
	// Records of a cancelled append may still be sent, but not after these.
	for _, s := range names {
		_, err := fresh.Append(t.Context(), write(s, eventstore.Any, 1))
		require.NoError(t, err)
	}
	_, err = fresh.Append(t.Context(), write("last", eventstore.NoStream, 1))
	require.NoError(t, err)
	appends := make([]*sent, len(all))
	for i, s := range all {
		appends[i] = &s.sent
	}
	requireSequential(t, "", fresh, appends)
	follower.Wait()
	cancel()
	require.True(t, slices.ContainsFunc(live, last))
	require.Equal(t, readLog(t, "", fresh)[:len(live)], live,
		"a live subscription yields the events that a new store reads")
	for _, a := range all {
		for _, b := range all {
			if a.err == nil && b.err == nil && len(b.writes) > 0 && a.ended < b.begun && a.position >= b.position {
				require.Less(t, a.position, b.position, "one append returned before the other began")
			}
		}
	}
}

// drawWrites returns random writes and checks, most with the right expectation.
func drawWrites(t *testing.T, store *Store, names []string) (writes []eventstore.Write) {
	order := rand.Perm(len(names))
	n := 1 + rand.N(3)
	for i, k := range order[:n+rand.N(3)] {
		var end tail
		err := store.retryTransient(t.Context(), func(ctx context.Context) (err error) {
			end, err = store.readTail(ctx, names[k])
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if i >= n {
			writes = append(writes, eventstore.Check(names[k], end.end))
			continue
		}
		if rand.N(8) == 0 {
			end.end = eventstore.Any
		}
		writes = append(writes, write(names[k], end.end, 1+rand.N(2)))
	}
	rand.Shuffle(len(writes), func(i, j int) { writes[i], writes[j] = writes[j], writes[i] })
	return writes
}
