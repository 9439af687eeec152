package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/postgres"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// What a process has seen, by whichever way, and the database has not after a failover.
func TestAStoreIsNotUsedOnALogThatHasLostWhatItHasSeen(t *testing.T) {
	t.Parallel()
	const sessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	seen := map[string]func(testing.TB, *postgres.Store, string){
		"written": func(t testing.TB, store *postgres.Store, _ string) {
			storetest.Append(t, store, start("first", fact(`{}`)), start("last", fact(`{}`)))
		},
		"read": func(t testing.TB, store *postgres.Store, url string) {
			storetest.Append(t, open(t, postgres.Options{URL: url}), start("first", fact(`{}`)), start("last", fact(`{}`)))
			_, _, err := eventstore.Load(t.Context(), store, "last", func(n int, _ event.Fact) int { return n })
			require.ErrorIs(t, err, event.ErrUnknownType)
		},
		"followed": func(t testing.TB, store *postgres.Store, url string) {
			storetest.Append(t, open(t, postgres.Options{URL: url}), start("first", fact(`{}`)), start("last", fact(`{}`)))
			follow(t, store, "last")()
		},
		"gone on from": func(t testing.TB, store *postgres.Store, url string) { // as a subscription that does not want it
			storetest.Append(t, open(t, postgres.Options{URL: url}), start("first", fact(`{}`)), start("last", fact(`{}`)))
			_, err := store.Head(t.Context())
			require.NoError(t, err)
		},
	}
	losses := map[string]string{
		"nothing is there":        `DELETE FROM log.event WHERE position = 2`,
		"something else is there": `UPDATE log.event SET event_id = gen_random_uuid() WHERE position = 2`,
		"nothing is lost":         `DELETE FROM log.event WHERE position = 3`,
	}
	for how, see := range seen {
		for loss, lose := range losses {
			t.Run(how+", "+loss, func(t *testing.T) {
				t.Parallel()
				url := database(t)
				store := open(t, postgres.Options{URL: url, Patience: forever}) // nobody waits for what does not pass
				see(t, store, url)
				execute(t, url, lose)
				execute(t, url, sessions)
				_, err := store.Append(t.Context(), start("new", fact(`{}`)))
				if loss == "nothing is lost" {
					require.NoError(t, err)
					select {
					case <-store.Diverged():
						require.Fail(t, "it is taken for another log")
					default:
					}
					return
				}
				require.ErrorIs(t, err, eventstore.ErrDiverged)
				require.ErrorIs(t, err, eventstore.ErrUnavailable)
				<-store.Diverged()
				for err = nil; !errors.Is(err, eventstore.ErrDiverged); { // a session that was ended says so first, once
					_, err = store.Head(t.Context())
					require.Error(t, err)
				}
				require.Zero(t, execute(t, url, `SELECT FROM log.event WHERE stream = 'new'`))
			})
		}
	}
}

// The pool bounds how long a connection takes to come about, and not what is asked of it before it is used.
func TestAConnectionThatIsNotAnsweredGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	url := database(t)
	store := open(t, postgres.Options{URL: url, MaxReaders: 1})
	storetest.Append(t, store, start("s", fact(`{}`)))
	silent, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer silent.Close(context.WithoutCancel(t.Context()))
	_, err = silent.Exec(t.Context(), `BEGIN; LOCK TABLE log.event`)
	require.NoError(t, err)
	_, err = store.Head(t.Context())
	require.ErrorIs(t, err, eventstore.ErrUnavailable)
	require.Zero(t, store.Readers().ConstructingConns())
}
