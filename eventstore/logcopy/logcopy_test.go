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

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/logcopy"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func inEventStoreDB(t *testing.T) eventstore.Store {
	t.Helper()
	store, err := esdb.Open(t.Context(), esdb.Options{URL: esdbtest.Empty(t), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func inPostgreSQL(t *testing.T) eventstore.Store {
	t.Helper()
	url := pgtest.DatabaseFrom(t, "log", postgres.Migrate)
	store, err := postgres.Open(t.Context(), postgres.Options{URL: url, MaxReaders: 4, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

// directions are the ways that a log may go.
var directions = map[string]struct {
	from, to func(*testing.T) eventstore.Store
}{
	"to EventStoreDB": {inPostgreSQL, inEventStoreDB},
	"and back":        {inEventStoreDB, inPostgreSQL},
}

func newEvent(data string) eventstore.Event {
	id := ulid.Make()
	return eventstore.Event{
		ID: id, Type: "test.v1", At: ulid.Time(id.Time()).UTC(), Data: []byte(data),
		Metadata: event.Metadata{Account: "acme", Actor: "user:zoë", RequestID: "r-" + id.String()},
	}
}

// grow appends events here and there: single ones, runs on a stream, and large ones.
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
		put(t, store, fmt.Sprintf("test-%d", rand.N(30)), events...)
	}
}

func put(t *testing.T, store eventstore.Store, stream string, events ...eventstore.Event) {
	t.Helper()
	storetest.Append(t, store, eventstore.Write{Stream: stream, Expect: eventstore.Any, Events: events})
}

func bring(ctx context.Context, from, to eventstore.Store) error {
	return logcopy.Copy{From: from, To: to, Progress: func(_, _ eventstore.Position) {}}.Run(ctx)
}

// pair is where one event stands in the source and in the copy.
type pair struct{ from, to eventstore.Position }

func compare(ctx context.Context, from, to eventstore.Store) (audit.Head, []pair, error) {
	var pairs []pair
	digest, err := logcopy.Compare(ctx, from, to, func(_, _ eventstore.Position) {}, func(from, to eventstore.Position) error {
		pairs = append(pairs, pair{from, to})
		return nil
	})
	return digest, pairs, err
}

func TestCopy_SameLog(t *testing.T) {
	t.Parallel()
	for name, way := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := way.from(t), way.to(t)
			require.NoError(t, bring(t.Context(), from, to), "nothing, of nothing")
			for range 3 { // and it goes on as the source grows
				grow(t, from, 100)
				require.NoError(t, bring(t.Context(), from, to))
				digest, pairs, err := compare(t.Context(), from, to)
				require.NoError(t, err)
				require.EqualValues(t, len(pairs), digest.Size)
				back, _, err := compare(t.Context(), to, from)
				require.NoError(t, err)
				require.Equal(t, digest, back)
				for i := 1; i < len(pairs); i++ {
					require.Greater(t, pairs[i].from, pairs[i-1].from)
					require.Greater(t, pairs[i].to, pairs[i-1].to)
				}
			}
		})
	}
}

// Who has the longest name that there may be has done one thing after another to the same lead.
func TestCopy_LargeMetadata(t *testing.T) {
	t.Parallel()
	from, to := inPostgreSQL(t), inEventStoreDB(t)
	who := strings.Repeat("😀", 255)
	for range 300 {
		e := newEvent(`{}`)
		e.Metadata.Actor, e.Metadata.Credential = "user:"+who, "jwt:"+who
		e.Metadata.UserAgent = strings.Repeat(`"`, 1<<10)
		put(t, from, "test-1", e)
	}
	require.NoError(t, bring(t.Context(), from, to))
	_, _, err := compare(t.Context(), from, to)
	require.NoError(t, err)
}

// breaking is a store that breaks after so many writes, of which those before stay: what a killed process leaves.
type breaking struct {
	eventstore.Store
	left int
}

var errBroken = errors.New("killed")

func (b *breaking) Append(ctx context.Context, writes ...eventstore.Write) (position eventstore.Position, err error) {
	for _, w := range writes {
		if b.left--; b.left < 0 {
			return 0, errBroken
		}
		if position, err = b.Store.Append(ctx, w); err != nil {
			return 0, err
		}
	}
	return position, nil
}

func TestCopy_Resumes(t *testing.T) {
	t.Parallel()
	for name, way := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := way.from(t), way.to(t)
			grow(t, from, 150)
			for stops := 0; ; stops++ {
				err := bring(t.Context(), from, &breaking{Store: to, left: 1 + rand.N(15)})
				if err == nil {
					require.Greater(t, stops, 5)
					break
				}
				require.ErrorIs(t, err, errBroken)
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
	for name, there := range map[string]func(*testing.T, eventstore.Store){
		"another event":        func(t *testing.T, s eventstore.Store) { put(t, s, "test-1", newEvent(`{}`)) },
		"another stream":       func(t *testing.T, s eventstore.Store) { put(t, s, "test-2", shared) },
		"other data":           func(t *testing.T, s eventstore.Store) { put(t, s, "test-1", changed) },
		"another time":         func(t *testing.T, s eventstore.Store) { put(t, s, "test-1", later) },
		"other metadata":       func(t *testing.T, s eventstore.Store) { put(t, s, "test-1", other) },
		"more than the source": func(t *testing.T, s eventstore.Store) { put(t, s, "test-1", shared); grow(t, s, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, to := inEventStoreDB(t), inEventStoreDB(t)
			put(t, from, "test-1", shared)
			there(t, to)
			before := storetest.Head(t, to)
			require.ErrorIs(t, bring(t.Context(), from, to), logcopy.ErrOther)
			_, _, err := compare(t.Context(), from, to)
			require.ErrorIs(t, err, logcopy.ErrDiffers)
			after := storetest.Head(t, to)
			require.Equal(t, before, after)
		})
	}
}

// intruder is a store to which another writer appends just before the first append.
type intruder struct {
	eventstore.Store
	t    *testing.T
	came bool
}

func (i *intruder) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	if !i.came {
		i.came = true
		put(i.t, i.Store, writes[0].Stream, newEvent(`{}`))
	}
	return i.Store.Append(ctx, writes...)
}

func TestCopy_DetectsOtherWriter(t *testing.T) {
	t.Parallel()
	from, to := inEventStoreDB(t), inEventStoreDB(t)
	grow(t, from, 5)
	require.ErrorIs(t, bring(t.Context(), from, &intruder{Store: to, t: t}), logcopy.ErrOther)
}
