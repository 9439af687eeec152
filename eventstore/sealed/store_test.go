package sealed_test

import (
	"bytes"
	"context"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdb"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var (
	sealKey = bytes.Repeat([]byte{1}, sealbox.KeySize)
	nextKey = bytes.Repeat([]byte{2}, sealbox.KeySize)
)

// fixture is a log with the database of its keys.
type fixture struct {
	t    testing.TB
	url  string // of the database
	log  string // of the server, when the log is not in the database
	pool *pgxpool.Pool
}

// onBoth runs a test with the log in PostgreSQL and in EventStoreDB.
func onBoth(t *testing.T, test func(*testing.T, fixture)) {
	t.Parallel()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, newFixture(t, ""))
	})
	t.Run("EventStoreDB", func(t *testing.T) {
		t.Parallel()
		test(t, newFixture(t, esdbtest.Empty(t)))
	})
}

func newFixture(t testing.TB, log string) fixture {
	t.Helper()
	p := fixture{t: t, url: pgtest.DatabaseFrom(t, "log", postgres.Migrate), log: log}
	var err error
	p.pool, err = pgxpool.New(t.Context(), p.url)
	require.NoError(t, err)
	t.Cleanup(p.pool.Close)
	return p
}

// below opens the underlying store as a new process.
func (p fixture) below() eventstore.Store {
	p.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	if p.log != "" {
		store, err := esdb.Open(context.Background(), esdb.Options{URL: p.log, Log: quiet})
		require.NoError(p.t, err)
		p.t.Cleanup(store.Close)
		return store
	}
	store, err := postgres.Open(context.Background(), postgres.Options{URL: p.url, MaxReaders: 4, Log: quiet})
	require.NoError(p.t, err)
	p.t.Cleanup(store.Close)
	return store
}

func (p fixture) vault(keys ...[]byte) *sealed.Vault {
	p.t.Helper()
	box, err := sealbox.New(keys...)
	require.NoError(p.t, err)
	return sealed.NewVault(p.pool, box)
}

// open opens the sealed store as a new process.
func (p fixture) open(keys ...[]byte) *sealed.Store {
	p.t.Helper()
	if len(keys) == 0 {
		keys = [][]byte{sealKey}
	}
	return sealed.Wrap(p.below(), p.vault(keys...), p.log == "", slog.New(slog.DiscardHandler))
}

func (p fixture) keys(stream string) (n int) {
	p.t.Helper()
	require.NoError(p.t,
		p.pool.QueryRow(p.t.Context(), `SELECT count(*) FROM person.key WHERE stream = $1`, stream).Scan(&n))
	return n
}

func fact(t testing.TB, data event.Data) eventstore.Event {
	t.Helper()
	name, encoded, err := event.Encode(data)
	require.NoError(t, err)
	return eventstore.Event{
		ID: ulid.Make(), Type: name, At: time.Now().UTC().Truncate(time.Millisecond), Data: encoded,
		Metadata: event.Metadata{Account: "acme", IP: "203.0.113.7", UserAgent: "Ashas browser"},
	}
}

func write(stream string, expect eventstore.Expected, events ...eventstore.Event) eventstore.Write {
	return eventstore.Write{Stream: stream, Expect: expect, Events: events}
}

func asha() event.LeadCreated {
	return event.LeadCreated{
		ContactUID: "c", LeadFields: event.LeadFields{Name: "Asha Rao", Phone: "+919876543210", Status: "new"},
		Source: "api", IP: "203.0.113.7",
	}
}

func newLead() string { return event.LeadStream(ulid.Make().String()) }

func read(t testing.TB, store eventstore.Store, stream string) (all []eventstore.Recorded) {
	t.Helper()
	for r, err := range store.Read(t.Context(), stream, 0) {
		require.NoError(t, err)
		all = append(all, r)
	}
	return all
}

func follow(t testing.TB, store eventstore.Store) []eventstore.Recorded {
	t.Helper()
	return storetest.Events(t, store, eventstore.Filter{})
}

