package sealed_test

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// When log and keys share no transaction, a key is stored before the append, and another process may use it. So the key
// is kept after a conflict.
func TestAppend_RefusedKeepsKey(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, stream, taken := p.open(), newLead(), newLead()
		refused := func(writes ...eventstore.Write) {
			t.Helper()
			_, err := store.Append(t.Context(), writes...)
			require.NotNil(t, eventstore.Conflict(err))
			if p.log == "" {
				require.Zero(t, p.keys(stream))
			}
			held, err := store.HasKeys(t.Context(), stream)
			require.NoError(t, err)
			require.Equal(t, len(read(t, store, stream)) > 0, held, "a key without an event is not held")
		}
		refused(eventstore.Check("claim-1", eventstore.At(3)), write(stream, eventstore.NoStream, fact(t, asha())))
		refused(write(stream, eventstore.NoStream, fact(t, asha())), eventstore.Check("claim-1", eventstore.At(3)))
		storetest.Append(t, store, write(taken, eventstore.NoStream, fact(t, asha())))
		refused(write(stream, eventstore.NoStream, fact(t, asha())), write(taken, eventstore.NoStream, fact(t, asha())),
			write("claim-2", eventstore.NoStream, fact(t, event.ClaimTaken{Kind: "phone", Holder: "1"})))
		require.Contains(t, string(read(t, p.open(), taken)[0].Data), "Asha")
		for _, r := range read(t, p.open(), stream) { // EventStoreDB may keep the first write
			require.False(t, r.Erased)
		}
	})
}

// An append with an unknown outcome is retried after its key was destroyed.
func TestAppend_RepeatAfterDestroy(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	store, stream := p.open(), newLead()
	again := write(stream, eventstore.NoStream, fact(t, asha()))
	first := storetest.Append(t, store, again)
	require.NoError(t, store.Destroy(t.Context(), stream))
	position := storetest.Append(t, store, again)
	require.Equal(t, first, position)
	require.Zero(t, p.keys(stream))
	require.True(t, read(t, store, stream)[0].Erased)
}

// A repeat of an append by another process is idempotent. The next append of that process is sealed with the stored
// key.
func TestAppend_RepeatByOtherProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		stream := newLead()
		again := write(stream, eventstore.NoStream, fact(t, asha()))
		_, err := p.open().Append(t.Context(), again)
		require.NoError(t, err)
		store := p.open()
		storetest.Append(t, store, again)
		storetest.Append(t, store, write(stream, eventstore.At(0), fact(t, event.LeadMerged{
			Source: "api", LeadFields: event.LeadFields{Name: "Asha"},
		})))
		for _, r := range read(t, p.open(), stream) {
			require.False(t, r.Erased, r.Type)
		}
	})
}

// A browser keeps its visitor id, so activity may follow the erasure of a visitor. It is sealed with a new key.
func TestDestroy_VisitorReturns(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, stream := p.open(), event.VisitorStream("acme", "aa")
		act := func() {
			storetest.AppendNext(t, store, stream, fact(t, event.VisitorActed{
				VisitorID: "v", Kind: "click", URL: "https://example.com/",
			}))
		}
		act()
		act()
		require.NoError(t, store.Destroy(t.Context(), stream))
		act()
		require.NoError(t, store.Destroy(t.Context(), stream))
		act()
		for _, all := range [][]eventstore.Recorded{
			read(t, store, stream), read(t, p.open(), stream), follow(t, p.open()),
		} {
			require.Len(t, all, 4)
			for i, r := range all {
				require.Equal(t, i < 3, r.Erased, i)
			}
		}
	})
}

// A restored backup has the destroyed key of a visitor who was forgotten and has returned.
func TestDestroyReturned_RestoredKey(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, stream := p.open(), event.VisitorStream("acme", "aa")
		appendFact := func(data event.Data) { storetest.AppendNext(t, store, stream, fact(t, data)) }
		returned := func() bool {
			found, err := store.Returned(t.Context(), event.VisitorStream("acme", "bb"), stream)
			require.NoError(t, err)
			return found
		}
		acted := event.VisitorActed{VisitorID: "v", Kind: "click"}
		appendFact(acted)
		pgtest.Exec(t, p.pool, `CREATE TABLE person.backup AS TABLE person.key`)
		require.False(t, returned(), "before the visitor is forgotten")
		require.NoError(t, store.Destroy(t.Context(), stream))
		appendFact(event.VisitorForgotten{})
		require.Zero(t, p.keys(stream), "the fact needs no key")
		appendFact(acted)
		require.False(t, returned())
		pgtest.Exec(t, p.pool, `INSERT INTO person.key TABLE person.backup`)
		require.True(t, returned())
		require.NoError(t, store.DestroyReturned(t.Context(), stream))
		require.False(t, returned())
		all := read(t, p.open(), stream)
		require.True(t, all[0].Erased)
		require.False(t, all[2].Erased)
		p.pool.Close()
		_, err := store.Returned(t.Context(), stream)
		require.ErrorIs(t, err, eventstore.ErrUnavailable, "a failed lookup is an error")
		require.ErrorIs(t, store.DestroyReturned(t.Context(), stream), eventstore.ErrUnavailable)
	})
}

