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

// watcher returns the IntakeWatch of a process with a fixed clock.
func watcher(w *projectiontest.World, now time.Time) *IntakeWatch {
	clock := func() time.Time { return now }
	log := slog.New(slog.DiscardHandler)
	return &IntakeWatch{
		Query:    query.New(w.Pool, w.Store, query.WithClock(clock)),
		Handlers: command.NewHandlers(command.Options{Store: w.Store, Log: log, Now: clock}),
		Store:    w.Store, Log: log, Now: clock,
	}
}

func TestIntakeWatch_SilenceReportedOnce(t *testing.T) {
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

func TestIntakeWatch_FailureReportedOnce(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	now := projectiontest.Start.Add(3 * time.Hour)
	intakeID := w.NewID()
	w.Append(t, "acme", event.IntakeStream(intakeID), event.IntakeCreated{
		IntakeSettings: event.IntakeSettings{Name: "Site", Kind: "form", Source: "website", Enabled: true}, Slot: 1,
	})
	arrive := func(reasons ...event.ArrivalReason) string {
		stream := event.ArrivalStream(w.NewID())
		received := event.ArrivalReceived{IntakeID: intakeID, ReceivedAt: now, ExpiresAt: now.Add(time.Hour)}
		if len(reasons) > 0 {
			w.Append(t, "acme", stream, received, event.ArrivalQuarantined{IntakeID: intakeID, Reasons: reasons})
		} else {
			w.Append(t, "acme", stream, received, event.ArrivalCaptured{LeadID: w.NewID()})
		}
		return event.ArrivalID(stream)
	}
	check := func(want ...string) {
		t.Helper()
		for range 3 { // processes, one after the other
			w.Project(t)
			require.NoError(t, watcher(w, now).runOnce(t.Context()))
		}
		w.Project(t)
		types := []string{}
		for r, err := range w.Store.Read(t.Context(), event.IntakeStream(intakeID), 1) {
			require.NoError(t, err)
			require.Equal(t, "acme", r.Metadata.Account)
			types = append(types, event.PublicName(r.Type))
		}
		require.Equal(t, append([]string{}, want...), types)
	}
	missing := event.ArrivalReason{Field: "phone", Message: "or email is required"}
	paused := event.ArrivalReason{Field: "intake", Message: "was paused when it arrived"}
	arrive(missing)
	arrive(missing)
	arrive(paused)
	check()
	last := arrive(missing)
	check("intake.failing")

	process := watcher(w, now)
	require.NoError(t, process.runOnce(t.Context()))
	require.EqualValues(t, 1, process.Failing())
	record, err := process.Query.Intake(t.Context(), "acme", intakeID)
	require.NoError(t, err)
	require.Equal(t, "failing", record.State)
	require.Equal(t, "phone or email is required", record.LastError)
	require.Equal(t, last, record.LastFailedID)
	require.False(t, time.Time(record.FailingSince).IsZero())

	arrive(missing)
	check("intake.failing")
	arrive()
	arrive()
	check("intake.failing", "intake.recovered")
	record, err = process.Query.Intake(t.Context(), "acme", intakeID)
	require.NoError(t, err)
	require.Equal(t, []string{"active", "", ""}, []string{record.State, record.LastError, record.LastFailedID})
	require.True(t, time.Time(record.FailingSince).IsZero())
	for range 3 {
		arrive(missing)
	}
	check("intake.failing", "intake.recovered", "intake.failing")
}
