package query_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
)

func TestBetweenTouches_Median(t *testing.T) {
	t.Parallel()
	w, history, reader := told(t, 11, 400)
	later := map[string][]time.Duration{}
	for _, id := range history.Leads["acme"] {
		state := fold(t, w, event.LeadStream(id), lead.Evolve)
		for _, entry := range state.Sources {
			if after := entry.FirstSeenAt.Sub(state.CreatedAt); after > 0 {
				later[entry.Source] = append(later[entry.Source], after)
			}
		}
	}
	require.NotEmpty(t, later)
	since, until := time.Time{}, time.Now().AddDate(100, 0, 0)
	found, err := reader.BetweenTouches(t.Context(), "acme", since, until)
	require.NoError(t, err)
	require.Len(t, found, len(later))
	for _, b := range found {
		all := slices.Sorted(slices.Values(later[b.Source]))
		require.Len(t, all, b.Leads, b.Source)
		require.Equal(t, all[(len(all)-1)/2], b.Median, b.Source)
	}
	none, err := reader.BetweenTouches(t.Context(), "acme", until, until.AddDate(1, 0, 0))
	require.NoError(t, err)
	require.Empty(t, none)
}
