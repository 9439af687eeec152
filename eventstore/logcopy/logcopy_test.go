package logcopy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/logcopy"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// openEventStoreDB opens a store that appends by locks, and openKurrentDB one that appends in one call.
func openEventStoreDB(t *testing.T) eventstore.Store {
	t.Helper()
	return openESDB(t, esdbtest.Start(t).URL())
}

func openKurrentDB(t *testing.T) eventstore.Store {
	t.Helper()
	return openESDB(t, esdbtest.Empty(t))
}

func openESDB(t *testing.T, url string) eventstore.Store {
	t.Helper()
	store, err := esdb.Open(t.Context(), esdb.Options{URL: url, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func openPostgreSQL(t *testing.T) eventstore.Store {
	t.Helper()
	url := pgtest.DatabaseFrom(t, "log", postgres.Migrate)
	store, err := postgres.Open(t.Context(), postgres.Options{
		URL: url, MaxReaders: 4, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

// directions are the pairs of source and target.
var directions = map[string]struct {
	from, to func(*testing.T) eventstore.Store
}{
	"to EventStoreDB": {openPostgreSQL, openEventStoreDB},
	"to KurrentDB":    {openEventStoreDB, openKurrentDB},
	"back from it":    {openKurrentDB, openEventStoreDB},
	"to PostgreSQL":   {openKurrentDB, openPostgreSQL},
}

func newEvent(data string) eventstore.Event {
	id := ulid.Make()
	return eventstore.Event{
		ID: id, Type: "test.v1", At: ulid.Time(id.Time()).UTC(), Data: []byte(data),
		Metadata: event.Metadata{Account: "acme", Actor: "user:zoë", RequestID: "r-" + id.String()},
	}
}

// grow appends single events, several events to one stream, and large events to random streams.
func grow(t *testing.T, store eventstore.Store, appends int) {
	t.Helper()
	for range appends {
		events := []eventstore.Event{newEvent(`{"größe": 1.10}`)}
		switch rand.N(40) {
		case 0:
			events = append(events, newEvent(`{}`), newEvent(`[ ]`))
		case 1:
			events = []eventstore.Event{newEvent(`"` + strings.Repeat("x", 600<<10) + `"`)}
		}
		appendTo(t, store, fmt.Sprintf("test-%d", rand.N(30)), events...)
	}
}

func appendTo(t *testing.T, store eventstore.Store, stream string, events ...eventstore.Event) {
	t.Helper()
	storetest.Append(t, store, eventstore.Write{Stream: stream, Expect: eventstore.Any, Events: events})
}

func runCopy(ctx context.Context, from, to eventstore.Store) error {
	return logcopy.Copy{From: from, To: to, Progress: func(_, _ eventstore.Position) {}}.Run(ctx)
}

// pair is the positions of one event in the source and in the copy.
type pair struct{ from, to eventstore.Position }

func compare(ctx context.Context, from, to eventstore.Store) (tlog.Tree, []pair, error) {
	var pairs []pair
	digest, err := logcopy.Compare(ctx, from, to, func(_, _ eventstore.Position) {}, func(
		from, to eventstore.Position,
	) error {
		pairs = append(pairs, pair{from, to})
		return nil
	})
	return digest, pairs, err
}

func TestCopy_SameLog(t *testing.T) {
	t.Parallel()
	for name, direction := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := direction.from(t), direction.to(t)
			require.NoError(t, runCopy(t.Context(), from, to), "an empty source")
			for range 3 { // resumes after the source grew
				grow(t, from, 100)
				require.NoError(t, runCopy(t.Context(), from, to))
				digest, pairs, err := compare(t.Context(), from, to)
				require.NoError(t, err)
				require.EqualValues(t, len(pairs), digest.N)
				reversed, _, err := compare(t.Context(), to, from)
				require.NoError(t, err)
				require.Equal(t, digest, reversed)
				for i := 1; i < len(pairs); i++ {
					require.Greater(t, pairs[i].from, pairs[i-1].from)
					require.Greater(t, pairs[i].to, pairs[i-1].to)
				}
			}
		})
	}
}

// An actor with the longest possible name appends many events to one stream.
func TestCopy_LargeMetadata(t *testing.T) {
	t.Parallel()
	from, to := openPostgreSQL(t), openEventStoreDB(t)
	longest := strings.Repeat("😀", 255)
	for range 300 {
		e := newEvent(`{}`)
		e.Metadata.Actor, e.Metadata.Credential = "user:"+longest, "jwt:"+longest
		e.Metadata.UserAgent = strings.Repeat(`"`, 1<<10)
		appendTo(t, from, "test-1", e)
	}
	require.NoError(t, runCopy(t.Context(), from, to))
	_, _, err := compare(t.Context(), from, to)
	require.NoError(t, err)
}

// killedStore fails after a number of writes, and keeps the earlier writes of an append, like a killed process.
type killedStore struct {
	eventstore.Store
	remaining int
}

var errKilled = errors.New("killed")

func (s *killedStore) Append(
	ctx context.Context, writes ...eventstore.Write,
) (position eventstore.Position, err error) {
	for _, w := range writes {
		if s.remaining--; s.remaining < 0 {
			return 0, errKilled
		}
		if position, err = s.Store.Append(ctx, w); err != nil {
			return 0, err
		}
	}
	return position, nil
}

func TestCopy_Resumes(t *testing.T) {
	t.Parallel()
	for name, direction := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := direction.from(t), direction.to(t)
			grow(t, from, 150)
			for stops := 0; ; stops++ {
				err := runCopy(t.Context(), from, &killedStore{Store: to, remaining: 1 + rand.N(15)})
				if err == nil {
					require.Greater(t, stops, 5)
					break
				}
				require.ErrorIs(t, err, errKilled)
			}
			_, _, err := compare(t.Context(), from, to)
			require.NoError(t, err)
		})
	}
}

