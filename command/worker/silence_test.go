package worker

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/query"
)

// watcher returns the Silence of a process with a fixed clock.
func watcher(w *projectiontest.World, now time.Time) *Silence {
	clock := func() time.Time { return now }
	log := slog.New(slog.DiscardHandler)
	return &Silence{
		Query:    query.New(w.Pool, w.Store, query.WithClock(clock)),
		Handlers: command.NewHandlers(command.Options{Store: w.Store, Log: log, Now: clock}),
		Store:    w.Store, Log: log, Now: clock,
	}
}

func TestSilence_ReportedOnce(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	create := func(expect string, events ...event.Data) string {
		id := w.NewID()
		settings := event.IntakeSettings{Name: id, Kind: "form", Source: "website", Enabled: true, ExpectEvery: expect}
		w.Append(t, "acme", event.IntakeStream(id),
			append([]event.Data{event.IntakeCreated{IntakeSettings: settings, Slot: 1}}, events...)...)
		return id
	}
	arrive := func(intakeID string, at time.Time) {
		w.Append(t, "acme", event.ArrivalStream(w.NewID()), event.ArrivalReceived{
			IntakeID: intakeID, ReceivedAt: at, ExpiresAt: at.Add(time.Hour),
		},
			event.ArrivalDiscarded{Reason: event.DiscardedTest})
	}
	reported := func(ids ...string) (all [][]string) {
		for _, id := range ids {
			types := []string{}
			for r, err := range w.Store.Read(t.Context(), event.IntakeStream(id), 1) {
				require.NoError(t, err)
				require.Equal(t, "acme", r.Metadata.Account)
				types = append(types, event.PublicName(r.Type))
			}
			all = append(all, types)
		}
		return all
	}
	quiet, busy, unmonitored := create("1h"), create("1h"), create("")
	deletedIntake := create("1h", event.IntakeDeleted{})
	now := projectiontest.Start.Add(3 * time.Hour)
	arrive(quiet, now.Add(-time.Hour))
	arrive(busy, now.Add(-59*time.Minute))
	w.Project(t)

	runOnce := func(now time.Time) {
		var group sync.WaitGroup
		for range 4 {
			process := watcher(w, now)
			group.Go(func() {
				for range 2 { // the view may not have the first report
					_ = process.runOnce(t.Context())
				}
			})
		}
		group.Wait()
		w.Project(t)
		assert.NoError(t, watcher(w, now).runOnce(t.Context()))
	}
	runOnce(now)
	deleted := []string{"intake.deleted"}
	require.Equal(t, [][]string{{"intake.silent"}, {}, {}, deleted}, reported(quiet, busy, unmonitored, deletedIntake))
	process := watcher(w, now)
	require.NoError(t, process.runOnce(t.Context()))
	require.EqualValues(t, 1, process.Silent())
	record, err := process.Query.Intake(t.Context(), "acme", quiet)
	require.NoError(t, err)
	require.Equal(t, "silent", record.State)
	require.WithinDuration(t, now.Add(-time.Hour), time.Time(record.LastArrivalAt), 0)

	arrive(quiet, now.Add(time.Minute))
	w.Project(t)
	runOnce(now.Add(2 * time.Minute))
	require.Equal(t, [][]string{{"intake.silent", "intake.resumed"}, {"intake.silent"}, {}, deleted},
		reported(quiet, busy, unmonitored, deletedIntake))
	runOnce(now.Add(2 * time.Hour))
	require.Equal(t, [][]string{{"intake.silent", "intake.resumed", "intake.silent"}, {"intake.silent"}, {}, deleted},
		reported(quiet, busy, unmonitored, deletedIntake))
}
