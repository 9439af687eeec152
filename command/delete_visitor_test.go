package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// A process is stopped before each single step in turn, and the next finishes what it began.
func TestDeleteVisitor_FinishesAfterKill(t *testing.T) {
	t.Parallel()
	for stops, whole := 0, false; !whole; stops++ {
		url := database(t)
		far := start(t, url)
		far.provision(t)
		var withdrawn, acted []eventstore.Position
		for range 2 {
			done, err := far.act(t.Context(), "v", `{"type":"click"}`)
			require.NoError(t, err)
			acted = append(acted, done.Position)
		}
		left := stops
		_, err := forgets(start(t, url), func() error {
			if left--; left < 0 {
				return errKilled
			}
			return nil
		}, &withdrawn).deleteVisitor(t.Context(), owner, "v")
		if whole = err == nil; !whole {
			require.ErrorIs(t, err, errKilled)
		}
		withdrawn = nil
		_, err = forgets(start(t, url), nothing, &withdrawn).deleteVisitor(t.Context(), owner, "v")
		require.NoError(t, err, "stop %d", stops)
		require.ElementsMatch(t, acted, withdrawn)
		facts, readable := start(t, url).facts(t, "v")
		require.Equal(t, []event.VisitorForgotten{{}}, facts, "stop %d", stops)
		require.Zero(t, readable)

		_, err = far.act(t.Context(), "v", `{"type":"click"}`)
		require.NoError(t, err)
		_, readable = start(t, url).facts(t, "v")
		require.Equal(t, 1, readable, "what comes afterwards is sealed with a new key")
	}
}

// The visitor does something at each step of being forgotten.
func TestDeleteVisitor_ActivityMeanwhile(t *testing.T) {
	t.Parallel()
	for at, reached := 0, true; reached; at++ {
		url := database(t)
		far := start(t, url)
		far.provision(t)
		_, err := far.act(t.Context(), "v", `{"type":"click"}`)
		require.NoError(t, err)
		var withdrawn []eventstore.Position
		passed := 0
		_, err = forgets(start(t, url), func() (err error) {
			if passed == at {
				_, err = far.act(t.Context(), "v", `{"type":"click"}`)
			}
			passed++
			return err
		}, &withdrawn).deleteVisitor(t.Context(), owner, "v")
		require.NoError(t, err, "step %d", at)
		reached = passed > at
		all := start(t, url).activities(t, "v")
		require.True(t, all[0].Erased)
		facts, readable := start(t, url).facts(t, "v")
		require.Len(t, facts, 1)
		require.LessOrEqual(t, readable, 1)
		for _, r := range all { // what can be read is not taken out of the views
			if !r.Erased {
				require.NotContains(t, withdrawn, r.Position)
			}
		}
	}
}

func TestDeleteVisitor_Unknown(t *testing.T) {
	t.Parallel()
	p := start(t, database(t))
	p.provision(t)
	_, err := p.act(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	var withdrawn []eventstore.Position
	for account, visitor := range map[string]string{"acme": "w", "globex": "v"} {
		_, err = forgets(p, nothing, &withdrawn).deleteVisitor(t.Context(), command.Caller{Account: account}, visitor)
		require.ErrorIs(t, err, command.ErrNoVisitor)
	}
	_, readable := p.facts(t, "v")
	require.Equal(t, 1, readable)
}