func requireNoPersonalData(t testing.TB, all []eventstore.Recorded) {
	t.Helper()
	for _, r := range all {
		for _, trace := range []string{"Asha", "9876543210", "203.0.113.7"} {
			require.NotContains(t, string(r.Data)+r.Metadata.IP+r.Metadata.UserAgent, trace)
		}
	}
}

func TestStore_LogHasNoPersonalData(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, stream := p.open(), newLead()
		visitor := event.VisitorStream("acme", "aa")
		created, merged := fact(t, asha()),
			fact(t, event.LeadMerged{Source: "website", LeadFields: event.LeadFields{Name: "Asha R."}})
		acted := fact(t, event.VisitorActed{VisitorID: "Asha", Kind: "click", URL: "https://example.com/Asha"})
		claim := eventstore.Event{
			ID: ulid.Make(), Type: event.ClaimTaken{}.EventType(), At: created.At, Data: []byte(`{"kind":"phone"}`),
		}
		storetest.Append(t, store, write("claim-1", eventstore.NoStream, claim),
			write(stream, eventstore.NoStream, created))
		storetest.Append(t, store, write(stream, eventstore.At(0), merged))
		for range 2 {
			storetest.Append(t, store, write(visitor, eventstore.NoStream, acted))
		}
		requireNoPersonalData(t, follow(t, p.below()))
		require.Equal(t, 1, p.keys(stream))
		require.Positive(t, p.keys(visitor))
		require.Zero(t, p.keys("claim-1"))

		for name, reader := range map[string]*sealed.Store{"the writer": store, "another process": p.open()} {
			for way, all := range map[string][]eventstore.Recorded{
				"read": read(t, reader, stream), "followed": follow(t, reader)[1:3],
			} {
				require.Len(t, all, 2, "%s %s", name, way)
				for i, given := range []eventstore.Event{created, merged} {
					require.JSONEq(t, string(given.Data), string(all[i].Data))
					require.Len(t, all[i].Metadata.Commitment, 64)
					given.Metadata.Commitment = all[i].Metadata.Commitment
					require.Equal(t, given.Metadata, all[i].Metadata)
					require.False(t, all[i].Erased)
				}
			}
			acts := read(t, reader, visitor)
			require.Len(t, acts, 1)
			require.JSONEq(t, string(acted.Data), string(acts[0].Data))
		}
	})
}

func TestDestroy_EveryProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, other, stream := p.open(), p.open(), newLead()
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
		listening, stop := context.WithCancel(t.Context())
		defer stop()
		go other.Run(listening)
		require.Eventually(t, func() bool {
			var n int
			err := p.pool.QueryRow(t.Context(),
				`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
					AND query LIKE 'LISTEN leadlog_forgotten%'`).Scan(&n)
			return err == nil && n == 1
		}, time.Minute, time.Millisecond)
		require.Contains(t, string(read(t, other, stream)[0].Data), "Asha", "the key is cached from now on")

		erased := fact(t, event.LeadErased{Claims: []string{"claim-1"}})
		storetest.Append(t, store, write(stream, eventstore.At(0), erased))
		require.NoError(t, store.Destroy(t.Context(), stream))
		require.Zero(t, p.keys(stream))
		require.Eventually(t, func() bool { return read(t, other, stream)[0].Erased }, time.Minute, time.Millisecond)
		for _, all := range [][]eventstore.Recorded{
			read(t, store, stream), read(t, other, stream), read(t, p.open(), stream), follow(t, store),
			follow(t, p.open()),
		} {
			require.Len(t, all, 2)
			require.True(t, all[0].Erased)
			require.JSONEq(t, `{"contactUID":"c","status":"new","source":"api","erased":true}`, string(all[0].Data))
			require.False(t, all[1].Erased)
			require.JSONEq(t, string(erased.Data), string(all[1].Data), "an erasure is not sealed")
			requireNoPersonalData(t, all[:1])
		}
		require.NoError(t, store.Destroy(t.Context(), stream), "again")
	})
}

