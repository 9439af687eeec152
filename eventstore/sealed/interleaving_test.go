package sealed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// interruptions counts the points at which an append can be interrupted: before and after reading the stream's end,
// each query for keys, each write of keys and the append to the log. At one of them it runs an action of another
// process.
type interruptions struct {
	eventstore.Store
	at, passed int
	action     func() error
	failed     error
}

func (s *interruptions) pass() {
	if s.passed == s.at {
		s.failed = s.action()
	}
	s.passed++
}

func (s *interruptions) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	s.pass()
	position, err := s.Store.Append(ctx, writes...)
	s.pass()
	return position, err
}

func (s *interruptions) Last(ctx context.Context, stream string) (eventstore.Recorded, error) {
	s.pass()
	last, err := s.Store.Last(ctx, stream)
	s.pass()
	return last, err
}

func (s *interruptions) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.pass()
	return ctx
}
func (s *interruptions) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { s.pass() }
func (s *interruptions) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	s.pass()
	return ctx
}
func (s *interruptions) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (s *interruptions) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     { s.pass() }

// visits are the activities of one visitor that two processes record.
type visits struct {
	t            testing.TB
	stream       string
	acknowledged []ulid.ULID
}

// act records an activity, and retries after a conflict on the visitor's stream, as commands do.
func (v *visits) act(store eventstore.Store, with ...eventstore.Write) error {
	for {
		last, err := store.Last(context.Background(), v.stream)
		if err != nil {
			return err
		}
		acted := fact(v.t, event.VisitorActed{VisitorID: "v", Kind: "click"})
		_, err = store.Append(context.Background(), append(with, write(v.stream, eventstore.After(last), acted))...)
		if err == nil {
			v.acknowledged = append(v.acknowledged, acted.ID)
			return nil
		}
		if conflict := eventstore.Conflict(err); conflict == nil || conflict.Stream != v.stream {
			return err
		}
	}
}

// forget destroys the key and appends the fact, as the erasure of a lead does.
func (v *visits) forget(store *sealed.Store) error {
	for {
		end := eventstore.NoStream
		for r, err := range store.Read(context.Background(), v.stream, 0) {
			if err != nil {
				return err
			}
			end = eventstore.At(r.Revision)
		}
		if err := store.Destroy(context.Background(), v.stream); err != nil {
			return err
		}
		_, err := store.Append(context.Background(), write(v.stream, end, fact(v.t, event.VisitorForgotten{})))
		if eventstore.Conflict(err) == nil {
			return err
		}
	}
}

// requireReadable requires that every activity was recorded once, and that every process can read those that were
// acknowledged after the visitor was forgotten, and no earlier ones.
func (v *visits) requireReadable(description string, processes ...*sealed.Store) {
	v.t.Helper()
	for _, store := range processes {
		shown, before := map[ulid.ULID]bool{}, map[ulid.ULID]bool{}
		for _, r := range read(v.t, store, v.stream) {
			if r.Type == (event.VisitorForgotten{}).EventType() {
				for id, readable := range shown {
					require.False(v.t, readable, "%s: %s is readable after the visitor was forgotten", description, id)
					before[id] = true
				}
				clear(shown)
				continue
			}
			shown[r.ID] = !r.Erased
		}
		require.Len(v.t, v.acknowledged, len(shown)+len(before), "%s: an activity was recorded twice", description)
		for i, id := range v.acknowledged {
			require.True(v.t, shown[id] || before[id], "%s: acknowledged activity %d cannot be read", description, i)
		}
	}
}

// Acknowledged activities can be read, for any action of one process at any step of an append of another one.
func TestAppend_InterleavedKeys(t *testing.T) {
	t.Parallel()
	for name, sameDatabase := range map[string]bool{"same database": true, "log elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t, "")
			below := p.below()
			if !sameDatabase {
				below = storetest.Memory()
			}
			stale := eventstore.Check("account-acme", eventstore.At(3))
			conflict := func(v *visits, store *sealed.Store) error {
				if err := v.act(store, stale); eventstore.Conflict(err) == nil {
					return fmt.Errorf("no conflict of a stale check: %w", err)
				}
				return nil
			}
			act := func(v *visits, store *sealed.Store) error { return v.act(store) }
			actions := map[string]func(*visits, *sealed.Store) error{
				"appends": act, "conflicts": conflict, "forgets": (*visits).forget,
				"forgets, then appends": func(v *visits, store *sealed.Store) error {
					return errors.Join(v.forget(store), v.act(store))
				},
				"appends, then forgets": func(v *visits, store *sealed.Store) error {
					return errors.Join(v.act(store), v.forget(store))
				},
			}
			s := &interruptions{Store: below, at: -1}
			vault := p.traced(s)
			newProcess := func(below eventstore.Store, vault *sealed.Vault) *sealed.Store {
				return sealed.Wrap(below, vault, sameDatabase, slog.New(slog.DiscardHandler))
			}
			for own, first := range map[string]func(*visits, *sealed.Store) error{
				"appends": act, "conflicts": conflict,
			} {
				for theirs, action := range actions {
					for _, cached := range []bool{false, true} {
						for at, reached := 0, true; reached; at++ {
							v := &visits{t: t, stream: event.VisitorStream("acme", ulid.Make().String())}
							store, other := newProcess(s, vault), newProcess(below, p.vault(sealKey))
							if cached {
								require.NoError(t, v.act(other))
								require.NoError(t, v.act(store))
							}
							s.at, s.passed, s.failed, s.action = at, 0, nil, func() error { return action(v, other) }
							err := first(v, store)
							reached, s.at = s.passed > at, -1
							description := fmt.Sprintf("one process %s, at step %d another one %s, cached: %v",
								own, at, theirs, cached)
							require.NoError(t, err, description)
							require.NoError(t, s.failed, description)
							v.requireReadable(description, newProcess(below, p.vault(sealKey)), other)
							require.NoError(t, v.act(store), description)
							require.NoError(t, v.act(other), description)
							v.requireReadable(description, newProcess(below, p.vault(sealKey)), store, other)
						}
					}
				}
			}
		})
	}
}

// traced returns a vault whose queries are counted by s.
func (p fixture) traced(s *interruptions) *sealed.Vault {
	p.t.Helper()
	config, err := pgxpool.ParseConfig(p.url)
	require.NoError(p.t, err)
	config.ConnConfig.Tracer = s
	pool, err := pgxpool.NewWithConfig(p.t.Context(), config)
	require.NoError(p.t, err)
	p.t.Cleanup(pool.Close)
	box, err := sealbox.New(sealKey)
	require.NoError(p.t, err)
	vault := sealed.NewVault(pool, box)
	return vault
}
