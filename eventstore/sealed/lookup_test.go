package sealed_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// hookedAppend calls appended after each append.
type hookedAppend struct {
	eventstore.Store
	appended func()
}

func (s hookedAppend) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	position, err := s.Store.Append(ctx, writes...)
	s.appended()
	return position, err
}

func TestSubscribe_OwnKeysWithoutLookup(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	var store *sealed.Store
	seen := 0
	store = sealed.Wrap(hookedAppend{p.below(), func() {
		p.pool.Close() // a lookup of a key fails
		for _, r := range follow(t, store) {
			require.Contains(t, string(r.Data), "Asha Rao")
			seen++
		}
	}}, p.vault(sealKey), true, slog.New(slog.DiscardHandler))
	storetest.Append(t, store, write(newLead(), eventstore.NoStream, fact(t, asha())))
	require.Equal(t, 1, seen)
}

// A cached plan of a small table compares every key with every requested stream.
func TestLookup_CachesNoPlan(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	one, err := pgxpool.ParseConfig(p.url)
	require.NoError(t, err)
	one.MaxConns = 1
	p.pool.Close()
	p.pool, err = pgxpool.NewWithConfig(t.Context(), one)
	require.NoError(t, err)
	t.Cleanup(p.pool.Close)
	stream := newLead()
	_, err = p.open().Append(t.Context(), write(stream, eventstore.NoStream, fact(t, asha())))
	require.NoError(t, err)
	for range 10 {
		require.Len(t, read(t, p.open(), stream), 1)
	}
	var kept int
	require.NoError(t, p.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%FROM person.key%'
			AND statement NOT LIKE '%pg_prepared_statements%'`).Scan(&kept))
	require.Zero(t, kept)
}

func TestLookup_Concurrent(t *testing.T) {
	t.Parallel()
	p := newFixture(t, "")
	writer, streams := p.open(), make([]string, 40)
	for i := range streams {
		streams[i] = newLead()
		lead := asha()
		lead.ContactUID = fmt.Sprint("contact-", i)
		storetest.Append(t, writer, write(streams[i], eventstore.NoStream, fact(t, lead)))
	}
	pgtest.Exec(t, p.pool, `UPDATE person.key SET sealed = '\x00' WHERE stream = $1`, streams[7])
	other := p.open() // without cached keys
	var readers sync.WaitGroup
	for i, stream := range streams {
		readers.Go(func() {
			for r, err := range other.Read(t.Context(), stream, 0) {
				if i == 7 {
					assert.ErrorContains(t, err, "is damaged")
				} else if assert.NoError(t, err) {
					assert.Contains(t, string(r.Data), fmt.Sprintf(`"contact-%d"`, i))
				}
			}
		})
	}
	readers.Wait()
}