// A call deletes keys, and its wait for a synchronous standby is cancelled. The next call has nothing to delete, but
// must wait as well.
func TestDestroy_RepeatAwaitsStandby(t *testing.T) {
	t.Parallel()
	pair := pgtest.NewPair(t)
	require.NoError(t, postgres.Migrate(t.Context(), pair.Primary.URL()))
	p := fixture{t: t, url: pair.Primary.URL(), pool: pgtest.Pool(t, pair.Primary.URL())}
	store, stream := p.open(), newLead()
	storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
	pair.StopStandby(t)
	timeout := 300 * time.Millisecond
	destroy := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return store.Destroy(ctx, stream)
	}
	require.ErrorIs(t, destroy(), eventstore.ErrUnavailable)
	for p.keys(stream) > 0 { // a busy machine takes longer to reach the wait for the standby
		timeout += timeout / 2
		require.ErrorIs(t, destroy(), eventstore.ErrUnavailable)
	}
	require.ErrorIs(t, destroy(), eventstore.ErrUnavailable)
	pair.StartStandby(t)
	require.NoError(t, store.Destroy(t.Context(), stream))
}

// Every role of the database may listen, so the notification must have no payload.
func TestDestroy_NotificationIsEmpty(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		conn, err := p.pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		pgtest.Exec(t, conn, `LISTEN leadlog_forgotten`)
		store, stream := p.open(), newLead()
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
		require.NoError(t, store.Destroy(t.Context(), stream))
		n, err := conn.Conn().WaitForNotification(t.Context())
		require.NoError(t, err)
		require.Empty(t, n.Payload)
	})
}

// The cache is cleared when a process begins to listen, well before the TTL.
func TestRun_ClearsCache(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	store, other, stream := p.open(), p.open(), newLead()
	storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
	require.Contains(t, string(read(t, other, stream)[0].Data), "Asha")
	require.NoError(t, store.Destroy(t.Context(), stream))
	require.Contains(t, string(read(t, other, stream)[0].Data), "Asha", "the process is not notified yet")
	listening, stop := context.WithCancel(t.Context())
	defer stop()
	go other.Run(listening)
	require.Eventually(t, func() bool { return read(t, other, stream)[0].Erased }, 30*time.Second, time.Millisecond)
}

// A page is read before an erasure and its keys are looked up after it. The reader must receive the erasure as well.
func TestRead_ErasedEventAndItsFact(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	store, stream := p.open(), newLead()
	storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
	between := &hookedRead{Store: p.below(), afterRead: func() {
		storetest.Append(t, store, write(stream, eventstore.At(0), fact(t, event.LeadErased{})))
		require.NoError(t, store.Destroy(t.Context(), stream))
	}}
	all := read(t, sealed.Wrap(between, p.vault(sealKey), true, slog.New(slog.DiscardHandler)), stream)
	require.Len(t, all, 2)
	require.True(t, all[0].Erased)
	require.Equal(t, event.LeadErased{}.EventType(), all[1].Type)
}

// hookedRead calls afterRead after the first page of a stream was read.
type hookedRead struct {
	eventstore.Store
	afterRead func()
	done      atomic.Bool
}

func (m *hookedRead) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		var page []eventstore.Recorded
		for r, err := range m.Store.Read(ctx, stream, from) {
			if err != nil {
				yield(r, err)
				return
			}
			page = append(page, r)
		}
		if m.done.CompareAndSwap(false, true) {
			m.afterRead()
		}
		for _, r := range page {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Both stores accept the largest possible lead of a capture after sealing.
func TestAppend_LargestLead(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, stream := p.open(), newLead()
		large := fact(t, event.LeadCreated{LeadFields: event.LeadFields{Name: strings.Repeat("n", 735<<10)}})
		storetest.Append(t, store, write(stream, eventstore.NoStream, large))
		require.JSONEq(t, string(large.Data), string(read(t, store, stream)[0].Data))
	})
}

func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t testing.TB) eventstore.Store { return newFixture(t, "").open() },
		storetest.Capabilities{GapFree: true})
}
