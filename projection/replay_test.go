package projection_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/projectiontest"
	"github.com/leadlog/leadlog/projection/view"
)

// indexes returns the indexes, constraints and other properties of the live views' tables.
func indexes(t *testing.T, w *projectiontest.World) []string {
	t.Helper()
	rows, err := w.Pool.Query(t.Context(), `
		SELECT indexdef FROM pg_indexes WHERE schemaname = 'views'
		 UNION ALL
		SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'views'::regnamespace
		AND contype <> 'n'
		 UNION ALL
		SELECT relname || ' ' || array_to_string(reloptions, ',') FROM pg_class
		WHERE relnamespace = 'views'::regnamespace
		 UNION ALL
		SELECT relname || ' ' || obj_description(oid, 'pg_class') FROM pg_class
		WHERE relnamespace = 'views'::regnamespace
		 ORDER BY 1`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s string, err error) {
		var text *string
		if err := row.Scan(&text); err != nil || text == nil {
			return "", err
		}
		return *text, nil
	})
	require.NoError(t, err)
	return names
}

// afresh returns the rows of the views after they are emptied and folded again.
func afresh(t *testing.T, w *projectiontest.World) map[string][]string {
	t.Helper()
	pgtest.Exec(t, w.Pool, `DELETE FROM views.checkpoint`)
	w.Project(t)
	return w.Dump(t)
}

// laggingHead is a log whose head is old when it is returned: the live views have passed it.
type laggingHead struct{ eventstore.Store }

func (l laggingHead) Head(ctx context.Context) (eventstore.Position, error) {
	head, err := l.Store.Head(ctx)
	time.Sleep(50 * time.Millisecond)
	return head, err
}

