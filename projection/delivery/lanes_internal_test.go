package delivery

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
func freeOf(l *lanes, webhookID string) int {
	_, ids, each, other := l.quota()
	for i, id := range ids {
		if id == webhookID {
			return int(each[i])
		}
	}
	return int(other)
}

func TestLanes_SuccessAddsSlots(t *testing.T) {
	t.Parallel()
	l := newLanes()
	require.Equal(t, firstSlots, freeOf(l, "w"))
	under := l.take(rowsOf("w", 100))
	require.Len(t, under, firstSlots)
	require.Equal(t, firstSlots, l.attempting())
	for attempts := 0; len(under) > 0; attempts++ {
		require.Less(t, attempts, 200)
		good := succeeded(under[0])
		start, back, _ := l.done(good)
		require.Empty(t, back)
		under = append(under[1:], start...)
		l.saved([]result{good})
		require.LessOrEqual(t, len(under), maxSlots)
		require.Equal(t, len(under), l.attempting())
		if attempts == 20 {
			require.Len(t, under, maxSlots)
			require.Zero(t, freeOf(l, "w"), "enough rows are held")
		}
	}
	require.Empty(t, l.byID, "an idle lane takes no memory")
	require.Empty(t, l.heldIDs())
}

func TestLanes_MaxUnsaved(t *testing.T) {
	t.Parallel()
	l := newLanes()
	under := l.take(rowsOf("w", 100))
	var unwritten []result
	for len(under) > 0 {
		unwritten = append(unwritten, succeeded(under[0]))
		start, _, _ := l.done(unwritten[len(unwritten)-1])
		under = append(under[1:], start...)
	}
	require.Len(t, unwritten, maxUnsaved)
	require.Len(t, l.heldIDs(), 100)
	require.Empty(t, l.resume())
	_, starved := l.saved(unwritten[:5])
	require.True(t, starved)
	require.Len(t, l.resume(), 5)
	require.Empty(t, l.resume())
}

func TestLanes_FailureRemovesSlots(t *testing.T) {
	t.Parallel()
	l := newLanes()
	under := l.take(rowsOf("w", 10))
	given := 0
	for len(under) > 0 {
		bad := hasFailed(under[0])
		start, back, _ := l.done(bad)
		l.saved([]result{bad})
		under = append(under[1:], start...)
		given += len(back)
	}
	require.Equal(t, 10-firstSlots, given)
	require.Equal(t, 1, freeOf(l, "w"))
	under = l.take([]row{{id: "again", webhookID: "w"}})
	require.Len(t, under, 1)
	require.Zero(t, freeOf(l, "w"))
	good := succeeded(under[0])
	l.done(good)
	require.Equal(t, maxAhead, freeOf(l, "w"), "well again")
	l.saved([]result{good})
	require.Equal(t, firstSlots, freeOf(l, "w"), "and idle, so that nothing is known of it")
}

func TestLanes_ReservesSlotsForProven(t *testing.T) {
	t.Parallel()
	l := newLanes()
	well := l.take(rowsOf("well", 1))
	l.take([]row{{id: "keeps", webhookID: "well"}}) // keeps the lane
	l.done(succeeded(well[0]))
	hanging := 0
	for n := range 1000 {
		id := fmt.Sprint("hangs-", n)
		free := freeOf(l, id)
		hanging += len(l.take(rowsOf(id, free)))
	}
	require.Equal(t, maxUnproven, hanging)
	require.Positive(t, freeOf(l, "well"))
	require.Len(t, l.take([]row{{id: "next", webhookID: "well"}}), 1)
}

func TestLanes_MaxPerClass(t *testing.T) {
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
			l := newLanes()
			under := 0
			for n := range c.most + 1 {
				id := fmt.Sprint(n)
				l.byID[id] = &lane{class: c.class, slots: firstSlots}
				under += len(l.take(rowsOf(id, 1)))
			}
			require.Equal(t, c.most, under)
			require.Equal(t, c.most, l.attempting())
			l.byID["next"] = &lane{class: c.class, slots: firstSlots}
			require.Equal(t, c.ahead, freeOf(l, "next") > 0)
			require.Equal(t, c.fresh, len(l.take(rowsOf("fresh", 1))) > 0)
		})
	}
}

