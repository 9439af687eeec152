package projection_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

// witness is a projector that records each event. Its table has no key, so an event that is applied twice has two rows.
type witness struct {
	version int
	refuse  atomic.Uint64 // position of the event that fails
}

var errRefused = errors.New("this event is refused")

func (*witness) Name() string     { return "witness" }
func (w *witness) Version() int   { return w.version }
func (*witness) Tables() []string { return []string{"witness"} }
func (*witness) Filter() eventstore.Filter {
	return eventstore.Filter{StreamPrefixes: []string{event.AccountPrefix}}
}

func (w *witness) Apply(ctx context.Context, tx pgx.Tx, batch []projection.Event) error {
	for _, e := range batch {
		if uint64(e.Position) == w.refuse.Load() {
			return errRefused
		}
		if _, err := tx.Exec(ctx, `INSERT INTO witness VALUES ($1)`, int64(e.Position)); err != nil {
			return err
		}
	}
	return nil
}

func newWorld(t *testing.T) *projectiontest.World {
	t.Helper()
	w := projectiontest.New(t)
	pgtest.Exec(t, w.Pool, `CREATE TABLE views.witness (position bigint NOT NULL)`)
	return w
}

func configure(t *testing.T, w *projectiontest.World, times int) (last eventstore.Position) {
	t.Helper()
	for range times {
		last = w.Append(t, "acme", event.AccountStream("acme"), event.AccountConfigured{
			Stages: []string{"new"}, Region: "IN",
		})
	}
	return last
}

func witnessed(t *testing.T, w *projectiontest.World) []int64 {
	t.Helper()
	return pgtest.Rows[int64](t, w.Pool, `SELECT position FROM views.witness ORDER BY position, ctid`)
}

// upTo returns the rows of a witness of a log that only has its events: every position once.
func upTo(last eventstore.Position) []int64 {
	all := make([]int64, last)
	for i := range all {
		all[i] = int64(i + 1)
	}
	return all
}

func hastened(t *testing.T, w *projectiontest.World, projectors ...projection.Projector) *projection.Runner {
	t.Helper()
	runner := w.Runner(t, projectors...)
	runner.ShortenIntervals()
	return runner
}

func status(t *testing.T, runner *projection.Runner) projection.Status {
	t.Helper()
	all, err := runner.Status(t.Context())
	require.NoError(t, err)
	return all[0]
}

func eventually(t *testing.T, runner *projection.Runner, what string, holds func(projection.Status) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		all, err := runner.Status(t.Context())
		return err == nil && holds(all[0])
	}, projectiontest.Soon, 2*time.Millisecond, what)
}

func TestRunner_StandbyTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, second := hastened(t, w, &witness{}), hastened(t, w, &witness{})
	stopFirst := projectiontest.Run(t, first)
	eventually(t, first, "the first runs", func(s projection.Status) bool { return s.State == projection.Running })
	projectiontest.Run(t, second)

	last := configure(t, w, 20)
	projectiontest.Await(t, first)
	eventually(t, second, "the second watches", func(s projection.Status) bool {
		return s.State == projection.Standby && s.Position == last && s.Lag == 0
	})
	require.Equal(t, upTo(last), witnessed(t, w))

	stopFirst()
	last = configure(t, w, 20)
	eventually(t, second, "the second takes over", func(s projection.Status) bool {
		return s.State == projection.Running && s.Position == last
	})
	require.Equal(t, upTo(last), witnessed(t, w))
}

