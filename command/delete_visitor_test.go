package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore/event"
)

// A process is killed before each step in turn, and another one completes the deletion.
func TestDeleteVisitor_FinishesAfterKill(t *testing.T) {
	t.Parallel()
	keys := keyDatabase(t)
	for stops, finished := 0, false; !finished; stops++ {
		on := keys.withNewLog(t)
		other := start(t, on)
		other.provision(t)
		var withdrawn []int64
		for range 2 {
			_, err := other.recordActivity(t.Context(), "v", `{"type":"click"}`)
			require.NoError(t, err)
		}
		remaining := stops
		_, err := visitorEraser(start(t, on), func() error {
			if remaining--; remaining < 0 {
				return errKilled
			}
			return nil
		}, &withdrawn).deleteVisitor(t.Context(), owner, "v")
		if finished = err == nil; !finished {
			require.ErrorIs(t, err, errKilled)
		}
		withdrawn = nil
		_, err = visitorEraser(start(t, on), noFault, &withdrawn).deleteVisitor(t.Context(), owner, "v")
		require.NoError(t, err, "stop %d", stops)
		require.Equal(t, []int64{other.activities(t, "v")[0].KeyID}, withdrawn)
		facts, readable := start(t, on).facts(t, "v")
		require.Equal(t, []event.VisitorForgotten{{}}, facts, "stop %d", stops)
		require.Zero(t, readable)

		_, err = other.recordActivity(t.Context(), "v", `{"type":"click"}`)
		require.NoError(t, err)
		_, readable = start(t, on).facts(t, "v")
		require.Equal(t, 1, readable, "later activity is sealed with a new key")
	}
}

// The visitor is active before each step of the deletion.
func TestDeleteVisitor_ConcurrentActivity(t *testing.T) {
	t.Parallel()
	keys := keyDatabase(t)
	for at, reached := 0, true; reached; at++ {
		on := keys.withNewLog(t)
		other := start(t, on)
		other.provision(t)
		_, err := other.recordActivity(t.Context(), "v", `{"type":"click"}`)
		require.NoError(t, err)
		var withdrawn []int64
		passed := 0
		_, err = visitorEraser(start(t, on), func() (err error) {
			if passed == at {
				_, err = other.recordActivity(t.Context(), "v", `{"type":"click"}`)
			}
			passed++
			return err
		}, &withdrawn).deleteVisitor(t.Context(), owner, "v")
		require.NoError(t, err, "step %d", at)
		reached = passed > at
		all := start(t, on).activities(t, "v")
		require.True(t, all[0].Erased)
		facts, readable := start(t, on).facts(t, "v")
		require.Len(t, facts, 1)
		require.LessOrEqual(t, readable, 1)
		for _, r := range all { // the views keep readable activity
			if !r.Erased {
				require.NotContains(t, withdrawn, r.KeyID)
			}
		}
	}
}

func TestDeleteVisitor_Unknown(t *testing.T) {
	t.Parallel()
	p := start(t, keyDatabase(t))
	p.provision(t)
	_, err := p.recordActivity(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	var withdrawn []int64
	for account, visitor := range map[string]string{"acme": "w", "globex": "v"} {
		_, err = visitorEraser(p, noFault, &withdrawn).deleteVisitor(t.Context(),
			command.Caller{Account: account}, visitor)
		require.ErrorIs(t, err, command.ErrNoVisitor)
	}
	_, readable := p.facts(t, "v")
	require.Equal(t, 1, readable)
}