func TestLanes_MaxRowsPerEndpoint(t *testing.T) {
	t.Parallel()
	l := newLanes()
	l.byID["w"] = &lane{class: proven, slots: firstSlots}
	l.take(rowsOf("w", 10))
	require.Equal(t, maxAhead-10, freeOf(l, "w"))
}

func TestLanes_FreedSlotStartsOthers(t *testing.T) {
	t.Parallel()
	l := newLanes()
	var under []row
	for n := range maxUnproven/firstSlots + 1 {
		under = append(under, l.take(rowsOf(fmt.Sprint(n), firstSlots))...)
	}
	require.Len(t, under, maxUnproven, "the last endpoint's wait")
	start, _, _ := l.done(hasFailed(under[0]))
	require.Len(t, start, 1)
	require.Equal(t, fmt.Sprint(maxUnproven/firstSlots), start[0].webhookID)
}

func TestLanes_IgnoresClaimedTwice(t *testing.T) {
	t.Parallel()
	l := newLanes()
	require.Len(t, l.take(rowsOf("w", 1)), 1)
	require.Empty(t, l.take(rowsOf("w", 1)), "its lease was lost, and claimed again")
}

// A row that is returned to the queue can be claimed again before the lanes are updated. Its lease would then remain without an attempt.
func TestLanes_ClaimedDuringReturn(t *testing.T) {
	t.Parallel()
	l := newLanes()
	r := rowsOf("w", 1)[0]
	require.Len(t, l.take([]row{r}), 1)
	bad := hasFailed(r)
	l.done(bad)
	require.Empty(t, l.take([]row{r}), "it is held")
	again, _ := l.saved([]result{bad})
	require.Len(t, again, 1)
	require.Equal(t, queued, again[0].state)
	require.False(t, again[0].attempted)
	again, _ = l.saved(again)
	require.Empty(t, again)
	require.Empty(t, l.held)
	require.Len(t, l.take([]row{r}), 1)
}

func TestLanes_UnattemptedKeepsClass(t *testing.T) {
	t.Parallel()
	l := newLanes()
	under := l.take(rowsOf("w", firstSlots))
	for _, r := range under[1:] {
		none := result{row: r, state: queued}
		_, back, wanted := l.done(none)
		require.Empty(t, back)
		require.True(t, wanted, "more rows may be claimed")
		l.saved([]result{none})
	}
	require.Equal(t, firstSlots-1, freeOf(l, "w"))
	require.Zero(t, l.byID["w"].unsaved)
	none := result{row: under[0], state: queued}
	l.done(none)
	l.saved([]result{none})
	require.Empty(t, l.byID, "an idle lane takes no memory")
	require.Empty(t, l.heldIDs())

	bad := hasFailed(l.take(rowsOf("w", 1))[0])
	l.done(bad)
	l.saved([]result{bad})
	gone := result{row: l.take([]row{bad.row})[0], state: cancelled}
	l.done(gone)
	l.saved([]result{gone})
	require.Empty(t, l.byID, "nor does that of a deleted endpoint, although it failed")
}

func TestLanes_ForgetsIdleEndpoint(t *testing.T) {
	t.Parallel()
	l := newLanes()
	for _, r := range l.take(rowsOf("w", 1)) {
		failure := hasFailed(r)
		l.done(failure)
		l.saved([]result{failure})
	}
	require.Less(t, freeOf(l, "w"), firstSlots, "its failure is remembered for the next attempt")
	require.NotZero(t, l.byID["w"].idle)
	l.byID["w"].idle = time.Now().Add(-idleTTL - time.Second)
	require.Equal(t, firstSlots, freeOf(l, "w"))
	require.Empty(t, l.byID)
}
