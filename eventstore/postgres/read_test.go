package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func TestRead_LargeEvents(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url})
	large := fact(`"` + strings.Repeat("x", eventstore.MaxEventData-2) + `"`)
	var ids []ulid.ULID
	for range 25 { // more than two pages
		large.ID = ulid.Make()
		ids = append(ids, large.ID)
		storetest.Append(t, store, eventstore.Write{
			Stream: "large", Expect: eventstore.Any, Events: []eventstore.Event{large},
		})
	}
	for i := range 6 { // the next pages, which are prefetched before the size of the large ones is known
		small := make([]eventstore.Event, 1000)
		for i := range small {
			small[i] = fact(`{}`)
		}
		storetest.Append(t, store, start(fmt.Sprint("small-", i), small...))
	}
	storetest.Append(t, store, start("last", fact(`{}`)))
	var read, followed []ulid.ULID
	for recorded, err := range store.Read(t.Context(), "large", 0) {
		require.NoError(t, err)
		read = append(read, recorded.ID)
	}
	events := follow(t, store, "last")()
	requireWhole(t, events)
	for _, recorded := range events[:len(ids)] {
		followed = append(followed, recorded.ID)
	}
	require.Equal(t, ids, read)
	require.Equal(t, ids, followed)
}

// fill appends a stream of events of the given size.
func fill(t *testing.T, store eventstore.Store, stream string, events, size int) {
	t.Helper()
	var all []eventstore.Event
	for range events {
		all = append(all, fact(`"`+strings.Repeat("x", size)+`"`))
	}
	storetest.Append(t, store, start(stream, all...))
}

// readWhole reads a stream with the given number of events from a revision on, and returns an error if the result is
// wrong.
func readWhole(ctx context.Context, store eventstore.Store, stream string, events, from int) error {
	next := from
	for recorded, err := range store.Read(ctx, stream, eventstore.Revision(from)) {
		if err != nil {
			return err
		}
		if recorded.Stream != stream || recorded.Revision != eventstore.Revision(next) {
			return fmt.Errorf("%s at %d: got %s at %d", stream, next, recorded.Stream, recorded.Revision)
		}
		next++
	}
	if next != max(events, from) {
		return fmt.Errorf("%s from %d ends at %d", stream, from, next)
	}
	return nil
}

func TestRead_SharedQuery(t *testing.T) {
	t.Parallel()
	store := open(t, postgres.Options{URL: database(t), MaxReaders: 2})
	lengths := []int{0, 1, 2, 49, 50, 51, 100, 700}
	for _, n := range lengths[1:] {
		fill(t, store, fmt.Sprint("s-", n), n, 10)
	}
	for range 3 {
		var readers sync.WaitGroup
		for _, n := range lengths {
			for _, from := range []int{0, 0, 1, 2, 48, 50, 51, 1000} {
				readers.Go(func() { assert.NoError(t, readWhole(t.Context(), store, fmt.Sprint("s-", n), n, from)) })
			}
		}
		readers.Wait()
	}
}

func TestRead_SharedQueryOfLargeStreams(t *testing.T) {
	t.Parallel()
	store := open(t, postgres.Options{URL: database(t), MaxReaders: 2})
	for i := range 12 { // together more than the limit of a query
		fill(t, store, fmt.Sprint("large-", i), 4, 250<<10)
	}
	fill(t, store, "small", 3, 10)
	var readers sync.WaitGroup
	for i := range 12 {
		readers.Go(func() { assert.NoError(t, readWhole(t.Context(), store, fmt.Sprint("large-", i), 4, 0)) })
		readers.Go(func() { assert.NoError(t, readWhole(t.Context(), store, "small", 3, i%4)) })
	}
	readers.Wait()
}

func TestRead_CancelledCallerIsolated(t *testing.T) {
	t.Parallel()
	store := open(t, postgres.Options{URL: database(t), MaxReaders: 2})
	fill(t, store, "s", 3, 10)
	var readers sync.WaitGroup
	for i := range 60 {
		readers.Go(func() {
			if i%2 == 0 {
				assert.NoError(t, readWhole(t.Context(), store, "s", 3, 0))
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			if err := readWhole(ctx, store, "s", 3, 0); err != nil {
				assert.ErrorIs(t, err, eventstore.ErrUnavailable)
				assert.ErrorIs(t, err, context.Canceled)
			}
		})
	}
	readers.Wait()
}

// The connection of a query was once closed after a page that was too large and after a consumer that stopped.
func TestRead_KeepsItsConnection(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, MaxReaders: 1})
	fill(t, store, "mixed", 60, 10)
	for i := range 40 {
		storetest.Append(t, store, write("mixed", eventstore.Expected(59+i), 1, 512<<10))
	}
	pool := pgtest.Pool(t, url)
	connections := func() (pids []int32) {
		rows, err := pool.Query(t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database()
			AND backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid`)
		require.NoError(t, err)
		pids, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		require.NoError(t, err)
		return pids
	}
	require.NoError(t, readWhole(t.Context(), store, "mixed", 100, 90))
	before := connections()
	require.NoError(t, readWhole(t.Context(), store, "mixed", 100, 0))
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		for recorded, err := range store.Read(ctx, "mixed", 0) {
			require.NoError(t, err)
			if recorded.Revision == 40 { // the next page is being prefetched
				break
			}
		}
		cancel()
	}
	require.NoError(t, readWhole(t.Context(), store, "mixed", 100, 0))
	require.Equal(t, before, connections())
}

// write returns a write of events of the given size.
func write(stream string, expect eventstore.Expected, events, size int) eventstore.Write {
	w := eventstore.Write{Stream: stream, Expect: expect}
	for range events {
		w.Events = append(w.Events, fact(`"`+strings.Repeat("x", size)+`"`))
	}
	return w
}
