package view_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// arrivals puts leads on the log that came one a second from a moment on.
func arrivals(t *testing.T, w *projectiontest.World, account string, from time.Time, count int) (ids []string) {
	t.Helper()
	for n := range count {
		e := w.NewEvent()
		e.At, e.Metadata.Account = from.Add(time.Duration(n)*time.Second), account
		var err error
		e.Type, e.Data, err = event.Encode(event.LeadCreated{LeadFields: event.LeadFields{Name: fmt.Sprint("Asha ", n), Email: fmt.Sprint(n, "@example.com"), Status: "new"}, Source: "api"})
		require.NoError(t, err)
		ids = append(ids, e.ID.String())
		_, err = w.Store.Append(t.Context(), eventstore.Write{Stream: event.LeadStream(ids[n]), Expect: eventstore.NoStream, Events: []eventstore.Event{e}})
		require.NoError(t, err)
	}
	return ids
}

// blocks are how many there are, and how many of these have a filter.
func blocks(t *testing.T, w *projectiontest.World) (found [2]int) {
	t.Helper()
	require.NoError(t, w.Pool.QueryRow(t.Context(), `SELECT count(*), count(grams) FROM views.lead_block`).Scan(&found[0], &found[1]))
	return found
}

func awaitBlocks(t *testing.T, w *projectiontest.World, want int) {
	t.Helper()
	require.Eventually(t, func() bool { return blocks(t, w) == [2]int{want, want} }, projectiontest.Soon, 2*time.Millisecond)
}

// differences compares the view of leads with the log.
func differences(t *testing.T, w *projectiontest.World) (found []string) {
	t.Helper()
	compared, err := w.Replay(view.Lead{}).Compare(t.Context(), 10)
	require.NoError(t, err)
	for _, c := range compared {
		require.NoError(t, c.Err)
		for _, d := range c.Found {
			found = append(found, d.String())
		}
	}
	return found
}

func TestLeadBlock_FollowsChanges(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	later := projectiontest.Start.Add(time.Hour)
	ids := arrivals(t, w, "acme", later, 300)
	arrivals(t, w, "globex", later, 150)
	arrivals(t, w, "small", later, 20)
	stop := projectiontest.Run(t, w.Runner(t, view.Lead{}))
	awaitBlocks(t, w, 3)
	require.Empty(t, differences(t, w))

	for name, fact := range map[string]event.Data{
		"another name":  event.LeadMerged{Source: "api", LeadFields: event.LeadFields{Name: "Zubin Mehta"}},
		"another phone": event.LeadMerged{Source: "api", LeadFields: event.LeadFields{Phone: "+919876543210"}},
		"warmer":        event.LeadMerged{Source: "api", LeadFields: event.LeadFields{Temperature: "hot"}},
		"erased":        event.LeadErased{},
		"merged away":   event.LeadJoinedInto{Into: ids[1]},
	} {
		id := ids[10]
		ids = ids[1:]
		var before, after string
		grams := `SELECT md5(grams) FROM views.lead_block WHERE account = 'acme' ORDER BY until LIMIT 1`
		require.NoError(t, w.Pool.QueryRow(t.Context(), grams).Scan(&before))
		w.Append(t, "acme", event.LeadStream(id), fact)
		require.Eventually(t, func() bool {
			return w.Pool.QueryRow(t.Context(), grams).Scan(&after) == nil && after != before
		}, projectiontest.Soon, 2*time.Millisecond, name)
		require.Empty(t, differences(t, w), name)
	}

	// By a clock that is an hour behind, and of another account in between. They come to who begins, and looks at every
	// account: else an account is looked at whenever so many leads more have come, and some may stay in no block.
	stop()
	arrivals(t, w, "acme", projectiontest.Start, 3)
	arrivals(t, w, "globex", later.Add(time.Hour), 300)
	stop = projectiontest.Run(t, w.Runner(t, view.Lead{}))
	awaitBlocks(t, w, 2+3)
	require.Empty(t, differences(t, w))
	stop()

	// While no blocks are rebuilt, the stale ones have no filter.
	w.Append(t, "acme", event.LeadStream(ids[40]), event.LeadMerged{Source: "api", LeadFields: event.LeadFields{Name: "Yash Mehta"}})
	batches := w.Runner(t, struct{ projection.Projector }{view.Lead{}})
	stop = projectiontest.Run(t, batches)
	projectiontest.Await(t, batches)
	stop()
	require.Equal(t, [2]int{5, 4}, blocks(t, w))
	require.Empty(t, differences(t, w))
}

func TestLeadBlock_CompareDetectsDamage(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	arrivals(t, w, "acme", projectiontest.Start, 300)
	stop := projectiontest.Run(t, w.Runner(t, view.Lead{}))
	awaitBlocks(t, w, 2)
	stop()
	require.Empty(t, differences(t, w))
	until := func(leads int) string {
		return projectiontest.Start.Add(time.Duration(leads) * time.Second).Format(time.RFC3339)
	}
	pgtest.Exec(t, w.Pool, `UPDATE views.lead_block SET grams = set_byte(grams, 7, get_byte(grams, 7) # 1) WHERE since = '-infinity'`)
	require.Equal(t, []string{"view lead_block, row acme " + until(128) + ": does not match its leads"}, differences(t, w))
	pgtest.Exec(t, w.Pool, `DELETE FROM views.lead_block WHERE since = '-infinity'`)
	require.Equal(t, []string{"view lead_block, row acme " + until(256) + ": does not begin where the one before ends"}, differences(t, w))
}

// A replay replaces the table of leads, and with it the blocks.
func TestLeadBlock_RebuiltAfterReplay(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	arrivals(t, w, "acme", projectiontest.Start, 300)
	stop := projectiontest.Run(t, w.Runner(t, view.Lead{}))
	awaitBlocks(t, w, 2)
	stop()
	require.NoError(t, w.Replay(view.Lead{}).Run(t.Context()))
	require.Equal(t, [2]int{}, blocks(t, w))
	projectiontest.Run(t, w.Runner(t, view.Lead{}))
	awaitBlocks(t, w, 2)
	require.Empty(t, differences(t, w))
}

// The projector knew that it had looked at every lead, and went on knowing it of the table that a replay had put in the
// place of the one it had looked at.
func TestLeadBlock_ReplayWhileRunning(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	arrivals(t, w, "acme", projectiontest.Start, 300)
	runner := w.Runner(t, view.Lead{})
	projectiontest.Run(t, runner)
	awaitBlocks(t, w, 2)
	projectiontest.Await(t, runner)
	for range 2 {
		require.NoError(t, w.Replay(view.Lead{}).Run(t.Context()))
		w.Append(t, "globex", event.AccountStream("globex"), event.AccountConfigured{Stages: []string{"new"}, Region: "IN"})
		awaitBlocks(t, w, 2)
	}
	require.Empty(t, differences(t, w))
	status, err := runner.Status(t.Context())
	require.NoError(t, err)
	require.Zero(t, status[0].Failures, "that is nothing wrong")
}
