package resubmit_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/resubmit"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	intakeID    = "01KAJ8Q6ZJ0000000000000001"
	otherIntake = "01KAJ8Q6ZJ0000000000000002"
)

type world struct {
	*projectiontest.World
	queue resubmit.Queue
}

func start(t *testing.T) world {
	w := projectiontest.New(t)
	return world{w, resubmit.Queue{Pool: w.Pool, Store: w.Store}}
}

// arrive appends an arrival with its outcome, and returns its id.
func (w world) arrive(t *testing.T, account, intake string, at time.Time, outcome event.Data) string {
	t.Helper()
	id := w.NewID()
	received := event.ArrivalReceived{IntakeID: intake, ReceivedAt: at, ExpiresAt: at.AddDate(0, 0, 30)}
	w.Append(t, account, event.ArrivalStream(id), received, outcome)
	return id
}

func (w world) quarantine(t *testing.T) string {
	t.Helper()
	return w.arrive(t, "acme", intakeID, projectiontest.Start, quarantined)
}

var quarantined = event.ArrivalQuarantined{Reasons: []event.ArrivalReason{{Field: "phone", Message: "is required"}}}

// project updates the view that workers read.
func (w world) project(t *testing.T) {
	t.Helper()
	projectiontest.CatchUp(t, w.Runner(t, view.Arrival{}))
}

func (w world) worker(do func(r resubmit.Request, arrivalID string) error) resubmit.Worker {
	return resubmit.Worker{Queue: w.queue, Log: slog.New(slog.DiscardHandler),
		Resubmit: func(_ context.Context, r resubmit.Request, arrivalID string) error {
			return do(r, arrivalID)
		}}
}

// recording returns a worker, and the arrivals that it has captured again.
func (w world) recording() (resubmit.Worker, *[]string) {
	var done []string
	return w.worker(func(_ resubmit.Request, arrivalID string) error {
		done = append(done, arrivalID)
		return nil
	}), &done
}

func runOnce(t *testing.T, w resubmit.Worker, wants bool) {
	t.Helper()
	worked, err := w.RunOnce(t.Context())
	require.NoError(t, err)
	require.Equal(t, wants, worked)
}

func TestWorker_SelectsQuarantined(t *testing.T) {
	t.Parallel()
	w := start(t)
	since := projectiontest.Start
	until := since.Add(time.Hour)
	first := w.arrive(t, "acme", intakeID, since, quarantined)
	last := w.arrive(t, "acme", intakeID, until.Add(-time.Millisecond), quarantined)
	w.arrive(t, "acme", intakeID, since.Add(-time.Millisecond), quarantined)
	w.arrive(t, "acme", intakeID, until, quarantined)
	w.arrive(t, "acme", otherIntake, since, quarantined)
	w.arrive(t, "globex", intakeID, since, quarantined)
	w.arrive(t, "acme", intakeID, since, event.ArrivalCaptured{LeadID: w.NewID(), EventID: w.NewID()})
	w.arrive(t, "acme", intakeID, since, event.ArrivalDiscarded{Reason: event.DiscardedSkip})
	request := resubmit.Request{
		Account: "acme", IntakeID: intakeID, Since: since, Until: until, Actor: "user:ada", Credential: "jwt:ada",
		RequestID: "r-1",
	}
	require.NoError(t, w.queue.Add(t.Context(), request))
	later := w.arrive(t, "acme", intakeID, since, quarantined)
	w.project(t)

	var done []string
	worker := w.worker(func(r resubmit.Request, arrivalID string) error {
		r.Since, r.Until = r.Since.UTC(), r.Until.UTC()
		require.Equal(t, request, r)
		done = append(done, arrivalID)
		return nil
	})
	finish(t, worker)
	require.Equal(t, []string{first, last}, done, "in the order of the log")
	require.NotContains(t, done, later, "it arrived after the request")
}

func TestWorker_WaitsForView(t *testing.T) {
	t.Parallel()
	w := start(t)
	ids := []string{w.quarantine(t)}
	w.project(t)
	ids = append(ids, w.quarantine(t))
	require.NoError(t, w.queue.Add(t.Context(), resubmit.Request{Account: "acme", IntakeID: intakeID}))
	worker, done := w.recording()
	runOnce(t, worker, false)
	w.project(t)
	finish(t, worker)
	require.Equal(t, ids, *done)
}

// A worker saves its progress after each page, and at a failure.
func TestWorker_ContinuesAfterFailure(t *testing.T) {
	t.Parallel()
	w := start(t)
	const page, all, failing = 10, 25, 14
	for range all {
		w.quarantine(t)
	}
	require.NoError(t, w.queue.Add(t.Context(), resubmit.Request{Account: "acme", IntakeID: intakeID}))
	w.project(t)

	times := map[string]int{}
	failed := errors.New("unavailable")
	fails := true
	worker := w.worker(func(_ resubmit.Request, arrivalID string) error {
		if fails && len(times) == failing {
			return failed
		}
		times[arrivalID]++
		return nil
	})
	runOnce(t, worker, true)
	require.LessOrEqual(t, len(times), page)
	var err error
	for err == nil {
		_, err = worker.RunOnce(t.Context())
	}
	require.ErrorIs(t, err, failed)
	require.Equal(t, resubmit.Progress{IntakeID: intakeID, Arrivals: failing}, w.progress(t)[0])

	fails = false
	finish(t, worker)
	require.Len(t, times, all)
	for id, n := range times {
		require.Equal(t, 1, n, id)
	}
	latest, err := w.queue.Latest(t.Context(), "acme", 1)
	require.NoError(t, err)
	require.EqualValues(t, all, latest[0].Arrivals)
	require.False(t, latest[0].FinishedAt.IsZero())
}

