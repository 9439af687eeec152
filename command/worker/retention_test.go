package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// killedKeys is the key store of a process that is killed before it destroys the key of a lead.
type killedKeys struct{ *sealed.Store }

var errKilled = errors.New("killed")

func (k killedKeys) Destroy(context.Context, ...string) error { return errKilled }

// Leads of two accounts were active at different times. Two processes concurrently erase those that are due.
func TestRetention_ErasesDueLeads(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	log, store := slog.New(slog.DiscardHandler), w.Seal(t)
	runner := w.Runner(t)
	projectiontest.Run(t, runner)

	now := projectiontest.Start.AddDate(2, 0, 0)
	names := claim.NewNames(bytes.Repeat([]byte{2}, 32))
	add := func(account, stream string, daysAgo int, data event.Data) {
		t.Helper()
		e := w.NewEvent()
		e.At, e.Metadata.Account, e.Metadata.Actor = now.AddDate(0, 0, -daysAgo), account, "user:ann"
		var err error
		e.Type, e.Data, err = event.Encode(data)
		require.NoError(t, err)
		storetest.AppendNext(t, store, stream, e)
	}
	created := func(account string, daysAgo int, status string, received time.Time) (id string) {
		id = w.NewID()
		add(account, event.LeadStream(id), daysAgo, event.LeadCreated{
			ContactUID: "c", LeadFields: event.LeadFields{Name: "Asha", Status: status, Temperature: "warm"},
			Source:     "api",
			ArrivalRef: event.ArrivalRef{ReceivedAt: received},
		})
		return id
	}
	configure := func(account string, days int, keep ...string) {
		add(account, event.AccountStream(account), 0, event.AccountConfigured{
			Features: []string{}, Stages: []string{"new", "Won", "Kept"}, Region: "IN", RetentionDays: days,
			KeepStages: keep,
		})
	}
	received := now.AddDate(0, 0, -400)
	old, oldest := created("acme", 31, "new", time.Time{}), created("acme", 90, "new", time.Time{})
	imported := created("acme", 1, "new", received)
	fresh, kept := created("acme", 29, "new", time.Time{}), created("acme", 90, "kept", time.Time{})
	arrivedAgain, changed := created("acme", 90, "new", time.Time{}), created("acme", 90, "new", received)
	add("acme", event.LeadStream(arrivedAgain), 20, event.LeadMerged{Source: "website"})
	add("acme", event.LeadStream(changed), 20, event.LeadUpdated{LeadFields: event.LeadFields{Status: "won"}})
	importedAgain := created("acme", 90, "new", time.Time{})
	add("acme", event.LeadStream(importedAgain), 1, event.LeadMerged{
		Source: "csv_import", ArrivalRef: event.ArrivalRef{ReceivedAt: received},
	})
	touched := created("acme", 90, "new", time.Time{})
	endless := created("globex", 600, "new", time.Time{})
	configure("acme", 30, "Kept")
	configure("globex", 0)
	projectiontest.Await(t, runner)

	process := func(keys forget.Keys) Retention {
		return Retention{
			Query: query.New(w.Pool, store, query.WithClock(func() time.Time { return now })), Log: log,
			Now: func() time.Time { return now },
			Handlers: command.NewHandlers(command.Options{
				Store: store, Claims: names, Log: log, Now: func() time.Time { return now },
			}),
			Eraser: forget.Eraser{Keys: keys, Views: forget.Database{Pool: w.Pool, Timeout: time.Minute}},
		}
	}
	r := process(store)
	counted, err := r.Query.Retention(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, query.Retention{
		RetentionDays: 30, DueNow: 5, DueWithin7Days: 6, KeepStages: []string{"Kept"},
	}, counted)
	due, by, err := r.Query.DueLeads(t.Context(), "acme", query.DueLead{}, 10)
	require.NoError(t, err)
	require.Equal(t, []string{imported, oldest, importedAgain, touched, old}, ids(due),
		"those that were inactive for longest first")
	rest, _, err := r.Query.DueLeads(t.Context(), "acme", due[2], 10)
	require.NoError(t, err)
	require.Equal(t, ids(due[3:]), ids(rest))

	// One is touched after it was found.
	add("acme", event.LeadStream(touched), 0, event.LeadMerged{Source: "website"})
	_, err = r.Eraser.EraseLead(t.Context(), r.Handlers.RetentionErasure("acme", by), touched)
	require.ErrorIs(t, err, lead.ErrNotDue)

	// A process is killed within an erasure. The others finish it.
	require.ErrorIs(t, process(killedKeys{store}).runOnce(t.Context()), errKilled)
	projectiontest.Await(t, runner)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() { assert.NoError(t, process(store).runOnce(context.Background())) })
	}
	group.Wait()
	projectiontest.Await(t, runner)
	for _, id := range []string{old, oldest, imported, importedAgain} {
		var last event.Fact
		for recorded, err := range store.Read(t.Context(), event.LeadStream(id), 0) {
			require.NoError(t, err)
			require.Equal(t, !strings.HasPrefix(recorded.Type, "lead.erased"), recorded.Erased, id)
			last, err = recorded.Fact()
			require.NoError(t, err)
		}
		require.IsType(t, event.LeadErased{}, last.Data)
		require.Equal(t, "system:retention", last.Metadata.Actor)
		require.False(t,
			pgtest.Value[bool](t, w.Pool, `SELECT EXISTS (SELECT FROM person.key WHERE stream = $1)`,
				event.LeadStream(id)))
		require.Equal(t, 1,
			pgtest.Value[int](t, w.Pool,
				`SELECT count(*) FROM views.trail WHERE subject = $1 AND type = 'lead.erased'
					AND actor = 'system:retention'`, id))
	}
	for _, id := range []string{fresh, kept, arrivedAgain, changed, touched, endless} {
		require.True(t, pgtest.Value[bool](t, w.Pool, `SELECT EXISTS (SELECT FROM views.lead WHERE lead_id = $1)`, id))
	}
	counted, err = r.Query.Retention(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, query.Retention{RetentionDays: 30, DueWithin7Days: 1, KeepStages: []string{"Kept"}}, counted)
	counted, err = r.Query.Retention(t.Context(), "globex")
	require.NoError(t, err)
	require.Equal(t, query.Retention{KeepStages: []string{"won"}}, counted)
}

func ids(due []query.DueLead) (all []string) {
	for _, one := range due {
		all = append(all, one.LeadID)
	}
	return all
}
