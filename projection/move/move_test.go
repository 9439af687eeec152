package move_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/worker/courier"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/logcopy"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/move"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world has a log with views, and an empty log to move to.
func world(t *testing.T) (*projectiontest.World, move.Move) {
	t.Helper()
	w := projectiontest.New(t)
	w.Append(t, "acme", event.AccountStream("acme"), event.AccountConfigured{Stages: []string{"new"}, Region: "IN"})
	for range 3 {
		id := w.NewID()
		w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
			LeadFields: event.LeadFields{Name: "N", Phone: "+91" + id, Status: "new"}, Source: "api",
		})
	}
	w.Project(t)
	require.Eventually(t, func() bool { // PostgreSQL detects the end of the writers' sessions a little later
		return pgtest.Value[bool](t, w.Pool, `
			SELECT NOT EXISTS (SELECT FROM lease.held)`)
	}, projectiontest.Soon, time.Millisecond)
	to, err := esdb.Open(t.Context(), esdb.Options{URL: esdbtest.Empty(t), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(to.Close)
	silent := func(_, _ eventstore.Position) {}
	return w, move.Move{
		URL: w.URL, From: w.Store, To: to, Copy: logcopy.Copy{From: w.Store, To: to, Progress: silent}.Run,
		Compare: func(ctx context.Context, each func(from, to eventstore.Position) error) error {
			_, err := logcopy.Compare(ctx, w.Store, to, silent, each)
			return err
		},
	}
}

// table returns the rows of a table without their times.
func table(t *testing.T, w *projectiontest.World, name string) []map[string]any {
	t.Helper()
	rows, err := w.Pool.Query(t.Context(), "SELECT * FROM "+name+" ORDER BY 1")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(t, err)
	for _, row := range all {
		delete(row, "updated_at")
	}
	return all
}

func TestMove_AllOrNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil string
		want  error
	}{
		"a view of a third log": {
			`UPDATE views.checkpoint SET epoch = 'third' WHERE projector = 'lead'`, move.ErrOtherLog,
		},
		"a row that cannot be written": {
			`ALTER TABLE views.touch ADD CHECK (position < 5 OR position > 4000000000000000000)`, nil,
		},
		"a checkpoint that cannot be": {`ALTER TABLE views.checkpoint ADD CHECK (position < 10)`, nil},
		"a beginning that cannot be noted": {
			`INSERT INTO delivery.origin SELECT epoch, 1 FROM views.checkpoint
				LIMIT 1; ALTER TABLE delivery.origin ADD CHECK (position < 2)`, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, m := world(t)
			pgtest.Exec(t, w.Pool, c.spoil)
			checkpoints, touches := table(t, w, "views.checkpoint"), table(t, w, "views.touch")
			_, err := m.Run(t.Context())
			require.Error(t, err)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			require.Equal(t, checkpoints, table(t, w, "views.checkpoint"))
			require.Equal(t, touches, table(t, w, "views.touch"))
			require.NoError(t, projection.CheckLog(t.Context(), w.Pool, w.Store))
		})
	}
}

func TestMove_ViewsBelongToCopy(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	moved, err := m.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, len(view.All()), moved)
	require.ErrorIs(t, projection.CheckLog(t.Context(), w.Pool, m.From), projection.ErrForeignLog)
	require.NoError(t, projection.CheckLog(t.Context(), w.Pool, m.To))
	again, err := m.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, again)
}

// Positions in rows of conversions stayed those of the source.
func TestMove_BuildsConversionsAgain(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	for range 2 {
		stream := event.LeadStream(w.NewID())
		w.Append(t, "acme", stream, event.LeadCreated{Source: "api", LeadFields: event.LeadFields{Status: "new"}})
		w.Append(t, "acme", stream, event.LeadUpdated{LeadFields: event.LeadFields{Status: "won"}})
	}
	w.Project(t)
	require.NoError(t, w.Replay(view.Touch{}).Run(t.Context())) // builds them too
	require.Len(t, table(t, w, "views.conversion"), 2)
	_, err := m.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, table(t, w, "views.conversion"), 2)
	require.NoError(t, pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
		differences, err := view.Touch{}.CompareDerived(t.Context(), tx, "views", 5)
		require.Empty(t, differences)
		return err
	}))
}

