package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
)

// asked makes a request that writes and checks streams of one letter each.
func asked(writes, checks string) *request {
	r := &request{done: make(chan outcome, 1), bytes: 1}
	for _, s := range writes {
		r.writes = append(r.writes, eventstore.Write{Stream: string(s), Events: make([]eventstore.Event, 1)})
	}
	for _, s := range checks {
		r.writes = append(r.writes, eventstore.Check(string(s), eventstore.Any))
	}
	return r
}

func TestABatchHoldsNoTwoAppendsInEachOthersWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requests [][2]string // written, checked
		batch    []int
	}{
		"streams of their own":                         {[][2]string{{"a", ""}, {"b", ""}, {"c", ""}}, []int{0, 1, 2}},
		"checks are shared":                            {[][2]string{{"a", "t"}, {"b", "t"}, {"", "t"}}, []int{0, 1, 2}},
		"one stream written twice":                     {[][2]string{{"a", ""}, {"ab", ""}, {"c", ""}}, []int{0, 2}},
		"a check of what is written":                   {[][2]string{{"t", ""}, {"a", "t"}}, []int{0}},
		"a write of what is checked":                   {[][2]string{{"a", "t"}, {"t", ""}}, []int{0}},
		"behind a waiting write":                       {[][2]string{{"a", "t"}, {"t", ""}, {"b", "t"}}, []int{0}},
		"behind another stream of a waiting append":    {[][2]string{{"a", ""}, {"ab", ""}, {"b", ""}}, []int{0}},
		"a check beside a waiting append's same check": {[][2]string{{"a", ""}, {"a", "t"}, {"b", "t"}}, []int{0, 2}},
		"a write behind a waiting append's check":      {[][2]string{{"a", ""}, {"a", "t"}, {"t", ""}}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := selection{touched: map[string]bool{}}
			var requests, batch, deferred []*request
			for _, r := range c.requests {
				requests = append(requests, asked(r[0], r[1]))
			}
			for i, r := range requests {
				s.offer(r)
				if len(batch) < len(c.batch) && c.batch[len(batch)] == i {
					batch = append(batch, r)
				} else {
					deferred = append(deferred, r)
				}
			}
			require.Equal(t, batch, s.batch)
			require.Equal(t, deferred, s.deferred)
		})
	}
}

func TestABatchIsBounded(t *testing.T) {
	t.Parallel()
	s := selection{touched: map[string]bool{}}
	for range maxBatch + 10 {
		s.offer(asked("", "t"))
	}
	require.Len(t, s.batch, maxBatch)
	require.Len(t, s.deferred, 10)
	require.True(t, s.full())

	s = selection{touched: map[string]bool{}}
	small, large := asked("a", ""), asked("b", "")
	large.bytes = maxBatchBytes
	s.offer(small)
	s.offer(large)
	require.Equal(t, []*request{small}, s.batch)
	s = selection{touched: map[string]bool{}}
	s.offer(large)
	require.Equal(t, []*request{large}, s.batch, "what is too large for a batch has one of its own")
	require.True(t, s.full())

	s = selection{touched: map[string]bool{}}
	s.offer(asked("a", ""))
	for range maxDeferred {
		require.False(t, s.full())
		s.offer(asked("a", ""))
	}
	require.True(t, s.full(), "who waits for a stream has left the queue, whose bound is for all who wait")
}

func TestABatchLeavesOutWhoseCallersLeft(t *testing.T) {
	t.Parallel()
	s := selection{touched: map[string]bool{}}
	gone, next, goneToo := asked("a", ""), asked("a", ""), asked("a", "")
	require.True(t, gone.leave(), "it will not happen")
	require.True(t, goneToo.leave(), "it will not happen")
	s.offer(gone)
	s.offer(next)
	s.offer(goneToo)
	require.Equal(t, []*request{next}, s.batch)
	require.Empty(t, s.deferred)
	require.False(t, next.leave(), "it may happen")
}