// A visitor returned after a key was lost, and only the events of that key were declared lost.
func TestDestroyReturned_KeyNamedByFact(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		stream, acted := event.VisitorStream("acme", "aa"), event.VisitorActed{VisitorID: "v", Kind: "click"}
		appendFact := func(data event.Data) { storetest.AppendNext(t, p.open(), stream, fact(t, data)) }
		returned := func() bool {
			found, err := p.open().Returned(t.Context(), stream)
			require.NoError(t, err)
			return found
		}
		appendFact(acted)
		pgtest.Exec(t, p.pool, `CREATE TABLE person.backup AS TABLE person.key`)
		pgtest.Exec(t, p.pool, `DELETE FROM person.key`)
		appendFact(acted)
		lost := read(t, p.open(), stream)[0].KeyID
		appendFact(event.VisitorForgotten{Keys: []string{strconv.FormatInt(lost, 10)}})
		appendFact(acted)
		require.False(t, returned())
		pgtest.Exec(t, p.pool, `INSERT INTO person.key TABLE person.backup`)
		require.True(t, returned())
		require.NoError(t, p.open().DestroyReturned(t.Context(), stream))
		require.False(t, returned())
		all := read(t, p.open(), stream)
		require.True(t, all[0].Erased)
		require.False(t, all[1].Erased || all[3].Erased)
	})
}

// The caller may append the same events again after a conflict.
func TestAppend_DoesNotModifyArguments(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	writes := []eventstore.Write{write(newLead(), eventstore.NoStream, fact(t, asha()))}
	given := slices.Clone(writes)
	_, err := p.open().Append(t.Context(), writes...)
	require.NoError(t, err)
	require.Equal(t, given, writes)
	require.Contains(t, string(writes[0].Events[0].Data), "Asha")
}

func TestRead_UnsealedEvents(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		stream, created := newLead(), fact(t, asha())
		_, err := p.below().Append(t.Context(), write(stream, eventstore.NoStream, created))
		require.NoError(t, err)
		store := p.open()
		storetest.Append(t, store, write(stream, eventstore.At(0), fact(t, event.LeadMerged{
			Source: "website", LeadFields: event.LeadFields{Name: "Asha R."},
		})))
		for _, all := range [][]eventstore.Recorded{read(t, store, stream), follow(t, p.open())} {
			require.Len(t, all, 2)
			require.Equal(t, created.Data, all[0].Data)
			require.Equal(t, created.Metadata, all[0].Metadata)
			require.Contains(t, string(all[1].Data), "Asha R.")
		}
	})
}

