// Package projectiontest sets up tests of read models: a log and a database with views, histories on the log, and
// running projectors.
package projectiontest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

// Soon is the timeout of tests that wait for background work.
const Soon = 2 * time.Minute

// Start is the time of the first event of a World. Each later event is a millisecond later.
var Start = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

// World is a log, and a database of the test's own with views.
type World struct {
	URL   string
	Store eventstore.Store
	Pool  *pgxpool.Pool

	mu     sync.Mutex
	events int
}

// New makes a World that ends with the test. Its log is in memory.
func New(t testing.TB) *World {
	t.Helper()
	url := pgtest.DatabaseFrom(t, "views", schema.Migrate)
	return &World{URL: url, Store: storetest.Memory(), Pool: pgtest.Pool(t, url)}
}

// NewOnPostgres makes a World whose log is in its database, for tests that change the log behind the service's back or
// kill connections.
func NewOnPostgres(t testing.TB) *World {
	t.Helper()
	url := pgtest.DatabaseFrom(t, "log and views", func(ctx context.Context, url string) error {
		if err := postgres.Migrate(ctx, url); err != nil {
			return err
		}
		return schema.Migrate(ctx, url)
	})
	store, err := postgres.Open(t.Context(), postgres.Options{
		URL: url, MaxReaders: 4, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return &World{URL: url, Store: store, Pool: pgtest.Pool(t, url)}
}

// NewID returns an id that sorts after all earlier ones.
func (w *World) NewID() string { return w.NewEvent().ID.String() }

// NewEvent returns the next event without its account, type and data.
func (w *World) NewEvent() eventstore.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	at := Start.Add(time.Duration(w.events) * time.Millisecond)
	var id ulid.ULID
	if err := id.SetTime(ulid.Timestamp(at)); err != nil {
		panic(err) // the time is valid
	}
	id[15] = 1
	return eventstore.Event{ID: id, At: at, Metadata: event.Metadata{
		Actor: "user:ada", Credential: "jwt:urn:ada", RequestID: fmt.Sprintf("request-%d", w.events),
		IP: "192.0.2.7", UserAgent: "test/1",
	}}
}

// Append appends facts to a stream and returns the position of the last one.
func (w *World) Append(t testing.TB, account, stream string, facts ...event.Data) eventstore.Position {
	t.Helper()
	var events []eventstore.Event
	for _, fact := range facts {
		e := w.NewEvent()
		var err error
		e.Type, e.Data, err = event.Encode(fact)
		require.NoError(t, err)
		e.Metadata.Account = account
		events = append(events, e)
	}
	position, err := w.Store.Append(t.Context(), eventstore.Write{
		Stream: stream, Expect: eventstore.Any, Events: events,
	})
	require.NoError(t, err)
	return position
}

// Runner returns a runner of projectors, or of all projectors if none is given.
func (w *World) Runner(t testing.TB, projectors ...projection.Projector) *projection.Runner {
	t.Helper()
	if len(projectors) == 0 {
		projectors = view.All()
	}
	return w.RunnerOf(t, 0, projectors...)
}

// RunnerOf returns a runner of projectors with at most so many events in a transaction.
func (w *World) RunnerOf(t testing.TB, batch int, projectors ...projection.Projector) *projection.Runner {
	t.Helper()
	runner, err := projection.New(projection.Options{
		URL: w.URL, Store: w.Store, Projectors: projectors, Batch: batch, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return runner
}

// Seal makes Store one that seals personal data with keys in the World's database, and returns it.
func (w *World) Seal(t testing.TB) *sealed.Store {
	t.Helper()
	box, err := sealbox.New(bytes.Repeat([]byte{1}, sealbox.KeySize))
	require.NoError(t, err)
	store := sealed.Wrap(w.Store, sealed.NewVault(w.Pool, box), true, slog.New(slog.DiscardHandler))
	w.Store = store
	return store
}

// Run runs a runner until stop is called or the test ends.
func Run(t testing.TB, runner *projection.Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		runner.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// Await returns when every projector of the runner, in this process or another, has reached the head of the log.
func Await(t testing.TB, runner *projection.Runner) {
	t.Helper()
	var all []projection.Status
	var err error
	reached := func() bool {
		if all, err = runner.Status(t.Context()); err != nil {
			return false
		}
		for _, s := range all {
			if s.Lag > 0 || s.Err != nil {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(Soon); !reached(); {
		require.False(t, time.Now().After(deadline), "the views do not reach the head of the log: %+v %v", all, err)
		time.Sleep(2 * time.Millisecond)
	}
}

// CatchUp runs a runner until its projectors have reached the head of the log.
func CatchUp(t testing.TB, runner *projection.Runner) {
	t.Helper()
	stop := Run(t, runner)
	Await(t, runner)
	stop()
}

// Project updates all views up to the head of the log.
func (w *World) Project(t testing.TB) {
	t.Helper()
	CatchUp(t, w.Runner(t))
}