// finish processes all requests.
func finish(t *testing.T, w resubmit.Worker) {
	t.Helper()
	for worked := true; worked; {
		var err error
		worked, err = w.RunOnce(t.Context())
		require.NoError(t, err)
	}
}

// Accounts take turns, however many requests each has.
func TestWorker_TurnOfEachAccount(t *testing.T) {
	t.Parallel()
	w := start(t)
	for range 30 {
		w.quarantine(t)
		w.arrive(t, "acme", otherIntake, projectiontest.Start, quarantined)
	}
	single := w.arrive(t, "globex", intakeID, projectiontest.Start, quarantined)
	for _, r := range []resubmit.Request{
		{Account: "acme", IntakeID: intakeID}, {Account: "acme", IntakeID: otherIntake},
		{Account: "globex", IntakeID: intakeID},
	} {
		require.NoError(t, w.queue.Add(t.Context(), r))
	}
	w.project(t)
	worker, done := w.recording()
	runOnce(t, worker, true)
	require.NotContains(t, *done, single)
	runOnce(t, worker, true)
	require.Contains(t, *done, single)
	finish(t, worker)
	require.Len(t, *done, 61)
}

// No transaction is open while arrivals are captured: their mappings may take long.
func TestWorker_HoldsNoTransaction(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.quarantine(t)
	require.NoError(t, w.queue.Add(t.Context(), resubmit.Request{Account: "acme", IntakeID: intakeID}))
	w.project(t)
	worker := w.worker(func(resubmit.Request, string) error {
		require.Zero(t, w.Pool.Stat().AcquiredConns())
		return nil
	})
	finish(t, worker)
	require.EqualValues(t, 1, w.progress(t)[0].Arrivals)
}

// A repeated request begins again, because the mapping may have changed, and is one request.
func TestQueue_ReplacesDuplicate(t *testing.T) {
	t.Parallel()
	w := start(t)
	ids := []string{w.quarantine(t)}
	request := resubmit.Request{Account: "acme", IntakeID: intakeID, Since: projectiontest.Start, Actor: "user:ada"}
	w.project(t)
	require.NoError(t, w.queue.Add(t.Context(), request))
	again := request
	again.Actor = "user:ben"
	var done []string
	worker := w.worker(func(_ resubmit.Request, arrivalID string) error {
		if done = append(done, arrivalID); len(done) == 1 {
			ids = append(ids, w.quarantine(t))
			require.NoError(t, w.queue.Add(t.Context(), again), "while it is processed")
		}
		return nil
	})
	runOnce(t, worker, true)
	require.Equal(t, []resubmit.Progress{{IntakeID: intakeID, Actor: "user:ben"}}, w.progress(t))
	w.project(t)
	finish(t, worker)
	require.Equal(t, append(ids[:1:1], ids...), done)

	require.NoError(t, w.queue.Add(t.Context(), request), "the finished one stays")
	other := request
	other.Until = projectiontest.Start.Add(time.Hour)
	require.NoError(t, w.queue.Add(t.Context(), other))
	require.Len(t, w.progress(t), 3)
}

// progress returns the account's requests without their times.
func (w world) progress(t *testing.T) []resubmit.Progress {
	t.Helper()
	latest, err := w.queue.Latest(t.Context(), "acme", 10)
	require.NoError(t, err)
	for i := range latest {
		latest[i].At = time.Time{}
	}
	return latest
}

func TestWorker_ConcurrentWorkersTakeOtherAccounts(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.quarantine(t)
	w.arrive(t, "acme", otherIntake, projectiontest.Start, quarantined)
	w.arrive(t, "globex", intakeID, projectiontest.Start, quarantined)
	for _, r := range []resubmit.Request{
		{Account: "acme", IntakeID: intakeID}, {Account: "acme", IntakeID: otherIntake},
		{Account: "globex", IntakeID: intakeID},
	} {
		require.NoError(t, w.queue.Add(t.Context(), r))
	}
	w.project(t)

	started, released, ended := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	slow := w.worker(func(r resubmit.Request, _ string) error {
		started <- r.Account
		<-released
		return nil
	})
	go func() {
		_, err := slow.RunOnce(t.Context())
		ended <- err
	}()
	require.Equal(t, "acme", <-started)
	var took []string
	quick := w.worker(func(r resubmit.Request, _ string) error {
		took = append(took, r.Account)
		return nil
	})
	for _, wants := range []bool{true, false} {
		ctx, cancel := context.WithTimeout(t.Context(), projectiontest.Soon)
		worked, err := quick.RunOnce(ctx) // does not wait for the slow worker
		cancel()
		require.NoError(t, err)
		require.Equal(t, wants, worked)
	}
	close(released)
	require.NoError(t, <-ended)
	runOnce(t, quick, true)
	require.Equal(t, []string{"globex", "acme"}, took)
	runOnce(t, quick, false)
}

func TestQueue_LatestOfAccount(t *testing.T) {
	t.Parallel()
	w := start(t)
	for _, r := range []resubmit.Request{
		{Account: "acme", IntakeID: "oldest"}, {Account: "acme", IntakeID: "older", Actor: "user:ada"},
		{Account: "globex", IntakeID: "other"},
		{Account: "acme", IntakeID: "newest"},
	} {
		require.NoError(t, w.queue.Add(t.Context(), r))
	}
	latest, err := w.queue.Latest(t.Context(), "acme", 2)
	require.NoError(t, err)
	require.Len(t, latest, 2)
	require.Equal(t, []string{"newest", "older"}, []string{latest[0].IntakeID, latest[1].IntakeID})
	require.Equal(t, "user:ada", latest[1].Actor)
	require.WithinDuration(t, time.Now(), latest[0].At, projectiontest.Soon)
	require.Zero(t, latest[0].FinishedAt)
}
