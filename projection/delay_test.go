package projection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// TestAViewIsBehindBySinceWhenTheOldestEventWaitsThatConcernsIt has a log of events of 1970, and a view of accounts.
func TestAViewIsBehindBySinceWhenTheOldestEventWaitsThatConcernsIt(t *testing.T) {
	t.Parallel()
	log := newMemory(2)
	log.append("lead-1", "{}")
	log.append("account-1", "{}")
	log.append("lead-1", "{}")
	log.append("lead-2", "{}")
	log.append("lead-3", "{}")
	view := selective{filter: streams(event.AccountPrefix)}
	unread, read := NewTail(log, view), NewTail(log, view)
	require.NoError(t, readLog(t.Context(), log, logRange{end: 5, filter: view.Filter()}, 0, read.add))
	since1970 := time.Since(time.Unix(0, 0))
	asked := log.pages
	for _, tail := range []*Tail{read, unread} {
		r := &Runner{store: log, workers: []*worker{{projector: view, tail: tail}}}
		for _, c := range []struct {
			position eventstore.Position
			waits    bool
		}{{0, true}, {1, true}, {2, false}, {5, false}} {
			delay, err := r.Delay(t.Context(), Status{Name: view.Name(), Position: c.position, Lag: uint64(5 - c.position)})
			require.NoError(t, err)
			if c.waits {
				require.GreaterOrEqual(t, delay, since1970, "at %d", c.position)
			} else {
				require.Zero(t, delay, "at %d", c.position)
			}
		}
		require.Equal(t, tail == unread, log.pages > asked, "the log is asked for what the tail does not hold, and for nothing else")
	}
}
