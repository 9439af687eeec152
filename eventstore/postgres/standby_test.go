package postgres_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// A process has seen an event that the database has lost in a failover.
func TestDiverged_LostEvents(t *testing.T) {
	t.Parallel()
	const sessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
		AND pid <> pg_backend_pid()`
	reads := map[string]func(testing.TB, *postgres.Store, string){
		"written": func(t testing.TB, store *postgres.Store, _ string) {
			storetest.Append(t, store, start("first", fact(`{}`)), start("last", fact(`{}`)))
		},
		"read": func(t testing.TB, store *postgres.Store, url string) {
			storetest.Append(t, open(t, postgres.Options{URL: url}), start("first", fact(`{}`)),
				start("last", fact(`{}`)))
			_, _, err := eventstore.Load(t.Context(), store, "last", func(n int, _ event.Fact) int { return n })
			require.ErrorIs(t, err, event.ErrUnknownType)
		},
		"followed": func(t testing.TB, store *postgres.Store, url string) {
			storetest.Append(t, open(t, postgres.Options{URL: url}), start("first", fact(`{}`)),
				start("last", fact(`{}`)))
			follow(t, store, "last")()
		},
		// like a subscription whose filter does not match the event
		"head": func(t testing.TB, store *postgres.Store, url string) {
			storetest.Append(t, open(t, postgres.Options{URL: url}), start("first", fact(`{}`)),
				start("last", fact(`{}`)))
			_, err := store.Head(t.Context())
			require.NoError(t, err)
		},
	}
	losses := map[string]string{
		"event lost":     `DELETE FROM log.event WHERE position = 2`,
		"event replaced": `UPDATE log.event SET event_id = gen_random_uuid() WHERE position = 2`,
		"nothing lost":   `DELETE FROM log.event WHERE position = 3`,
	}
	for name, see := range reads {
		for loss, lose := range losses {
			t.Run(name+", "+loss, func(t *testing.T) {
				t.Parallel()
				url := database(t)
				// misconfiguration is reported without retries
				store := open(t, postgres.Options{URL: url, AppendTimeout: forever})
				see(t, store, url)
				execute(t, url, lose)
				execute(t, url, sessions)
				_, err := store.Append(t.Context(), start("new", fact(`{}`)))
				if loss == "nothing lost" {
					require.NoError(t, err)
					select {
					case <-store.Diverged():
						require.Fail(t, "diverged although no seen event was lost")
					default:
					}
					return
				}
				require.ErrorIs(t, err, eventstore.ErrDiverged)
				require.ErrorIs(t, err, eventstore.ErrUnavailable)
				<-store.Diverged()
				for err = nil; !errors.Is(err, eventstore.ErrDiverged); { // the first call may use a terminated session
					_, err = store.Head(t.Context())
					require.Error(t, err)
				}
				require.Zero(t, execute(t, url, `SELECT FROM log.event WHERE stream = 'new'`))
			})
		}
	}
}

// The synchronous standby is stopped, and a commit that it lacks is visible on the primary. No store returns the commit
// or a result that depends on it before the standby has it. So no store has diverged after a failover that loses it.
func TestStandby_UnconfirmedEventsStayUnseen(t *testing.T) {
	t.Parallel()
	for name, show := range map[string]func(testing.TB, *pgtest.Pair){
		"wait cancelled": func(t testing.TB, p *pgtest.Pair) { signalWaiting(t, admin(t, p), "pg_cancel_backend") },
		"backend terminated": func(t testing.TB, p *pgtest.Pair) {
			signalWaiting(t, admin(t, p), "pg_terminate_backend")
		},
		"primary restarted": func(t testing.TB, p *pgtest.Pair) { p.RestartPrimary(t, false) },
		"primary crashed":   func(t testing.TB, p *pgtest.Pair) { p.RestartPrimary(t, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair := migratedPair(t)
			options := postgres.Options{URL: pair.URL(t), AppendTimeout: time.Second}
			store, other := open(t, options), open(t, options)
			first := start("first", fact(`{}`))
			eventuallyAppended(t, store, first)

			pair.StopStandby(t)
			lead := start("lead", fact(`{}`))
			_, err := store.Append(t.Context(), lead)
			require.ErrorIs(t, err, eventstore.ErrUnavailable)
			pair.AwaitWait(t)
			require.Empty(t, visible(t, admin(t, pair)))
			show(t, pair)
			conn := admin(t, pair)
			require.Eventually(t, func() bool { return len(visible(t, conn)) == 1 }, testTimeout, 10*time.Millisecond)

			again := lead
			again.Expect = eventstore.Any
			fresh := open(t, options)
			for _, s := range []*postgres.Store{store, other, fresh} {
				for name, result := range map[string]func() error{
					"retry":        func() error { return appendError(t, s, lead) },
					"retry of any": func() error { return appendError(t, s, again) },
					"conflict":     func() error { return appendError(t, s, start("lead", fact(`{}`))) },
					"conflict of a check": func() error {
						return appendError(t, s, eventstore.Check("lead", eventstore.NoStream))
					},
					"check": func() error {
						return appendError(t, s, eventstore.Check("lead", eventstore.At(0)))
					},
					"check of another one": func() error {
						return appendError(t, s, eventstore.Check("first", eventstore.At(0)))
					},
					"head":         func() error { _, err := s.Head(t.Context()); return err },
					"read":         func() error { return readError(t, s, "lead") },
					"subscription": func() error { return subscribedTo(t, s, 1) },
				} {
					require.ErrorIs(t, result(), eventstore.ErrUnavailable, name)
					signalWaiting(t, conn, "pg_terminate_backend") // it may hold a lock that the next call needs
				}
			}
			require.NoError(t, readError(t, store, "first"), "replicated events can be read")

			pair.Failover(t)
			for _, s := range []*postgres.Store{store, other} {
				require.NoError(t, eventually(t, func() error { return readError(t, s, "lead") }))
				_, err := s.Head(t.Context())
				require.NoError(t, err)
				select {
				case <-s.Diverged():
					t.Fatal("diverged although no lost event was seen")
				default:
				}
			}
			require.EqualValues(t, 1, eventuallyAppended(t, store, first))
			require.EqualValues(t, 2, eventuallyAppended(t, other, lead),
				"the event was lost, and its position is free")
		})
	}
}

// When the wait for the standby is cancelled, PostgreSQL reports success with a warning.
func TestStandby_CancelledWaitIsNoAnswer(t *testing.T) {
	t.Parallel()
	pair := migratedPair(t)
	options := postgres.Options{URL: pair.URL(t), AppendTimeout: testTimeout}
	store, other := open(t, options), open(t, options)
	storetest.Append(t, store, start("first", fact(`{}`)))
	pair.StopStandby(t)
	appended := make(chan error, 1)
	go func() { appended <- appendError(t, store, start("lead", fact(`{}`))) }()
	for range 2 { // the append is retried and waits again
		pair.AwaitWait(t)
		require.Empty(t, appended)
		signalWaiting(t, admin(t, pair), "pg_cancel_backend")
	}
	pair.AwaitWait(t)
	read := make(chan error, 1)
	go func() { read <- readError(t, other, "lead") }()
	require.Eventually(t, func() bool {
		pair.Admin(t,
			`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'
				AND application_name = 'leadlog'`)
		return len(read) > 0
	}, testTimeout, 10*time.Millisecond)
	require.ErrorIs(t, <-read, eventstore.ErrUnavailable)
	require.Empty(t, appended)
	pair.StartStandby(t)
	require.NoError(t, <-appended)
}

func TestStandby_RetrySucceedsAfterReturn(t *testing.T) {
	t.Parallel()
	for name, cancel := range map[string]bool{"wait continues": false, "wait cancelled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair := migratedPair(t)
			options := postgres.Options{URL: pair.URL(t), AppendTimeout: time.Second}
			store, other := open(t, options), open(t, options)
			eventuallyAppended(t, store, start("first", fact(`{}`)))
			require.NoError(t, eventually(t, func() error { _, err := other.Head(t.Context()); return err }))
			pair.StopStandby(t)
			lead := start("lead", fact(`{}`))
			_, err := store.Append(t.Context(), lead)
			require.ErrorIs(t, err, eventstore.ErrUnavailable)
			pair.AwaitWait(t)
			if cancel {
				signalWaiting(t, admin(t, pair), "pg_cancel_backend")
			} else { // reads do not wait
				for _, s := range []*postgres.Store{store, other} {
					head, err := s.Head(t.Context())
					require.NoError(t, err)
					require.EqualValues(t, 1, head)
					require.NoError(t, readError(t, s, "lead"))
				}
			}
			pair.StartStandby(t)
			require.EqualValues(t, 2, eventuallyAppended(t, store, lead))
			require.EqualValues(t, 2, eventuallyAppended(t, other, lead))
			require.NoError(t, subscribedTo(t, other, 2))
			pair.Failover(t)
			require.NoError(t, eventually(t, func() error { return subscribedTo(t, open(t, options), 2) }))
		})
	}
}

func TestStandby_RequiredWhileRunning(t *testing.T) {
	t.Parallel()
	pair := migratedPair(t)
	pair.Admin(t, `ALTER SYSTEM SET synchronous_standby_names = ''`, `SELECT pg_reload_conf()`)
	pair.StopStandby(t)
	store := open(t, postgres.Options{URL: pair.URL(t), AppendTimeout: time.Second})
	require.EqualValues(t, 1, eventuallyAppended(t, store, start("lead", fact(`{}`))))
	require.NoError(t, subscribedTo(t, store, 1))
	pair.Admin(t, `ALTER SYSTEM SET synchronous_standby_names = 'standby'`, `SELECT pg_reload_conf()`)
	waiting := awaitRequired(t, pair)
	require.Eventually(t, func() bool {
		_, err := store.Head(t.Context())
		return errors.Is(err, eventstore.ErrUnavailable)
	}, testTimeout, 10*time.Millisecond)
	require.ErrorIs(t, readError(t, store, "lead"), eventstore.ErrUnavailable)
	pair.StartStandby(t)
	require.NoError(t, eventually(t, func() error { return readError(t, store, "lead") }))
	require.NoError(t, <-waiting)
}

// awaitRequired waits until a commit waits for the standby, which ends later with the error. Commits wait only after
// the checkpointer has read the setting.
func awaitRequired(t *testing.T, pair *pgtest.Pair) (ended chan error) {
	t.Helper()
	conn := admin(t, pair)
	var waits atomic.Bool
	ended = make(chan error, 1)
	go func() {
		for !waits.Load() {
			if _, err := conn.Exec(t.Context(), `SELECT pg_logical_emit_message(true, 'test', '')`); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	pair.AwaitWait(t)
	waits.Store(true)
	return ended
}

// A standby may have the settings of the primary, but it has no commits to wait for.
func TestStandby_ReadsFromStandby(t *testing.T) {
	t.Parallel()
	pair := migratedPair(t)
	storetest.Append(t, open(t, postgres.Options{URL: pair.URL(t)}), start("lead", fact(`{}`)))
	conn := pgtest.Connect(t, pair.Standby.AdminURL())
	pgtest.Exec(t, conn, `ALTER SYSTEM SET synchronous_standby_names = 'another'`)
	pgtest.Exec(t, conn, `SELECT pg_reload_conf()`)
	require.Eventually(t, func() bool {
		return pgtest.Value[string](t, conn, `SHOW synchronous_standby_names`) == "another"
	}, testTimeout, 10*time.Millisecond)
	// The append was committed once the standby had received it, before it was applied there.
	written := pgtest.Value[string](t, admin(t, pair), `SELECT pg_current_wal_lsn()::text`)
	require.Eventually(t, func() bool {
		return pgtest.Value[bool](t, conn, `SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn`, written)
	}, testTimeout, 10*time.Millisecond)
	require.NoError(t, subscribedTo(t, open(t, postgres.Options{URL: pair.Standby.URL()}), 1))
}

func migratedPair(t *testing.T) *pgtest.Pair {
	t.Helper()
	pair := pgtest.NewPair(t)
	require.NoError(t, postgres.Migrate(t.Context(), pair.Primary.URL()))
	return pair
}

// admin opens a superuser's session at the primary.
func admin(t testing.TB, pair *pgtest.Pair) *pgx.Conn {
	t.Helper()
	return pgtest.Connect(t, pair.Primary.AdminURL())
}

// signalWaiting cancels or terminates all sessions that wait for the standby, and waits until they do not.
func signalWaiting(t testing.TB, conn *pgx.Conn, function string) {
	t.Helper()
	const waiting = `SELECT (pid, query_start)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
	were := pgtest.Rows[string](t, conn, waiting)
	pgtest.Exec(t, conn,
		`SELECT `+function+`(pid) FROM pg_stat_activity WHERE (pid, query_start)::text = ANY ($1)`, were)
	require.Eventually(t, func() bool {
		return !pgtest.Value[bool](t, conn, `SELECT EXISTS (`+waiting+` AND (pid, query_start)::text = ANY ($1))`, were)
	}, testTimeout, 10*time.Millisecond)
}