func TestRewrap_PersonKeys(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	store := p.open()
	var streams []string
	for range 1203 { // more than one batch
		streams = append(streams, newLead())
	}
	var writes []eventstore.Write
	for _, stream := range streams {
		writes = append(writes, write(stream, eventstore.NoStream, fact(t, asha())))
	}
	storetest.Append(t, store, writes...)

	requireReadError := func(store *sealed.Store, target error) {
		t.Helper()
		for _, err := range store.Read(t.Context(), streams[0], 0) {
			require.ErrorIs(t, err, target)
		}
		for _, err := range store.Subscribe(t.Context(), 0, eventstore.Filter{}) {
			require.ErrorIs(t, err, target)
		}
	}
	requireReadError(p.open(nextKey), sealbox.ErrUnknownKey)
	keyless := sealed.Wrap(p.below(), p.vault(), true, slog.New(slog.DiscardHandler))
	requireReadError(keyless, sealbox.ErrNoKey)
	_, err := keyless.Append(t.Context(), write(newLead(), eventstore.NoStream, fact(t, asha())))
	require.ErrorIs(t, err, sealbox.ErrNoKey)

	const flip = `UPDATE person.key SET sealed = set_byte(sealed, 0, get_byte(sealed, 0) # 1) WHERE stream = $1`
	pgtest.Exec(t, p.pool, flip, streams[7])
	n, err := p.vault(nextKey, sealKey).Rewrap(t.Context())
	require.ErrorIs(t, err, sealbox.ErrDamaged)
	require.ErrorContains(t, err, streams[7])
	require.Equal(t, len(streams)-1, n, "a damaged key does not stop the others")
	pgtest.Exec(t, p.pool, flip, streams[7])
	n, err = p.vault(nextKey, sealKey).Rewrap(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	requireReadError(p.open(), sealbox.ErrUnknownKey)
	all := follow(t, p.open(nextKey))
	require.Len(t, all, len(streams))
	for _, r := range all {
		require.Contains(t, string(r.Data), "Asha")
	}
	n, err = p.vault(nextKey).Rewrap(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestAppend_KeyOfOtherStream(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	store, stream := p.open(), newLead()
	storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
	moved := newLead()
	pgtest.Exec(t, p.pool, `UPDATE person.key SET stream = $1`, moved)
	_, err := store.Append(t.Context(), write(moved, eventstore.At(7), fact(t, asha())))
	require.ErrorContains(t, err, "is damaged")
}

func TestStore_KeyDatabaseDown(t *testing.T) {
	t.Parallel()
	p := newFixture(t, esdbtest.Empty(t))
	store, stream := p.open(), newLead()
	storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
	p.pool.Close()
	_, err := store.Append(t.Context(), write(newLead(), eventstore.NoStream, fact(t, asha())))
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	for _, err := range sealed.Wrap(p.below(), p.vault(sealKey), false,
		slog.New(slog.DiscardHandler)).Read(t.Context(), stream, 0) {
		require.ErrorIs(t, err, eventstore.ErrUnavailable)
	}
}

// The hash was computed by another program. Stored commitments are compared with keys that are found later.
func TestCommitment_KnownHash(t *testing.T) {
	t.Parallel()
	var secret [sealbox.KeySize]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	require.Equal(t, "93c3872b9f2311ca698cd0c7e578619d30d1ad8e42f96b78339aa5458797e1d7", sealed.Commitment(secret))
}

func TestCommitments_OfEveryKey(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		store, one, two := p.open(), newLead(), newLead()
		for _, stream := range []string{one, two} {
			storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
		}
		found, err := store.Commitments(t.Context(), one, two, newLead())
		require.NoError(t, err)
		require.Len(t, found, 2)
		require.Len(t, found[one], 1)
		require.NotEqual(t, found[one], found[two])

		_, err = p.vault(nextKey, sealKey).Rewrap(t.Context())
		require.NoError(t, err)
		require.NoError(t, store.Destroy(t.Context(), two))
		later, err := p.open(nextKey).Commitments(t.Context(), one, two)
		require.NoError(t, err)
		require.Equal(t, map[string][]string{one: found[one]}, later,
			"the commitment does not depend on the sealing key")
	})
}

// Appends that wait for the vault at the same time store their keys in one transaction.
func TestAppend_KeysShareTransactions(t *testing.T) {
	t.Parallel()
	p := newFixture(t, esdbtest.Shared(t))
	vault := p.vault(sealKey)
	store := sealed.Wrap(p.below(), vault, false, slog.New(slog.DiscardHandler))
	storetest.Append(t, store, write(newLead(), eventstore.NoStream, fact(t, asha()))) // connects
	storing := vault.Storing()
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }() // it may be committed
	_, err = tx.Exec(t.Context(), `LOCK TABLE person.key IN EXCLUSIVE MODE`)
	require.NoError(t, err)
	const appends = 64
	var appending sync.WaitGroup
	streams, errs := make([]string, appends), make([]error, appends)
	for i := range appends {
		streams[i] = newLead()
		writes := write(streams[i], eventstore.NoStream, fact(t, asha()))
		appending.Go(func() {
			_, errs[i] = store.Append(t.Context(), writes)
		})
	}
	require.Eventually(t, func() bool { return storing() == appends }, time.Minute, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	appending.Wait()
	other := p.open()
	for i, err := range errs {
		require.NoError(t, err)
		require.Contains(t, string(read(t, other, streams[i])[0].Data), "Asha")
	}
	require.Less(t, pgtest.Value[int](t, p.pool, `SELECT count(DISTINCT xmin::text) FROM person.key`), appends/2)
}

// afterAppend is a store that calls a function before Append returns.
type afterAppend struct {
	eventstore.Store
	call func()
}

func (s afterAppend) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	position, err := s.Store.Append(ctx, writes...)
	s.call()
	return position, err
}

// The tail may read an event before its append returns. It opens it without the database.
func TestAppend_CachesKeyForTail(t *testing.T) {
	onBoth(t, func(t *testing.T, p fixture) {
		below, stream := p.below(), newLead()
		var store *sealed.Store
		store = sealed.Wrap(afterAppend{below, func() {
			pgtest.Exec(t, p.pool, `ALTER TABLE person.key RENAME TO away`)
			events := read(t, below, stream)
			require.NoError(t, store.Open(t.Context(), events))
			require.Contains(t, string(events[0].Data), "Asha")
		}}, p.vault(sealKey), p.log == "", slog.New(slog.DiscardHandler))
		storetest.Append(t, store, write(stream, eventstore.NoStream, fact(t, asha())))
	})
}