func TestCopy_RejectsOtherTarget(t *testing.T) {
	t.Parallel()
	shared := newEvent(`{}`)
	changed := shared
	changed.Data = []byte(`{ }`)
	later := shared
	later.At = later.At.Add(time.Millisecond)
	other := shared
	other.Metadata.Account = "umbrella"
	for name, fill := range map[string]func(*testing.T, eventstore.Store){
		"another event":  func(t *testing.T, s eventstore.Store) { appendTo(t, s, "test-1", newEvent(`{}`)) },
		"another stream": func(t *testing.T, s eventstore.Store) { appendTo(t, s, "test-2", shared) },
		"other data":     func(t *testing.T, s eventstore.Store) { appendTo(t, s, "test-1", changed) },
		"another time":   func(t *testing.T, s eventstore.Store) { appendTo(t, s, "test-1", later) },
		"other metadata": func(t *testing.T, s eventstore.Store) { appendTo(t, s, "test-1", other) },
		"more than the source": func(t *testing.T, s eventstore.Store) {
			appendTo(t, s, "test-1", shared)
			grow(t, s, 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := openEventStoreDB(t), openEventStoreDB(t)
			appendTo(t, from, "test-1", shared)
			fill(t, to)
			before := storetest.Head(t, to)
			require.ErrorIs(t, runCopy(t.Context(), from, to), logcopy.ErrOther)
			_, _, err := compare(t.Context(), from, to)
			require.ErrorIs(t, err, logcopy.ErrDiffers)
			after := storetest.Head(t, to)
			require.Equal(t, before, after)
		})
	}
}

// contendedStore appends an event of another writer before the first append.
type contendedStore struct {
	eventstore.Store
	t        *testing.T
	appended bool
}

func (s *contendedStore) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if !s.appended {
		s.appended = true
		appendTo(s.t, s.Store, writes[0].Stream, newEvent(`{}`))
	}
	return s.Store.Append(ctx, writes...)
}

func TestCopy_DetectsOtherWriter(t *testing.T) {
	t.Parallel()
	from, to := openEventStoreDB(t), openEventStoreDB(t)
	grow(t, from, 5)
	require.ErrorIs(t, runCopy(t.Context(), from, &contendedStore{Store: to, t: t}), logcopy.ErrOther)
}
