package view_test

import (
	"fmt"
	"strings"
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

// arrivals appends leads, one a second, starting at a time.
func arrivals(t *testing.T, w *projectiontest.World, account string, from time.Time, count int) (ids []string) {
	t.Helper()
	for n := range count {
		e := w.NewEvent()
		e.At, e.Metadata.Account = from.Add(time.Duration(n)*time.Second), account
		var err error
		e.Type, e.Data, err = event.Encode(event.LeadCreated{
			LeadFields: event.LeadFields{
				Name: fmt.Sprint("Asha ", n), Email: fmt.Sprint(n, "@example.com"), Status: "new",
			}, Source: "api",
		})
		require.NoError(t, err)
		ids = append(ids, e.ID.String())
		_, err = w.Store.Append(t.Context(), eventstore.Write{
			Stream: event.LeadStream(ids[n]), Expect: eventstore.NoStream, Events: []eventstore.Event{e},
		})
		require.NoError(t, err)
	}
	return ids
}

func awaitIndexed(t *testing.T, w *projectiontest.World, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM views.lead_search`) == want
	}, projectiontest.Soon, 2*time.Millisecond)
}

// differences compares the view of leads with the log.
func differences(t *testing.T, w *projectiontest.World) (found []string) {
	t.Helper()
	compared, err := w.Replay(view.Lead{}).Compare(t.Context(), 10)
	require.NoError(t, err)
	for _, c := range compared {
		require.NoError(t, c.Err)
		for _, d := range c.Differences {
			found = append(found, d.Of("lead"))
		}
	}
	return found
}

func TestLeadSearch_FollowsChanges(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	ids := arrivals(t, w, "acme", projectiontest.Start, 600)
	arrivals(t, w, "globex", projectiontest.Start.Add(-time.Hour), 150)
	runner := w.Runner(t, view.Lead{})
	stop := projectiontest.Run(t, runner)
	awaitIndexed(t, w, 750)
	require.Empty(t, differences(t, w))

	text := func(id string) string {
		return strings.Join(
			pgtest.Rows[string](t, w.Pool, `SELECT search FROM views.lead_search WHERE lead_id = $1`, id), "",
		)
	}
	for _, change := range []struct {
		fact event.Data
		want string
	}{
		{
			event.LeadMerged{Source: "api", LeadFields: event.LeadFields{Name: "Zubin Mehta"}},
			"zubin mehta\n\n10@example.com",
		},
		{
			event.LeadMerged{Source: "api", LeadFields: event.LeadFields{Phone: "+919876543210"}},
			"asha 11\n+919876543210\n11@example.com",
		},
		{
			event.LeadMerged{Source: "api", LeadFields: event.LeadFields{Temperature: "hot"}},
			"asha 12\n\n12@example.com",
		},
		{event.LeadErased{}, ""},
		{event.LeadJoinedInto{Into: ids[1]}, ""},
	} {
		id := ids[10]
		ids = ids[1:]
		w.Append(t, "acme", event.LeadStream(id), change.fact)
		projectiontest.Await(t, runner)
		require.Equal(t, change.want, text(id))
	}
	require.Empty(t, differences(t, w))

	// One lead by a process whose clock is years behind, and the last lead of all.
	late := arrivedAs(t, w, "acme", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
	last := arrivals(t, w, "acme", projectiontest.Start.Add(time.Hour), 1)[0]
	awaitIndexed(t, w, 750-2+2)
	require.Equal(t, "late\n\n", text(late))
	w.Append(t, "acme", event.LeadStream(last), event.LeadErased{})
	arrivals(t, w, "acme", projectiontest.Start, 1)
	awaitIndexed(t, w, 750)
	require.Empty(t, differences(t, w))
	stop()

	// A lead that is not in the table yet is updated like others.
	batches := w.Runner(t, struct{ projection.Projector }{view.Lead{}})
	next := arrivals(t, w, "acme", projectiontest.Start, 1)[0]
	w.Append(t, "acme", event.LeadStream(next), event.LeadMerged{
		Source: "api", LeadFields: event.LeadFields{Name: "Yash Mehta"},
	})
	stop = projectiontest.Run(t, batches)
	projectiontest.Await(t, batches)
	stop()
	require.Empty(t, text(next))
	require.Empty(t, differences(t, w))
	projectiontest.Run(t, w.Runner(t, view.Lead{}))
	awaitIndexed(t, w, 751)
	require.Contains(t, text(next), "yash mehta")
}

// arrivedAs appends a lead with a given id.
func arrivedAs(t *testing.T, w *projectiontest.World, account, id string) string {
	t.Helper()
	w.Append(t, account, event.LeadStream(id), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "Late", Status: "new"}, Source: "api",
	})
	return id
}

func TestLeadSearch_CompareDetectsDamage(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	ids := arrivals(t, w, "acme", projectiontest.Start, 5)
	stop := projectiontest.Run(t, w.Runner(t, view.Lead{}))
	awaitIndexed(t, w, 5)
	stop()
	pgtest.Exec(t, w.Pool, `
		UPDATE views.lead_search SET search = 'ravi' WHERE lead_id = '`+ids[0]+`';
		UPDATE views.lead_search SET account = 'globex' WHERE lead_id = '`+ids[1]+`';
		DELETE FROM views.lead_search WHERE lead_id = '`+ids[2]+`';
		INSERT INTO views.lead_search VALUES (now(), '00', 'acme', 'ravi')`)
	require.Equal(t, []string{
		"view lead, table lead_search, row 00: is of no lead",
		"view lead, table lead_search, row " + ids[0] + ": does not match its lead",
		"view lead, table lead_search, row " + ids[1] + ": does not match its lead",
		"view lead, table lead_search, row " + ids[2] + ": is missing",
	}, differences(t, w))
}

// A replay replaces the table of leads and the search table, even if a session's state says that all leads were added.
func TestLeadSearch_RebuiltAfterReplay(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	arrivals(t, w, "acme", projectiontest.Start, 600)
	stop := projectiontest.Run(t, w.Runner(t, view.Lead{}))
	awaitIndexed(t, w, 600)
	stop()
	require.NoError(t, w.Replay(view.Lead{}).Run(t.Context()))
	awaitIndexed(t, w, 600)
	runner := w.Runner(t, view.Lead{})
	projectiontest.Run(t, runner)
	awaitIndexed(t, w, 600)
	projectiontest.Await(t, runner)
	for range 2 {
		require.NoError(t, w.Replay(view.Lead{}).Run(t.Context()))
		w.Append(t, "globex", event.AccountStream("globex"), event.AccountConfigured{
			Stages: []string{"new"}, Region: "IN",
		})
		awaitIndexed(t, w, 600)
	}
	require.Empty(t, differences(t, w))
	status, err := runner.Status(t.Context())
	require.NoError(t, err)
	require.Zero(t, status[0].Failures, "that is nothing wrong")
}
