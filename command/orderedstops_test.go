package command_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/storetest"
)

// stopAt stops a process before it writes for the nth time, counted from 0.
func stopAt(n int) func(storetest.Step) error {
	return func(step storetest.Step) error {
		if step.Writes {
			n--
		}
		if n < 0 && step.Writes {
			return errKilled
		}
		return nil
	}
}

// everyPrefix runs a scenario for each number of writes after which a command can be stopped, itself included. The time
// is not that of the clock, so that nobody waits for those who wait before they try again.
func everyPrefix(t *testing.T, stopped asked, then func(w *world, ask func(process) error)) {
	for n, whole := 0, false; !whole; n++ {
		require.Less(t, n, 60, "a command that never ends")
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			ask := stopped.with(w)
			err := ask(w.process(stopAt(n)))
			if whole = err == nil; !whole {
				require.ErrorIs(t, err, errKilled)
			}
			w.obey()
			then(w, ask)
			if t.Failed() {
				t.Logf("after %d writes", n)
			}
		})
	}
}
