package courier

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rowsOf returns rows of one endpoint.
func rowsOf(webhookID string, n int) []row {
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{id: fmt.Sprintf("%s-%d", webhookID, i), webhookID: webhookID}
	}
	return rows
}

func succeeded(r row) result {
	return result{row: r, state: delivered, attempted: true, outcome: outcome{status: 200}}
}

func hasFailed(r row) result {
	return result{row: r, state: queued, attempted: true, outcome: outcome{err: errors.New("no answer")}}
}

// freeOf returns how many rows of an endpoint may be claimed.
func freeOf(ws *windows, webhookID string) int {
	_, ids, each, other := ws.quota()
	for i, id := range ids {
		if id == webhookID {
			return int(each[i])
		}
	}
	return int(other)
}

func TestWindows_SuccessAddsSlots(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	require.Equal(t, firstSlots, freeOf(ws, "w"))
	under := ws.add(rowsOf("w", 100))
	require.Len(t, under, firstSlots)
	require.Equal(t, firstSlots, ws.attempting())
	for attempts := 0; len(under) > 0; attempts++ {
		require.Less(t, attempts, 200)
		good := succeeded(under[0])
		start, back, _ := ws.done(good)
		require.Empty(t, back)
		under = append(under[1:], start...)
		ws.saved([]result{good})
		require.LessOrEqual(t, len(under), maxSlots)
		require.Equal(t, len(under), ws.attempting())
		if attempts == 20 {
			require.Len(t, under, maxSlots)
			require.Zero(t, freeOf(ws, "w"), "enough rows are not saved")
		}
	}
	require.Empty(t, ws.byID, "an idle window takes no memory")
	require.Empty(t, ws.unsavedIDs())
}

func TestWindows_MaxUnsaved(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	under := ws.add(rowsOf("w", 100))
	var unwritten []result
	for len(under) > 0 {
		unwritten = append(unwritten, succeeded(under[0]))
		start, _, _ := ws.done(unwritten[len(unwritten)-1])
		under = append(under[1:], start...)
	}
	require.Len(t, unwritten, maxUnsaved)
	require.Len(t, ws.unsavedIDs(), 100)
	require.Empty(t, ws.resume())
	_, starved := ws.saved(unwritten[:5])
	require.True(t, starved)
	require.Len(t, ws.resume(), 5)
	require.Empty(t, ws.resume())
}

func TestWindows_FailureRemovesSlots(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	under := ws.add(rowsOf("w", 10))
	given := 0
	for len(under) > 0 {
		bad := hasFailed(under[0])
		start, back, _ := ws.done(bad)
		ws.saved([]result{bad})
		under = append(under[1:], start...)
		given += len(back)
	}
	require.Equal(t, 10-firstSlots, given)
	require.Equal(t, 1, freeOf(ws, "w"))
	under = ws.add([]row{{id: "again", webhookID: "w"}})
	require.Len(t, under, 1)
	require.Zero(t, freeOf(ws, "w"))
	good := succeeded(under[0])
	ws.done(good)
	require.Equal(t, maxAhead, freeOf(ws, "w"), "well again")
	ws.saved([]result{good})
	require.Equal(t, firstSlots, freeOf(ws, "w"), "and idle, so that nothing is known of it")
}

func TestWindows_ReservesSlotsForProven(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	well := ws.add(rowsOf("well", 1))
	ws.add([]row{{id: "keeps", webhookID: "well"}}) // keeps the window
	ws.done(succeeded(well[0]))
	hanging := 0
	for n := range 1000 {
		id := fmt.Sprint("hangs-", n)
		free := freeOf(ws, id)
		hanging += len(ws.add(rowsOf(id, free)))
	}
	require.Equal(t, maxUnproven, hanging)
	require.Positive(t, freeOf(ws, "well"))
	require.Len(t, ws.add([]row{{id: "next", webhookID: "well"}}), 1)
}