func TestRunner_KilledSessions(t *testing.T) {
	t.Parallel()
	for name, sessions := range map[string][]string{
		"all":    {"leadlog projectors", "leadlog leases"},
		"leases": {"leadlog leases"}, // two runners write until one detects the loss
		"pool":   {"leadlog projectors"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			runners := []*projection.Runner{w.RunnerOf(t, 7, &witness{}), w.RunnerOf(t, 7, &witness{})}
			for _, runner := range runners {
				runner.ShortenIntervals()
				projectiontest.Run(t, runner)
			}
			var last eventstore.Position
			for range 12 {
				require.Eventually(t, func() bool {
					last = configure(t, w, 10)
					tag, err := w.Pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
						WHERE datname = current_database() AND application_name ~ ANY ($1)`, sessions)
					return err == nil && tag.RowsAffected() > 0
				}, projectiontest.Soon, 5*time.Millisecond)
			}
			for _, runner := range runners {
				projectiontest.Await(t, runner)
			}
			require.Equal(t, upTo(last), witnessed(t, w))
		})
	}
}

func TestRunner_FailureStopsOneProjector(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failing := &witness{}
	failing.refuse.Store(33)
	runner := hastened(t, w, failing, view.Account{})
	last := configure(t, w, 60)
	projectiontest.Run(t, runner)

	eventually(t, runner,
		"everything before the event is applied, and the error names it", func(s projection.Status) bool {
			return s.State == projection.Failed && s.Position == 32 && s.Failures > 5 && errors.Is(s.Err, errRefused) &&
				s.Err.Error() == "events at positions 33 to 33: this event is refused"
		})
	require.Eventually(t, func() bool {
		all, err := runner.Status(t.Context())
		return err == nil && all[1].State == projection.Running && all[1].Position == last
	}, projectiontest.Soon, 2*time.Millisecond, "the other projector goes on")
	require.Equal(t, upTo(32), witnessed(t, w))
	require.EqualValues(t, last-32, status(t, runner).Lag)

	failing.refuse.Store(0)
	projectiontest.Await(t, runner)
	require.Equal(t, projection.Running, status(t, runner).State)
	require.Equal(t, upTo(last), witnessed(t, w))
}

// Views that keep up share a transaction: their checkpoints are written by the same one.
func TestRunner_SharedTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failing := &witness{}
	runner := hastened(t, w, failing, view.Account{}, view.Token{})
	projectiontest.Run(t, runner)
	transactions := func(projectors ...string) int64 {
		return pgtest.Value[int64](t, w.Pool, `SELECT count(DISTINCT xmin::text) FROM views.checkpoint
			WHERE projector = ANY ($1)`, projectors)
	}
	shared := func(projectors ...string) {
		require.Eventually(t, func() bool {
			configure(t, w, 1)
			projectiontest.Await(t, runner)
			return transactions(projectors...) == 1
		}, projectiontest.Soon, time.Millisecond)
	}
	shared("witness", schema.Account)

	next := uint64(configure(t, w, 1)) + 1
	projectiontest.Await(t, runner)
	failing.refuse.Store(next)
	last := configure(t, w, 20)
	eventually(t, runner, "it is applied up to the event that fails", func(s projection.Status) bool {
		return s.State == projection.Failed && uint64(s.Position) == next-1 && s.Failures > 3
	})
	require.Eventually(t, func() bool {
		all, err := runner.Status(t.Context())
		return err == nil && all[1].State == projection.Running && all[1].Position == last && all[2].Position == last
	}, projectiontest.Soon, time.Millisecond, "the others go on")
	failing.refuse.Store(0)
	shared("witness", schema.Account)
	projectiontest.Await(t, runner)
	head, err := w.Store.Head(t.Context())
	require.NoError(t, err)
	require.Equal(t, upTo(head), witnessed(t, w))
}

// A replay locks the checkpoint while it replaces a view.
func TestRunner_LockedCheckpointDelaysOneView(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runner := hastened(t, w, &witness{}, view.Account{})
	projectiontest.Run(t, runner)
	for range 20 {
		configure(t, w, 1)
		projectiontest.Await(t, runner)
	}
	tx, err := w.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `SELECT FROM views.checkpoint WHERE projector = 'witness' FOR UPDATE`)
	require.NoError(t, err)
	last := configure(t, w, 1)
	require.Eventually(t, func() bool {
		all, err := runner.Status(t.Context())
		return err == nil && all[1].Position == last
	}, projectiontest.Soon, time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	projectiontest.Await(t, runner)
	require.Equal(t, upTo(last), witnessed(t, w))
}

func TestRunner_StaleViewIsUntouched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  string
		version int
		err     error
	}{
		"of another log":     {`UPDATE views.checkpoint SET epoch = 'other'`, 1, projection.ErrForeignLog},
		"ahead of the log":   {`UPDATE views.checkpoint SET position = 1000000`, 1, projection.ErrAheadOfLog},
		"of a log restored":  {`UPDATE views.checkpoint SET seen_event = 'other'`, 1, projection.ErrAheadOfLog},
		"of another version": {`UPDATE views.checkpoint SET version = 1`, 2, projection.ErrReplayDue},
		"of a newer version": {`UPDATE views.checkpoint SET version = 3`, 2, projection.ErrReplayDue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before := configure(t, w, 5)
			runner := hastened(t, w, &witness{version: c.version})
			projectiontest.CatchUp(t, runner)
			pgtest.Exec(t, w.Pool, c.change)

			configure(t, w, 5)
			runner = hastened(t, w, &witness{version: c.version})
			runner.DisableRetries() // a stale view is retried without the backoff
			projectiontest.Run(t, runner)
			var stopped error // the state is Standby for a moment at each retry
			eventually(t, runner, "it stops, however often it looks again", func(s projection.Status) bool {
				stopped = s.Err
				return s.State == projection.Stale && errors.Is(s.Err, c.err) && s.Failures > 3
			})
			require.ErrorContains(t, stopped, "leadlog replay", "a hint at what to do")
			require.Equal(t, upTo(before), witnessed(t, w))
		})
	}
}

// lossy is a log like one in EventStoreDB that was restored from a backup and has grown since: no event begins at the
// position of a checkpoint of the lost part.
type lossy struct{ eventstore.Store }

func (l lossy) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	if after == 0 {
		return l.Store.Subscribe(ctx, after, filter)
	}
	return func(yield func(eventstore.Page, error) bool) { yield(eventstore.Page{}, eventstore.ErrUnknownPosition) }
}

func TestRunner_LostPositionIsStale(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	configure(t, w, 5)
	projectiontest.CatchUp(t, hastened(t, w, view.Account{}))
	configure(t, w, 5)
	w.Store = lossy{w.Store}
	compared, err := w.Replay(view.Account{}).Compare(t.Context(), 5)
	require.NoError(t, err)
	require.ErrorIs(t, compared[0].Err, projection.ErrAheadOfLog)
	require.NotErrorIs(t, compared[0].Err, projection.ErrStopped)

	runner := hastened(t, w, view.Account{})
	projectiontest.Run(t, runner)
	eventually(t, runner, "it stops", func(s projection.Status) bool {
		return s.State == projection.Stale && errors.Is(s.Err, projection.ErrAheadOfLog)
	})
}

func TestCheckpoint_MovesOverUnselectedEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runner := hastened(t, w, &witness{})
	projectiontest.Run(t, runner)
	configure(t, w, 1)
	var last eventstore.Position
	for range 30 {
		id := w.NewID()
		last = w.Append(t, "acme", event.ClaimPrefix+id, event.ClaimTaken{Kind: "phone", Holder: id})
	}
	projectiontest.Await(t, runner)
	position := pgtest.Value[int64](t, w.Pool, `SELECT position FROM views.checkpoint`)
	require.EqualValues(t, last, position)
	require.Equal(t, upTo(1), witnessed(t, w))
}

func TestRunner_CheckpointSetBack(t *testing.T) {
	t.Parallel()
	for _, done := range []string{
		`TRUNCATE views.witness, views.checkpoint`,
		`BEGIN; DELETE FROM views.witness WHERE position > 5; UPDATE views.checkpoint SET position = 5; COMMIT`,
	} {
		w := newWorld(t)
		runner := hastened(t, w, &witness{})
		projectiontest.Run(t, runner)
		configure(t, w, 10)
		projectiontest.Await(t, runner)
		pgtest.Exec(t, w.Pool, done)
		last := configure(t, w, 10)
		projectiontest.Await(t, runner)
		require.Equal(t, upTo(last), witnessed(t, w), done)
	}
}

func TestRunner_StopsAtUnknownEvent(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	runner := hastened(t, w, view.Lead{})
	projectiontest.Run(t, runner)
	id := w.NewID()
	known := w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "A", Status: "new"}, Source: "api",
	})
	unknown := w.NewEvent()
	unknown.Type, unknown.Data = "lead.invented.v1", []byte(`{}`)
	_, err := w.Store.Append(t.Context(), eventstore.Write{
		Stream: event.LeadStream(id), Expect: eventstore.Any, Events: []eventstore.Event{unknown},
	})
	require.NoError(t, err)
	eventually(t, runner, "it stops before the event", func(s projection.Status) bool {
		return s.State == projection.Failed && s.Position == known && errors.Is(s.Err, event.ErrUnknownType)
	})
}

func TestRunner_RejectsMissingEvent(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	lead, token := w.NewID(), w.NewID()
	w.Append(t, "acme", event.LeadStream(lead), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "A", Status: "new"}, Source: "api",
	})
	w.Append(t, "acme", event.TokenStream(token), event.TokenCreated{Name: "A", ExpiresAt: projectiontest.Start})
	projectiontest.CatchUp(t, w.Runner(t, view.Lead{}, view.Token{}))
	pgtest.Exec(t, w.Pool, `TRUNCATE views.lead, views.token`)
	w.Append(t, "acme", event.LeadStream(lead), event.LeadMerged{Source: "api"})
	w.Append(t, "acme", event.TokenStream(token), event.TokenDeleted{})
	for _, p := range []projection.Projector{view.Lead{}, view.Token{}} {
		runner := hastened(t, w, p)
		projectiontest.Run(t, runner)
		eventually(t, runner, p.Name(), func(s projection.Status) bool {
			return s.State == projection.Failed && s.Failures > 1
		})
		require.ErrorContains(t, status(t, runner).Err, "does not have every event")
	}
}

func TestRunner_DatabaseUnavailable(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	runner, err := projection.New(projection.Options{
		URL: "postgres://nobody@127.0.0.1:1/none", Store: w.Store, Projectors: []projection.Projector{view.Account{}},
	})
	require.NoError(t, err)
	projectiontest.Run(t, runner)
	eventually(t, runner, "the status is Failed", func(s projection.Status) bool {
		return s.State == projection.Failed && errors.Is(s.Err, eventstore.ErrUnavailable)
	})

	_, err = projection.New(projection.Options{URL: "postgres://ada:hunter2@[::1:bad"})
	require.Error(t, err)
	require.NotContains(t, fmt.Sprint(err), "hunter2")
}

// A view that lags at the first poll is not stalled yet.
func TestRunner_StalledFirstLook(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	configure(t, w, 1)
	all, err := w.Runner(t, view.Account{}).Status(t.Context()) // it is not running
	require.NoError(t, err)
	require.NotZero(t, all[0].Lag)
	require.False(t, all[0].Stalled)
}

// The lease of a projector is held by a session that does not project.
func TestRunner_StalledStandby(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	configure(t, w, 1)
	projectiontest.CatchUp(t, w.Runner(t, view.Account{}))
	holder, err := w.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer holder.Release()
	lease := schema.ProjectorLease(schema.Views, schema.Account)
	require.Eventually(t, func() bool {
		taken, err := schema.AcquireLease(t.Context(), holder, lease)
		return err == nil && taken
	}, projectiontest.Soon, time.Millisecond)
	runner := hastened(t, w, view.Account{})
	projectiontest.Run(t, runner)
	stalled := func() bool {
		all, err := runner.Status(t.Context())
		require.NoError(t, err)
		return all[0].Stalled
	}
	projectiontest.Await(t, runner)
	require.False(t, stalled(), "there is nothing to do")
	configure(t, w, 1)
	require.Eventually(t, stalled, projectiontest.Soon, time.Millisecond)

	require.NoError(t, schema.ReleaseLease(t.Context(), holder, lease))
	require.Eventually(t, func() bool { return !stalled() }, projectiontest.Soon, time.Millisecond)
}
