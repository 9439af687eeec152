package courier

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// claim claims rows like the database when every endpoint has any number of due rows: in the order of the endpoints.
func claim(ws *windows, webhookIDs []string) {
	total, ids, each, other := ws.quota()
	free := map[string]int32{}
	for i, id := range ids {
		free[id] = each[i]
	}
	var claimed []row
	for _, id := range webhookIDs {
		rows, known := free[id]
		if !known {
			rows = int32(other)
		}
		for range rows {
			if len(claimed) < total {
				claimed = append(claimed, row{
					id: fmt.Sprint(id, "-", len(ws.unsaved), "-", len(claimed)), webhookID: id,
				})
			}
		}
	}
	ws.add(claimed)
}

// Endpoints that hang or fail do not use up the slots of endpoints that respond.
func TestWindows_HungEndpointsClaimFew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ fail, hang int }{
		"hang": {0, 2 * maxRows}, "fail": {2 * maxRows, 0}, "fail, and others hang": {maxRows, maxRows},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ws := newWindows()
			well := ws.add(rowsOf("well", 1))
			ws.add([]row{{id: "keeps", webhookID: "well"}}) // keeps the window
			ws.done(succeeded(well[0]))
			var failing, hanging []string
			for n := range c.fail {
				id := fmt.Sprintf("fails-%05d", n)
				bad := hasFailed(row{id: "first", webhookID: id})
				require.Len(t, ws.add([]row{bad.row}), 1)
				ws.done(bad)
				ws.saved([]result{bad})
				failing = append(failing, id)
			}
			for n := range c.hang {
				hanging = append(hanging, fmt.Sprintf("hangs-%05d", n))
			}
			for range 10 {
				claim(ws, failing)
			}
			for range 10 {
				claim(ws, hanging)
			}
			total, _, _, _ := ws.quota()
			require.Equal(t, maxClaimed, total)
			require.Positive(t, freeOf(ws, "well"))
		})
	}
}

// The row's lease was lost, so the row was claimed again while the attempt at it went on. If it were returned to the
// queue for its endpoint's rate limit, that would end the process's hold on it, and a second attempt could start beside
// the first.
func TestCourier_HoldsRowClaimedAgainBeyondLimit(t *testing.T) {
	t.Parallel()
	exhausted := func(context.Context, string, float64, int) (int, error) { return 0, nil }
	c := &Courier{Options: Options{Pace: exhausted}, windows: newWindows(), results: make(chan result, 2)}
	held, other := row{id: "a", webhookID: "w", rateLimit: 1}, row{id: "b", webhookID: "w", rateLimit: 1}
	require.Len(t, c.windows.add([]row{held}), 1)
	now, err := c.withinLimits(t.Context(), []row{held, other})
	require.NoError(t, err)
	require.Equal(t, []row{held}, now)
	require.Len(t, c.results, 1)
	require.Equal(t, other, (<-c.results).row)
}

func TestWindows_WakesWhenNotFull(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	first := ws.add(rowsOf("w", maxRows))[0]
	_, wanted := ws.saved(nil)
	require.False(t, wanted, "no claim has waited yet")
	total, _, _, _ := ws.quota()
	require.Zero(t, total)
	good := succeeded(first)
	ws.done(good)
	_, wanted = ws.saved([]result{good})
	require.True(t, wanted)
	total, _, _, _ = ws.quota()
	require.Equal(t, 1, total)
}
