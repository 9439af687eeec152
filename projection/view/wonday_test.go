package view_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// deals appends leads on several days that are won, lost, changed in value, joined and erased.
func deals(t *testing.T, w *projectiontest.World, seed uint64, steps int) {
	t.Helper()
	var leads []string // not erased or joined
	random := rand.New(rand.NewPCG(seed, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	value := func() string { return pick("", "0", "1200.50", "7.1", "-0", "99999999999.9999") }
	begun := map[string]time.Time{}
	put := func(id string, facts ...event.Data) {
		for i, fact := range facts {
			e := w.NewEvent()
			e.At = begun[id].Add(time.Duration(i) * time.Millisecond)
			var err error
			e.Type, e.Data, err = event.Encode(fact)
			require.NoError(t, err)
			e.Metadata.Account = "acme"
			_, err = w.Store.Append(t.Context(), eventstore.Write{
				Stream: event.LeadStream(id), Expect: eventstore.Any, Events: []eventstore.Event{e},
			})
			require.NoError(t, err)
		}
	}
	for range steps {
		n := random.IntN(100)
		if len(leads) < 3 || n < 30 {
			id := w.NewID()
			begun[id] = projectiontest.Start.Add(time.Duration(random.IntN(72)) * time.Hour)
			put(id, event.LeadCreated{
				ContactUID: w.NewID(),
				LeadFields: event.LeadFields{
					Name: "N", Status: pick("new", "won", "Won"), OpportunityID: "O", OpportunityValue: value(),
				}, Source: pick("api", "website"),
			})
			leads = append(leads, id)
			continue
		}
		i := random.IntN(len(leads))
		id := leads[i]
		switch {
		case n < 80:
			put(id, event.LeadMerged{
				Source: "chatbot",
				LeadFields: event.LeadFields{
					Status: pick("", "lost", "won"), OpportunityID: "O", OpportunityValue: value(),
				},
			})
		case n < 90:
			leads = append(leads[:i:i], leads[i+1:]...)
			into := leads[random.IntN(len(leads))]
			from := foldLead(t, w, id)
			source, joined, err := foldLead(t, w, into).Join(from.Account, from)
			require.NoError(t, err)
			put(id, source)
			put(into, joined)
		default:
			leads = append(leads[:i:i], leads[i+1:]...)
			put(id, event.LeadErased{})
		}
	}
}

func foldLead(t *testing.T, w *projectiontest.World, id string) lead.State {
	t.Helper()
	state, _, err := eventstore.Load(t.Context(), w.Store, event.LeadStream(id), lead.Evolve)
	require.NoError(t, err)
	return state
}

// counted returns the totals of the won leads of a schema, computed from their states.
func counted(t *testing.T, w *projectiontest.World, schema string) []string {
	t.Helper()
	return pgtest.Rows[string](t, w.Pool, `
		SELECT format('(%s,%s,%s,%s,%s)', account, (created_at AT TIME ZONE 'UTC')::date, source, count(*),
		              trim_scale(sum(coalesce(nullif(state ->> 'opportunityValue', '')::numeric, 0))))
		  FROM `+schema+`.lead WHERE lower(state ->> 'status') = 'won'
		 GROUP BY account, (created_at AT TIME ZONE 'UTC')::date, source
		 ORDER BY account, (created_at AT TIME ZONE 'UTC')::date, source`)
}

func TestWonDay_SumsWonLeads(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	for seed := range uint64(4) {
		deals(t, w, seed, 120)
		projectiontest.CatchUp(t, w.RunnerOf(t, []int{1, 2, 7, 100}[seed], view.Lead{}))
		require.Greater(t, len(counted(t, w, "views")), 2)
		require.Equal(t, counted(t, w, "views"), w.DumpTable(t, "views", "won_day"))
	}
	require.NoError(t, w.Replay(view.Lead{}).Run(t.Context()))
	require.Equal(t, counted(t, w, "views"), w.DumpTable(t, "views", "won_day"))
}

func TestWonDay_NoRowForZeroLeads(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	for i, after := range []event.Data{
		event.LeadMerged{LeadFields: event.LeadFields{Status: "lost"}}, event.LeadErased{},
		event.LeadJoinedInto{Into: w.NewID()},
	} {
		id := w.NewID()
		w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
			LeadFields: event.LeadFields{Name: "N", Status: "won", OpportunityValue: "1.50"}, Source: "api",
		})
		w.Project(t)
		require.Equal(t, []string{"(acme,2026-03-01,api,1,1.5)"}, w.DumpTable(t, "views", "won_day"), i)
		w.Append(t, "acme", event.LeadStream(id), after)
		w.Project(t)
		require.Empty(t, w.DumpTable(t, "views", "won_day"), i)
	}
}

// The rows of an erased person are deleted from copies, including a copy that a replay is building. When the replay
// reaches the erasure, no row has the value.
func TestWonDay_ForgottenInCopies(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	var won []string
	for n := range 4 {
		won = append(won, w.NewID())
		w.Append(t, "acme", event.LeadStream(won[n]), event.LeadCreated{
			LeadFields: event.LeadFields{Name: "N", Status: "won", OpportunityValue: fmt.Sprint(n, ".5")},
			Source:     "api",
		})
	}
	busy := w.NewID()
	w.Append(t, "acme", event.LeadStream(busy), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "N", Status: "new"}, Source: "api",
	})
	for range 5 { // several batches
		var facts []event.Data
		for range 1000 {
			facts = append(facts, event.LeadMerged{Source: "website"})
		}
		w.Append(t, "acme", event.LeadStream(busy), facts...)
	}
	w.Append(t, "acme", event.LeadStream(won[1]), event.LeadErased{})
	w.Project(t)
	want := w.DumpTable(t, "views", "won_day")
	require.Equal(t, []string{"(acme,2026-03-01,api,3,6.5)"}, want)

	ctx, cancel := context.WithCancel(t.Context())
	r := w.Replay(view.Lead{})
	r.Progress = func(done, end eventstore.Position) {
		if done > 0 && done < end {
			cancel()
		}
	}
	require.ErrorIs(t, r.Run(ctx), context.Canceled)
	require.Equal(t, []string{"(acme,2026-03-01,api,4,8)"}, w.DumpTable(t, "replay_lead", "won_day"))
	asOf := w.Replay(view.Lead{})
	asOf.Into, asOf.Until = "before", projection.Until{Position: 4}
	require.NoError(t, asOf.Run(t.Context()))

	for range 2 { // the second call changes nothing
		require.NoError(t, pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
			return projection.DeleteFromCopies(t.Context(), tx, projection.Forgotten{Leads: []string{won[1]}})
		}))
		for _, namespace := range []string{"replay_lead", "before"} {
			require.Equal(t, counted(t, w, namespace), w.DumpTable(t, namespace, "won_day"), namespace)
		}
	}
	require.NoError(t, w.Replay(view.Lead{}).Run(t.Context()))
	require.Equal(t, want, w.DumpTable(t, "views", "won_day"))
}