func TestWindows_MaxPerClass(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		class class
		most  int
		ahead bool // rows are claimed nevertheless
		fresh bool // endpoints without history get their slots
	}{
		"they answer well":       {proven, maxInFlight, true, false},
		"they have not answered": {unproven, maxUnproven, false, false},
		"they fail":              {failing, maxFailing, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ws := newWindows()
			under := 0
			for n := range c.most + 1 {
				id := fmt.Sprint(n)
				ws.byID[id] = &window{class: c.class, slots: firstSlots}
				under += len(ws.add(rowsOf(id, 1)))
			}
			require.Equal(t, c.most, under)
			require.Equal(t, c.most, ws.attempting())
			ws.byID["next"] = &window{class: c.class, slots: firstSlots}
			require.Equal(t, c.ahead, freeOf(ws, "next") > 0)
			require.Equal(t, c.fresh, len(ws.add(rowsOf("fresh", 1))) > 0)
		})
	}
}

func TestWindows_MaxRowsPerEndpoint(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	ws.byID["w"] = &window{class: proven, slots: firstSlots}
	ws.add(rowsOf("w", 10))
	require.Equal(t, maxAhead-10, freeOf(ws, "w"))
}

func TestWindows_FreedSlotStartsOthers(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	var under []row
	for n := range maxUnproven/firstSlots + 1 {
		under = append(under, ws.add(rowsOf(fmt.Sprint(n), firstSlots))...)
	}
	require.Len(t, under, maxUnproven, "the last endpoint's wait")
	start, _, _ := ws.done(hasFailed(under[0]))
	require.Len(t, start, 1)
	require.Equal(t, fmt.Sprint(maxUnproven/firstSlots), start[0].webhookID)
}

func TestWindows_IgnoresClaimedTwice(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	require.Len(t, ws.add(rowsOf("w", 1)), 1)
	require.Empty(t, ws.add(rowsOf("w", 1)), "its lease was lost, and claimed again")
}

// A row that is returned to the queue can be claimed again before the windows are updated. Its lease would then remain
// without an attempt.
func TestWindows_ClaimedDuringReturn(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	r := rowsOf("w", 1)[0]
	require.Len(t, ws.add([]row{r}), 1)
	bad := hasFailed(r)
	ws.done(bad)
	require.Empty(t, ws.add([]row{r}), "it is not saved")
	again, _ := ws.saved([]result{bad})
	require.Len(t, again, 1)
	require.Equal(t, queued, again[0].state)
	require.False(t, again[0].attempted)
	again, _ = ws.saved(again)
	require.Empty(t, again)
	require.Empty(t, ws.unsaved)
	require.Len(t, ws.add([]row{r}), 1)
}

func TestWindows_UnattemptedKeepsClass(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	under := ws.add(rowsOf("w", firstSlots))
	for _, r := range under[1:] {
		none := result{row: r, state: queued}
		_, back, wanted := ws.done(none)
		require.Empty(t, back)
		require.True(t, wanted, "more rows may be claimed")
		ws.saved([]result{none})
	}
	require.Equal(t, firstSlots-1, freeOf(ws, "w"))
	require.Zero(t, ws.byID["w"].unsaved)
	none := result{row: under[0], state: queued}
	ws.done(none)
	ws.saved([]result{none})
	require.Empty(t, ws.byID, "an idle window takes no memory")
	require.Empty(t, ws.unsavedIDs())

	bad := hasFailed(ws.add(rowsOf("w", 1))[0])
	ws.done(bad)
	ws.saved([]result{bad})
	gone := result{row: ws.add([]row{bad.row})[0], state: cancelled}
	ws.done(gone)
	ws.saved([]result{gone})
	require.Empty(t, ws.byID, "nor does that of a deleted endpoint, although it failed")
}

func TestWindows_ForgetsIdleEndpoint(t *testing.T) {
	t.Parallel()
	ws := newWindows()
	for _, r := range ws.add(rowsOf("w", 1)) {
		failure := hasFailed(r)
		ws.done(failure)
		ws.saved([]result{failure})
	}
	require.Less(t, freeOf(ws, "w"), firstSlots, "its failure is remembered for the next attempt")
	require.NotZero(t, ws.byID["w"].idle)
	ws.byID["w"].idle = time.Now().Add(-idleTTL - time.Second)
	require.Equal(t, firstSlots, freeOf(ws, "w"))
	require.Empty(t, ws.byID)
}
