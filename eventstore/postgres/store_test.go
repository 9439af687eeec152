package postgres_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func TestStore_UnavailableAndRecovers(t *testing.T) {
	t.Parallel()
	address := database(t)
	proxy := pgtest.NewProxy(t, address)
	store := open(t, postgres.Options{URL: proxy.URL(), AppendTimeout: time.Second})
	before := start("before", fact(`{}`))
	var err error
	require.Eventually(t, func() bool { // the first connection may take longer than the timeout
		_, err = store.Append(t.Context(), before)
		return err == nil
	}, testTimeout, time.Millisecond)

	proxy.Refuse()
	during := start("during", fact(`{}`))
	_, err = store.Append(t.Context(), during)
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	_, err = store.Head(t.Context())
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	for _, err := range store.Read(t.Context(), "before", 0) {
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
	}
	var ended error
	for _, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
		ended = err
	}
	require.ErrorIs(t, ended, eventstore.ErrUnavailable)

	proxy.Accept(t)
	require.Eventually(t, func() bool {
		_, err = store.Append(t.Context(), during)
		return err == nil
	}, testTimeout, time.Millisecond)
	head := storetest.Head(t, store)
	require.EqualValues(t, 2, head, "the retry of the failed append is stored once")
}

func TestStore_Closed(t *testing.T) {
	t.Parallel()
	store := open(t, postgres.Options{URL: database(t)})
	ended := make(chan error, 1)
	subscribed := make(chan struct{})
	storetest.Append(t, store, start("a", fact(`{}`)))
	go func() {
		for _, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
			if err != nil {
				ended <- err
			} else {
				close(subscribed)
			}
		}
	}()
	<-subscribed
	store.Close()
	require.ErrorIs(t, <-ended, eventstore.ErrUnavailable)
	_, err := store.Append(t.Context(), start("b", fact(`{}`)))
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	_, err = store.Head(t.Context())
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
}

// testTimeout is the timeout for conditions.
const testTimeout = time.Minute

// forever is longer than any test.
const forever = time.Hour

func start(stream string, events ...eventstore.Event) eventstore.Write {
	return eventstore.Write{Stream: stream, Expect: eventstore.NoStream, Events: events}
}

// execute runs a statement on the test's database in its own session.
func execute(t testing.TB, url, statement string, arguments ...any) int64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	tag, err := conn.Exec(t.Context(), statement, arguments...)
	require.NoError(t, err)
	return tag.RowsAffected()
}

// awaitRows repeats a statement in one session until it affects or returns rows.
func awaitRows(t testing.TB, url, statement string, arguments ...any) {
	t.Helper()
	conn := pgtest.Connect(t, url)
	require.Eventually(t, func() bool {
		tag, err := conn.Exec(t.Context(), statement, arguments...)
		return err == nil && tag.RowsAffected() > 0
	}, testTimeout, 2*time.Millisecond)
	require.NoError(t, conn.Close(t.Context()))
}

// terminate terminates the sessions of a task. It waits for one, because stores connect on demand.
func terminate(t testing.TB, url, task string) {
	t.Helper()
	awaitRows(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = $1`, "leadlog "+task)
}

// The pool has a timeout for connecting, but none for the checks of a new connection.
func TestPool_ConnectionCheckTimeout(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, MaxReaders: 1})
	storetest.Append(t, store, start("s", fact(`{}`)))
	locker, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer locker.Close(context.WithoutCancel(t.Context()))
	_, err = locker.Exec(t.Context(), `BEGIN; LOCK TABLE log.event`)
	require.NoError(t, err)
	_, err = store.Head(t.Context())
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	require.Zero(t, store.Readers().ConstructingConns())
}

func TestMigrate_Twice(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	require.NoError(t, postgres.Migrate(t.Context(), url))
	store := open(t, postgres.Options{URL: url})
	require.NoError(t, store.Current(t.Context()))
	epoch, err := store.Epoch(t.Context())
	require.NoError(t, err)
	storetest.Append(t, store, start("a", fact(`{}`)))

	require.NoError(t, postgres.Migrate(t.Context(), url))
	require.NoError(t, store.Current(t.Context()))
	again, err := store.Epoch(t.Context())
	require.NoError(t, err)
	require.Equal(t, epoch, again)
	head := storetest.Head(t, store)
	require.EqualValues(t, 1, head)
}

func TestMigrate_Concurrent(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	errs := make([]error, 4)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { errs[i] = postgres.Migrate(t.Context(), url) })
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, open(t, postgres.Options{URL: url}).Current(t.Context()))
}

func TestEpoch_Unique(t *testing.T) {
	t.Parallel()
	var epochs []string
	for range 2 {
		url := pgtest.Database(t) // not a copy of a migrated database, which has the same epoch
		require.NoError(t, postgres.Migrate(t.Context(), url))
		epoch, err := open(t, postgres.Options{URL: url}).Epoch(t.Context())
		require.NoError(t, err)
		epochs = append(epochs, epoch)
	}
	require.NotEqual(t, epochs[0], epochs[1])
}

func TestCurrent_OtherVersions(t *testing.T) {
	t.Parallel()
	// it does not wait for a migration
	empty := open(t, postgres.Options{URL: pgtest.Database(t), AppendTimeout: forever})
	require.ErrorIs(t, empty.Current(t.Context()), migration.ErrOld)
	_, err := empty.Append(t.Context(), start("a", fact(`{}`)))
	require.ErrorIs(t, err, eventstore.ErrUnavailable)

	url := database(t)
	store := open(t, postgres.Options{URL: url})
	require.NoError(t, store.Current(t.Context()))
	execute(t, url, `INSERT INTO log.migration (version_id, is_applied) VALUES (999, true)`)
	require.ErrorIs(t, store.Current(t.Context()), migration.ErrNew)
	execute(t, url, `DELETE FROM log.migration WHERE version_id > 0`)
	require.ErrorIs(t, store.Current(t.Context()), migration.ErrOld)
}

func TestEventReadable_JSON(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url})
	e := fact(`{"name": "Zoë"}`)
	e.Metadata.Account = "acme"
	storetest.Append(t, store, start("a", e, fact(`{"nul": "\u0000"}`), fact("\xff")))
	require.EqualValues(t, 1,
		execute(t, url,
			`SELECT FROM log.event_readable WHERE data ->> 'name' = 'Zoë' AND metadata ->> 'account' = 'acme'`))
	require.EqualValues(t, 3, execute(t, url, `SELECT data FROM log.event_readable`),
		"data that is no valid jsonb is readable, too")
}

func TestMain(m *testing.M) { pgtest.Main(m) }

// database returns the URL of a database with an empty log.
func database(t testing.TB) string {
	t.Helper()
	return pgtest.DatabaseFrom(t, "log", postgres.Migrate)
}

func open(t testing.TB, options postgres.Options) *postgres.Store {
	t.Helper()
	options.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	store, err := postgres.Open(context.Background(), options)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func fact(data string) eventstore.Event {
	return eventstore.Event{
		ID: ulid.Make(), Type: "test.happened.v1", At: time.Now().UTC().Truncate(time.Millisecond), Data: []byte(data),
	}
}

func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) eventstore.Store { return open(t, postgres.Options{URL: database(t)}) },
		storetest.Capabilities{GapFree: true})
}