func TestMove_RefusesRunningProjector(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	runner := w.Runner(t)
	stop := projectiontest.Run(t, runner)
	projectiontest.Await(t, runner)
	_, err := m.Run(t.Context())
	require.ErrorIs(t, err, move.ErrServiceRuns)
	stop()
	// PostgreSQL detects the end of the writers' sessions a little later.
	require.Eventually(t, func() bool {
		_, err = m.Run(t.Context())
		return !errors.Is(err, move.ErrServiceRuns)
	}, projectiontest.Soon, time.Millisecond)
	require.NoError(t, err, "what was copied before is no obstacle")
}

func TestMove_RefusesRunningReplay(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	var during error
	replay := projection.Replay{
		URL: w.URL, Store: w.Store, Projectors: []projection.Projector{view.Lead{}},
		Progress: func(done, end eventstore.Position) {
			if done < end {
				_, during = m.Run(t.Context())
			}
		},
	}
	require.NoError(t, replay.Run(t.Context()))
	require.ErrorIs(t, during, projection.ErrReplayRuns)
	var err error
	require.Eventually(t, func() bool { // PostgreSQL detects the end of the replay's session a little later
		_, err = m.Run(t.Context())
		return !errors.Is(err, projection.ErrReplayRuns)
	}, projectiontest.Soon, time.Millisecond)
	require.NoError(t, err)
}

// In the middle of a move a service checks whether the views belong to the source.
func TestMove_RefusesNewWriter(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	compare, answered := m.Compare, make(chan error, 1)
	m.Compare = func(ctx context.Context, each func(from, to eventstore.Position) error) error {
		go func() { answered <- projection.CheckLog(t.Context(), w.Pool, m.From) }()
		require.Eventually(t, func() bool {
			return len(answered) > 0 || waited(t, w, "checkpoint")
		}, projectiontest.Soon, time.Millisecond)
		return compare(ctx, each)
	}
	_, err := m.Run(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, <-answered, projection.ErrForeignLog)
}

// TestMove_DetectsRunningService starts couriers in the middle of a move.
func TestMove_DetectsRunningService(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	courier := courier.New(courier.Options{Pool: w.Pool, Store: w.Store, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	compare := m.Compare
	m.Compare = func(ctx context.Context, each func(from, to eventstore.Position) error) error {
		running.Go(func() { courier.Run(ctx) })
		require.Eventually(t, func() bool {
			return pgtest.Value[bool](t, w.Pool, `SELECT EXISTS (SELECT FROM lease.held WHERE name LIKE 'courier %')`)
		}, projectiontest.Soon, time.Millisecond)
		return compare(ctx, each)
	}
	_, err := m.Run(ctx)
	require.ErrorIs(t, err, move.ErrServiceRuns)
	require.NoError(t, projection.CheckLog(t.Context(), w.Pool, m.From))
}

// An event is appended while the move, which has compared both logs, waits for a table.
func TestMove_DetectsGrowingSource(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	reader, err := w.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), `LOCK TABLE views.touch IN SHARE MODE`)
	require.NoError(t, err)
	moved := make(chan error, 1)
	go func() {
		_, err := m.Run(t.Context())
		moved <- err
	}()
	require.Eventually(t, func() bool { return waited(t, w, "touch") }, projectiontest.Soon, time.Millisecond)
	w.Append(t, "acme", event.LeadStream(w.NewID()), event.LeadCreated{
		LeadFields: event.LeadFields{Name: "N", Phone: "+919876543210", Status: "new"}, Source: "api",
	})
	require.NoError(t, reader.Rollback(t.Context()))
	require.ErrorIs(t, <-moved, move.ErrGrown)
	require.NoError(t, projection.CheckLog(t.Context(), w.Pool, m.From))
}

// waited reports whether a session is waiting for a lock on a table of the views.
func waited(t *testing.T, w *projectiontest.World, table string) (yes bool) {
	t.Helper()
	require.NoError(t, w.Pool.QueryRow(t.Context(), `
		SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = ('views.' || $1::text)::regclass
		                  AND database = (SELECT oid FROM pg_database
		                    WHERE datname = current_database()))`, table).Scan(&yes))
	return yes
}