// visible returns the positions of the stream lead that are visible on the primary.
func visible(t testing.TB, conn *pgx.Conn) []int64 {
	t.Helper()
	return pgtest.Rows[int64](t, conn, `SELECT position FROM log.event WHERE stream = 'lead'`)
}

func appendError(t testing.TB, store *postgres.Store, write eventstore.Write) error {
	_, err := store.Append(t.Context(), write)
	return err
}

func readError(t testing.TB, store *postgres.Store, stream string) (failed error) {
	t.Helper()
	for _, err := range store.Read(t.Context(), stream, 0) {
		failed = err
	}
	return failed
}

// subscribedTo waits until a subscription has reached a position, and returns the error that ended it before.
func subscribedTo(t testing.TB, store *postgres.Store, position eventstore.Position) error {
	t.Helper()
	for page, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
		if err != nil {
			return err
		}
		if page.Position == position {
			return nil
		}
	}
	return nil
}

func eventually(t testing.TB, try func() error) (err error) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = try(); err == nil {
			return nil
		}
	}
	return err
}

func eventuallyAppended(t testing.TB, store *postgres.Store, write eventstore.Write) (position eventstore.Position) {
	t.Helper()
	require.NoError(t, eventually(t, func() (err error) {
		position, err = store.Append(t.Context(), write)
		return err
	}))
	return position
}
