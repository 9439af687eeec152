package projection_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
)

// searchRows are the rows of lead_search in a schema, by lead.
func searchRows(t *testing.T, w *projectiontest.World, place string) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, row := range pgtest.Rows[[]string](t, w.Pool, `SELECT ARRAY[lead_id, account, search] FROM `+place+`.lead_search`) {
		rows[row[0]] = row[1] + " " + row[2]
	}
	return rows
}

func TestLeadSearch_RowIsFoldOfStream(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	history := w.WriteHistory(t, 21, 700)
	for _, ids := range history.Leads {
		w.Append(t, history.Accounts[0], event.LeadStream(ids[0]), event.LeadErased{})
	}
	runner := w.Runner(t, projection.LeadSearch{})
	runner.Batches(7) // many leads change in a later batch than they are created in
	projectiontest.CatchUp(t, runner)
	want := map[string]string{}
	for account, ids := range history.Leads {
		for _, id := range ids[1:] {
			s, _, err := eventstore.Load(t.Context(), w.Store, event.LeadStream(id), lead.Evolve)
			require.NoError(t, err)
			want[id] = account + " " + schema.SearchText(s.Name+"\n"+s.Phone+"\n"+s.Email)
		}
	}
	require.Equal(t, want, searchRows(t, w, "views"))
}

// An erasure removes the row from the view, and from copies of it.
func TestLeadSearch_ErasureRemovesRow(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	var ids []string
	for n := range 2 {
		ids = append(ids, w.NewID())
		w.Append(t, "acme", event.LeadStream(ids[n]), event.LeadCreated{Name: fmt.Sprint("Asha ", n), Status: "new", Source: "api"})
	}
	runner := w.Runner(t)
	stop := projectiontest.Run(t, runner)
	projectiontest.Await(t, runner)
	copied := replay(w, projection.LeadSearch{})
	copied.Into = "copy"
	require.NoError(t, copied.Run(t.Context()))
	require.Len(t, searchRows(t, w, "copy"), 2)

	w.Append(t, "acme", event.LeadStream(ids[0]), event.LeadErased{})
	projectiontest.Await(t, runner)
	stop()
	require.Equal(t, map[string]string{ids[1]: "acme asha 1\n\n"}, searchRows(t, w, "views"))

	gone, there := projection.Forgotten{Leads: ids[:1]}, false
	require.NoError(t, pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) (err error) {
		if there, err = projection.InCopies(t.Context(), tx, gone); err != nil {
			return err
		}
		return projection.ForgetInCopies(t.Context(), tx, gone)
	}))
	require.True(t, there)
	require.Equal(t, searchRows(t, w, "views"), searchRows(t, w, "copy"))
}

// A failure of one leaves the other as it was: no capture waits for the search index.
func TestLeadSearch_LagsAlone(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	pgtest.Exec(t, w.Pool, `ALTER TABLE views.lead_search RENAME TO away`)
	id := w.NewID()
	w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{Name: "Asha", Status: "new", Source: "api"})
	search := hastened(t, w, projection.LeadSearch{})
	projectiontest.Run(t, search)
	require.Eventually(t, func() bool {
		status, err := search.Status(t.Context())
		return err == nil && status[0].State == projection.Failed && status[0].Lag > 0
	}, projectiontest.Soon, projectiontest.Soon/10_000)
	projectiontest.CatchUp(t, w.Runner(t, projection.LeadView{}))

	pgtest.Exec(t, w.Pool, `ALTER TABLE views.away RENAME TO lead_search`)
	projectiontest.Await(t, search)
	require.Equal(t, map[string]string{id: "acme asha\n\n"}, searchRows(t, w, "views"))
}