func TestMove_RefusesSameLog(t *testing.T) {
	t.Parallel()
	_, m := world(t)
	m.To = m.From
	_, err := m.Run(t.Context())
	require.ErrorIs(t, err, move.ErrSameLog)
}

func TestMove_DeliveryReplaysAndRetries(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.replay (webhook_id, generation, request_id, account, events, since, until, requested,
		  reached)
		VALUES ('w', 1, 'r', 'acme', '{*}', now(), now(), 3, 2), ('w', 2, 'r', 'acme', '{*}', now(), now(), 4, NULL)`)
	id := w.NewID()
	pgtest.Exec(t, w.Pool, `SELECT delivery.open_day($1)`, projectiontest.Start)
	pgtest.Exec(t, w.Pool, `
		INSERT INTO delivery.delivery (delivery_id, webhook_id, event_id, generation, type, stream, revision, position,
		  renderer, retried)
		VALUES ($1, 'w', 'e', 0, 'lead.created', 'lead-1', 0, 2, 1, 3)`, id)
	at := moved(t, m)
	deliveries := table(t, w, "delivery.delivery")
	require.EqualValues(t, 2, deliveries[0]["position"], "it is in the body")
	require.Equal(t, at[3], deliveries[0]["retried"])
	replays := table(t, w, "delivery.replay")
	require.Equal(t, at[3], replays[0]["requested"])
	require.Equal(t, at[2], replays[0]["reached"])
	require.Equal(t, at[4], replays[1]["requested"])
	require.Nil(t, replays[1]["reached"], "it has not begun")
}

func TestMove_ViewBehind(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	pgtest.Exec(t, w.Pool, `UPDATE views.checkpoint SET position = 2 WHERE projector = 'account'`)
	at := moved(t, m)
	require.Equal(t, at[2],
		pgtest.Value[int64](t, w.Pool, `SELECT position FROM views.checkpoint WHERE projector = 'account'`))
}

// The start position of deliveries is stored before any view exists, and may be stored for other logs too.
func TestMove_DeliveriesWithoutViews(t *testing.T) {
	t.Parallel()
	w, m := world(t)
	pgtest.Exec(t, w.Pool, `
		WITH gone AS (DELETE FROM views.checkpoint RETURNING epoch)
		INSERT INTO delivery.origin SELECT DISTINCT epoch, 2 FROM gone UNION ALL SELECT 'third', 3`)
	at := moved(t, m)
	to, err := m.To.Epoch(t.Context())
	require.NoError(t, err)
	require.Equal(t, at[2], pgtest.Value[int64](t, w.Pool, `SELECT position FROM delivery.origin WHERE epoch = $1`, to))
}

// moved runs the move, and returns the new position of each event.
func moved(t *testing.T, m move.Move) map[eventstore.Position]int64 {
	t.Helper()
	at, compare := map[eventstore.Position]int64{}, m.Compare
	m.Compare = func(ctx context.Context, each func(from, to eventstore.Position) error) error {
		return compare(ctx, func(from, to eventstore.Position) error {
			at[from] = int64(to)
			return each(from, to)
		})
	}
	_, err := m.Run(t.Context())
	require.NoError(t, err)
	return at
}

// A number in the schema delivery may be a position of the log. The move must either translate it or leave it
// unchanged. A change that adds a column has to decide that here.
func TestMove_CoversDeliveryPositions(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	columns := pgtest.Rows[string](t, w.Pool, `
		SELECT table_name || '.' || column_name FROM information_schema.columns
		 WHERE table_schema = 'delivery' AND data_type = 'bigint' AND table_name !~ '_[0-9]{8}$'
		 ORDER BY table_name COLLATE "C", column_name COLLATE "C"`)
	require.Equal(t, []string{
		"account_day.queued", "checkpoint.position", "checkpoint.replay", "checkpoint.seen_revision",
		"deferred.ordinal", "deferred.position", "deferred.revision", "delivery.position", "delivery.retried",
		"delivery.revision", "erasure.attempts", "filter_count.failed", "filter_count.filtered", "origin.position",
		"queue.ordinal", "queue.position", "queue.retried", "queue.revision", "replay.queued", "replay.reached",
		"replay.requested",
	}, columns)
}