func TestReplay_WhileEventsArrive(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.WriteHistory(t, 11, 300)
	before := indexes(t, w)
	runner := hastened(t, w)
	stop := projectiontest.Run(t, runner)

	ctx, cancel := context.WithCancel(t.Context())
	written := 0
	var writing sync.WaitGroup
	defer writing.Wait()
	defer cancel()
	writing.Go(func() {
		for pace := time.NewTicker(time.Millisecond); ctx.Err() == nil; written++ {
			<-pace.C
			id := w.NewID()
			w.Append(t, "acme", event.LeadStream(id), event.LeadCreated{
				LeadFields: event.LeadFields{Name: "N", Status: "new", Phone: fmt.Sprint("+", written)}, Source: "api",
			})
			w.Append(t, "acme", event.LeadStream(id), event.LeadMerged{Source: "website"})
			w.Append(t, "acme", event.RefusedStream(w.NewID()), event.LeadRefused{Source: "api", Code: "C", LeadID: id})
		}
	})
	r := w.Replay(view.All()...)
	r.Store = laggingHead{w.Store}
	require.NoError(t, r.Run(t.Context()))
	cancel()
	writing.Wait()
	require.NotZero(t, written)
	projectiontest.Await(t, runner)
	stop()

	live := w.Dump(t)
	require.Equal(t, before, indexes(t, w), "what takes a table's place has its names")
	require.Equal(t, afresh(t, w), live)
	left := pgtest.Value[int](t, w.Pool, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'replay%'`)
	require.Zero(t, left)
}

func TestReplay_ClearsStaleState(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]string{
		"a view of another version":  `UPDATE views.checkpoint SET version = 77`,
		"a view of another log":      `UPDATE views.checkpoint SET epoch = 'other', position = 1000000`,
		"a view ahead of the log":    `UPDATE views.checkpoint SET position = 1000000`,
		"a view that was tampered":   `UPDATE views.account SET region = 'XX'`,
		"a log that was restored":    `UPDATE views.checkpoint SET seen_event = 'other'`,
		"a view that never was made": `DELETE FROM views.checkpoint`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := projectiontest.New(t)
			last := configure(t, w, 3)
			projectiontest.CatchUp(t, w.Runner(t, view.Account{}))
			want := w.DumpTable(t, "views", "account")
			pgtest.Exec(t, w.Pool, spoil)
			var position eventstore.Position
			r := w.Replay(view.Account{})
			r.Built = func(_ projection.Projector, at eventstore.Position) { position = at }
			require.NoError(t, r.Run(t.Context()))
			require.Equal(t, last, position)
			require.Equal(t, want, w.DumpTable(t, "views", "account"))
			runner := hastened(t, w, view.Account{})
			projectiontest.Run(t, runner)
			configure(t, w, 1)
			projectiontest.Await(t, runner)
		})
	}
}

func TestReplay_CopyAsOf(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	history := w.WriteHistory(t, 13, 200)
	w.Project(t)
	early := w.Dump(t)
	moment, head := projectiontest.Start, storetest.Head(t, w.Store)
	for _, e := range storetest.Events(t, w.Store, eventstore.Filter{}) {
		if e.At.After(moment) {
			moment = e.At
		}
	}
	for account, ids := range history.Leads {
		for _, id := range ids {
			w.Append(t, account, event.LeadStream(id), event.LeadMerged{
				Source: "later", LeadFields: event.LeadFields{Name: "Later"},
			})
		}
	}
	w.Project(t)
	late := w.Dump(t)
	require.NotEqual(t, early, late)
	for namespace, until := range map[string]projection.Until{
		"by_time": {Time: moment}, "by_position": {Position: head}, "now": {},
	} {
		r := w.Replay(view.All()...)
		r.Into, r.Until = namespace, until
		require.NoError(t, r.Run(t.Context()))
		if namespace == "by_time" {
			require.NoError(t, r.Run(t.Context()), "again, which changes nothing")
		}
		want := early
		if namespace == "now" {
			want = late
		}
		for _, p := range view.All() {
			for _, table := range projectiontest.Folded(p) {
				require.Equal(t, want[table], w.DumpTable(t, namespace, table), "%s.%s", namespace, table)
			}
		}
	}
	require.Equal(t, late, w.Dump(t))

	other := w.Replay(view.Lead{})
	other.Into, other.Until = "by_time", projection.Until{Position: 5}
	err := other.Run(t.Context())
	require.ErrorIs(t, err, projection.ErrSchemaExists)
	require.ErrorContains(t, err, "as of "+projection.Until{Time: moment}.String())
	require.ErrorContains(t, err, "as of position 5")
	other.Into = "secret"
	require.ErrorIs(t, other.Run(t.Context()), projection.ErrSchemaExists)
	other.Into, other.Until.Position = "beyond", 1_000_000
	require.ErrorIs(t, other.Run(t.Context()), projection.ErrBeyondLog)
	other.Until.Position = 5
	require.NoError(t, other.Run(t.Context()), "no schema is left of a replay that failed")
}

func TestCompare_KeepsForeignSchema(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	pgtest.Exec(t, w.Pool, `CREATE SCHEMA verify_lead; CREATE TABLE verify_lead.mine AS SELECT 1 AS kept`)
	_, err := w.Replay(view.Lead{}).Compare(t.Context(), 1)
	require.ErrorIs(t, err, projection.ErrSchemaExists)
	require.Equal(t, 1, pgtest.Value[int](t, w.Pool, `SELECT kept FROM verify_lead.mine`))
}

// A lead that was joined into an erased lead may be a separate lead in a copy as of an earlier day.
func TestReplay_CopyAsOfOmitsErased(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	first, second := w.NewID(), w.NewID()
	w.Append(t, "acme", event.LeadStream(first), event.LeadCreated{
		ContactUID: w.NewID(), LeadFields: event.LeadFields{Name: "Asha", Status: "new"}, Source: "api",
	})
	apart := w.Append(t, "acme", event.LeadStream(second), event.LeadCreated{
		ContactUID: w.NewID(), LeadFields: event.LeadFields{Name: "Asha Rao", Status: "new"}, Source: "api",
	})
	w.Append(t, "acme", event.LeadStream(second), event.LeadJoinedInto{Into: first})
	w.Append(t, "acme", event.LeadStream(first), event.LeadJoined{From: second}, event.LeadErased{
		Leads: []string{second},
	})
	r := w.Replay(view.Lead{}, view.Touch{})
	r.Into, r.Until = "apart", projection.Until{Position: apart}
	require.NoError(t, r.Run(t.Context()))
	for _, table := range []string{"lead", "touch_personal"} {
		require.Empty(t, w.DumpTable(t, "apart", table), table)
	}
}

// hookedLog calls then once, when the first page was read and opened.
type hookedLog struct {
	eventstore.Store
	then func()
}

func (l hookedLog) Subscribe(
	ctx context.Context, after eventstore.Position, filter eventstore.Filter,
) iter.Seq2[eventstore.Page, error] {
	return func(yield func(eventstore.Page, error) bool) {
		for page, err := range l.Store.Subscribe(ctx, after, filter) {
			l.then()
			if !yield(page, err) {
				return
			}
		}
	}
}

// A visitor is deleted while a replay is about to write the activity, and acts meanwhile, so that the fact names the
// lost key.
func TestReplay_VisitorDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, namespace := range map[string]string{"replaced view": "views", "copy": "copied"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := projectiontest.New(t)
			store := w.Seal(t)
			visitor := event.VisitorStream("acme", "v")
			add := func(data event.Data) {
				e := w.NewEvent()
				e.Metadata.Account = "acme"
				var err error
				e.Type, e.Data, err = event.Encode(data)
				require.NoError(t, err)
				storetest.AppendNext(t, store, visitor, e)
			}
			act := func() {
				add(event.VisitorActed{
					VisitorID: "v", Kind: "click", URL: "https://example.com/?utm_term=a", Touch: true,
					At: projectiontest.Start,
				})
			}
			act()
			w.Project(t)
			r := w.Replay(view.VisitorActivity{}, view.Touch{})
			r.Store = hookedLog{store, sync.OnceFunc(func() {
				lost, err := store.Last(t.Context(), visitor)
				require.NoError(t, err)
				require.NoError(t, store.Destroy(t.Context(), visitor))
				act()
				add(event.VisitorForgotten{Keys: []string{strconv.FormatInt(lost.KeyID, 10)}})
				w.Project(t)
				gone := projection.Forgotten{Keys: map[string][]int64{visitor: {lost.KeyID}}}
				require.NoError(t, pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
					return projection.DeleteFromCopies(t.Context(), tx, gone)
				}))
			})}
			remaining := []int64{2}
			if namespace != "views" {
				r.Into, r.Until, remaining = namespace, projection.Until{Position: storetest.Head(t, store)}, []int64{}
			}
			require.NoError(t, r.Run(t.Context()))
			for _, table := range []string{"visitor_activity", "touch_personal", "touch"} {
				rows := `SELECT position FROM ` + namespace + `.` + table
				if table == "touch" {
					rows += ` WHERE NOT erased`
				}
				require.Equal(t, remaining, pgtest.Rows[int64](t, w.Pool, rows), table)
			}
			live := w.Dump(t)
			require.Equal(t, afresh(t, w), live)
		})
	}
}

// TestReplay_MigratedMeanwhile migrates the views while a copy of a table with the old schema is built, as the runbook
// does before processes are replaced.
func TestReplay_MigratedMeanwhile(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	w.WriteHistory(t, 11, 50)
	w.Project(t)
	before := w.Dump(t)
	r, migration := w.Replay(view.Touch{}), sync.OnceFunc(func() {
		_, err := w.Pool.Exec(t.Context(), `
			BEGIN; ALTER TABLE views.touch ADD COLUMN later text; INSERT INTO views.migration (version_id, is_applied)
			VALUES (9999, true); COMMIT`)
		require.NoError(t, err)
	})
	r.Progress = func(_, _ eventstore.Position) { migration() }
	require.ErrorIs(t, r.Run(t.Context()), projection.ErrMigrated)
	require.NoError(t, r.Run(t.Context()), "by a program that has the migration")
	_, err := w.Pool.Exec(t.Context(), `ALTER TABLE views.touch DROP COLUMN later`)
	require.NoError(t, err, "what the migration added is there")
	require.Equal(t, before, w.Dump(t))
}

func TestReplay_KeepsGrants(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	configure(t, w, 1)
	pgtest.Exec(t, w.Pool, `GRANT SELECT ON views.account TO PUBLIC`)
	require.NoError(t, w.Replay(view.Account{}).Run(t.Context()))
	granted := pgtest.Value[bool](t, w.Pool, `SELECT 'views.account'::regclass IN
		(SELECT c.oid FROM pg_class c, aclexplode(c.relacl) g WHERE g.grantee = 0 AND g.privilege_type = 'SELECT')`)
	require.True(t, granted)
}

func TestReplay_NamesDependentObjects(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	projectiontest.CatchUp(t, w.Runner(t, view.Lead{}))
	pgtest.Exec(t, w.Pool,
		`CREATE SCHEMA reporting; CREATE VIEW reporting.hot AS SELECT lead_id FROM views.lead
			WHERE temperature = 'hot'`)
	err := w.Replay(view.Lead{}).Run(t.Context())
	require.ErrorIs(t, err, projection.ErrHasDependents)
	require.ErrorContains(t, err, "view reporting.hot depends on table views.lead")
	pgtest.Exec(t, w.Pool, `DROP VIEW reporting.hot`)
	require.NoError(t, w.Replay(view.Lead{}).Run(t.Context()))
}

// The checkpoint of a replayed view has the last applied event. The replay once removed it, so that a restored log with
// other events at the same positions was taken for the same log.
func TestReplay_KeepsNewestEvent(t *testing.T) {
	t.Parallel()
	w := projectiontest.NewOnPostgres(t)
	created := event.LeadCreated{LeadFields: event.LeadFields{Name: "N", Status: "new"}, Source: "website"}
	w.Append(t, "acme", event.LeadStream(w.NewID()), created)
	w.Append(t, "acme", event.LeadStream(w.NewID()), created)
	projectiontest.CatchUp(t, w.Runner(t, view.Lead{}))
	require.NoError(t, w.Replay(view.Lead{}).Run(t.Context()))

	// A backup of the log alone, from before the second lead, is restored. The log then grows beyond it while no
	// service runs.
	w.Store.(*postgres.Store).Close()
	pgtest.Exec(t, w.Pool, `DELETE FROM log.event WHERE position > 1`)
	var err error
	w.Store, err = postgres.Open(t.Context(), postgres.Options{
		URL: w.URL, MaxReaders: 4, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(w.Store.(*postgres.Store).Close)
	w.Append(t, "acme", event.LeadStream(w.NewID()), created)
	w.Append(t, "acme", event.LeadStream(w.NewID()), created)

	runner := w.Runner(t, view.Lead{})
	projectiontest.Run(t, runner)
	require.Eventually(t, func() bool {
		all, err := runner.Status(t.Context())
		return err == nil && all[0].State == projection.Stale && errors.Is(all[0].Err, projection.ErrAheadOfLog)
	}, projectiontest.Soon, 10*time.Millisecond)
}

func TestReplay_ConcurrentCopiesInOneSchema(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	for round := range 5 {
		var replays errgroup.Group
		for _, p := range []projection.Projector{view.SourceDay{}, view.Token{}, view.Account{}} {
			r := w.Replay(p)
			r.Into = fmt.Sprint("copy_", round)
			replays.Go(func() error { return r.Run(t.Context()) })
		}
		require.NoError(t, replays.Wait())
	}
}

// interrupted replays views and stops the replay after a position.
func interrupted(t *testing.T, w *projectiontest.World, past eventstore.Position, projectors ...projection.Projector) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := w.Replay(projectors...)
	r.Progress = func(done, end eventstore.Position) {
		if past < done && done < end {
			cancel()
		}
	}
	require.ErrorIs(t, r.Run(ctx), context.Canceled)
}

// long returns a log of several batches and its views.
func long(t *testing.T) (w *projectiontest.World, want map[string][]string) {
	t.Helper()
	w = projectiontest.New(t)
	w.WriteHistory(t, 12, 200)
	for range 5 {
		var facts []event.Data
		for range 1000 {
			facts = append(facts, event.LeadMerged{Source: "website"})
		}
		id := w.NewID()
		w.Append(t, "acme", event.LeadStream(id),
			append(
				[]event.Data{event.LeadCreated{LeadFields: event.LeadFields{Name: "N", Status: "new"}, Source: "api"}},
				facts...,
			)...)
	}
	w.Project(t)
	return w, w.Dump(t)
}

func TestReplay_ResumesAfterInterrupt(t *testing.T) {
	t.Parallel()
	w, want := long(t)
	for _, p := range [][]projection.Projector{view.All(), {view.Lead{}}, {view.SourceDay{}}} {
		var reached eventstore.Position
		interrupted := 0
		for {
			ctx, cancel := context.WithCancel(t.Context())
			r := w.Replay(p...)
			r.Progress = func(done, end eventstore.Position) {
				require.GreaterOrEqual(t, done, reached, "what is done is not done again")
				if begun := done > reached; begun && done < end {
					reached = done
					interrupted++
					cancel()
				}
			}
			err := r.Run(ctx)
			cancel()
			if err == nil {
				break
			}
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, want, w.Dump(t), "the live view is as it was")
		}
		require.NotZero(t, interrupted)
		require.Equal(t, want, w.Dump(t))
	}
}

// cutOff is a log whose connection closes when the context is done, and which then returns only the connection's error.
type cutOff struct {
	eventstore.Store
	leave func()
}

func (c cutOff) Head(context.Context) (eventstore.Position, error) {
	c.leave()
	return 0, net.ErrClosed
}

func TestReplay_ReturnsContextError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, projection.Replay{Store: cutOff{leave: cancel}}.Run(ctx), context.Canceled)
}

// One copy was started earlier and is ahead of the other.
func TestReplay_FinishesUnevenCopies(t *testing.T) {
	t.Parallel()
	w, want := long(t)
	interrupted(t, w, 1500, view.SourceDay{})
	both := []projection.Projector{view.Token{}, view.SourceDay{}} // whose filters select different events
	interrupted(t, w, 0, both...)
	require.NoError(t, w.Replay(both...).Run(t.Context()))
	require.Equal(t, want, w.Dump(t))
}

func TestReplay_RestartsUnusableCopy(t *testing.T) {
	t.Parallel()
	w, want := long(t)
	for what, spoil := range map[string]string{
		"of another version": `UPDATE replay_source_day.checkpoint SET version = 77`,
		"of another log":     `UPDATE replay_source_day.checkpoint SET epoch = 'other'`,
		"of a log restored":  `UPDATE replay_source_day.checkpoint SET seen_event = 'other'`,
		"without a table":    `DROP TABLE replay_source_day.source_day`,
	} {
		interrupted(t, w, 0, view.SourceDay{})
		pgtest.Exec(t, w.Pool, `UPDATE replay_source_day.source_day SET created = created + 1000`)
		pgtest.Exec(t, w.Pool, spoil)
		require.NoError(t, w.Replay(view.SourceDay{}).Run(t.Context()))
		require.Equal(t, want["source_day"], w.DumpTable(t, "views", "source_day"), what)
	}
}

func TestReplay_OneAtATime(t *testing.T) {
	t.Parallel()
	w := projectiontest.New(t)
	configure(t, w, 1)
	var during error
	r := w.Replay(view.Account{})
	r.Progress = func(done, end eventstore.Position) {
		if done < end {
			during = w.Replay(view.Account{}).AcquireLeaseOnce().Run(t.Context())
		}
	}
	require.NoError(t, r.Run(t.Context()))
	require.ErrorIs(t, during, projection.ErrReplayRuns)
}
