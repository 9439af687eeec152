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
	"github.com/leadlog/leadlog/eventstore/esdbtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/eventstore/sealed"
)

// stops counts the places where an append can be interrupted: before and after each query for keys, each write of keys and the
// append below. At one of them it runs what another process does.
type stops struct {
	eventstore.Store
	at, passed int
	meanwhile  func() error
	failed     error
}

func (s *stops) pass() {
	if s.passed == s.at {
		s.failed = s.meanwhile()
	}
	s.passed++
}

func (s *stops) Append(ctx context.Context, writes ...eventstore.Write) (eventstore.Position, error) {
	s.pass()
	position, err := s.Store.Append(ctx, writes...)
	s.pass()
	return position, err
}

func (s *stops) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.pass()
	return ctx
}
func (s *stops) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { s.pass() }
func (s *stops) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	s.pass()
	return ctx
}
func (s *stops) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (s *stops) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     { s.pass() }

// visits are what two processes record of one visitor.
type visits struct {
	t            testing.TB
	stream       string
	acknowledged []ulid.ULID
}

// act records an activity, and tries again after a conflict on the visitor's stream, as commands do.
func (v *visits) act(store eventstore.Store, with ...eventstore.Write) error {
	for {
		acted := fact(v.t, event.VisitorActed{VisitorID: "v", Kind: "click"})
		_, err := store.Append(context.Background(), append(with, write(v.stream, eventstore.Any, acted))...)
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

// requireReadable requires that every process reads what was acknowledged since the visitor was forgotten, and nothing of before.
func (v *visits) requireReadable(what string, processes ...*sealed.Store) {
	v.t.Helper()
	for _, store := range processes {
		shown, before := map[ulid.ULID]bool{}, map[ulid.ULID]bool{}
		for _, r := range read(v.t, store, v.stream) {
			if r.Type == (event.VisitorForgotten{}).EventType() {
				for id, readable := range shown {
					require.False(v.t, readable, "%s: %s was forgotten", what, id)
					before[id] = true
				}
				clear(shown)
				continue
			}
			shown[r.ID] = !r.Erased
		}
		for i, id := range v.acknowledged {
			require.True(v.t, shown[id] || before[id], "%s: acknowledged activity %d cannot be read", what, i)
		}
	}
}

// Whatever one process does at any step of another's append, what was acknowledged can be read.
func TestAppend_InterleavedKeys(t *testing.T) {
	t.Parallel()
	for engine, log := range map[string]func() string{
		"PostgreSQL": func() string { return "" }, "EventStoreDB": func() string { return esdbtest.Empty(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, log())
			stale := eventstore.Check("account-acme", eventstore.At(3))
			refuse := func(v *visits, store *sealed.Store) error {
				if err := v.act(store, stale); eventstore.Conflict(err) == nil {
					return fmt.Errorf("a stale check was not refused: %w", err)
				}
				return nil
			}
			act := func(v *visits, store *sealed.Store) error { return v.act(store) }
			others := map[string]func(*visits, *sealed.Store) error{
				"acts": act, "is refused": refuse, "forgets": (*visits).forget,
				"forgets, then acts": func(v *visits, store *sealed.Store) error { return errors.Join(v.forget(store), v.act(store)) },
				"acts, then forgets": func(v *visits, store *sealed.Store) error { return errors.Join(v.act(store), v.forget(store)) },
			}
			below := p.below()
			s := &stops{Store: below, at: -1}
			vault := p.traced(s)
			newProcess := func(below eventstore.Store, vault *sealed.Vault) *sealed.Store {
				return sealed.Wrap(below, vault, p.log == "", slog.New(slog.DiscardHandler))
			}
			for mine, first := range map[string]func(*visits, *sealed.Store) error{"acts": act, "is refused": refuse} {
				for theirs, meanwhile := range others {
					for _, known := range []bool{false, true} {
						for at, reached := 0, true; reached; at++ {
							v := &visits{t: t, stream: event.VisitorStream("acme", ulid.Make().String())}
							store, other := newProcess(s, vault), newProcess(below, p.vault(sealKey))
							if known {
								require.NoError(t, v.act(other))
								require.NoError(t, v.act(store))
							}
							s.at, s.passed, s.failed, s.meanwhile = at, 0, nil, func() error { return meanwhile(v, other) }
							err := first(v, store)
							reached, s.at = s.passed > at, -1
							what := fmt.Sprintf("one %s, at step %d another %s, known: %v", mine, at, theirs, known)
							require.NoError(t, err, what)
							require.NoError(t, s.failed, what)
							v.requireReadable(what, newProcess(below, p.vault(sealKey)), other)
							require.NoError(t, v.act(store), what)
							require.NoError(t, v.act(other), what)
							v.requireReadable(what, newProcess(below, p.vault(sealKey)), store, other)
						}
					}
				}
			}
		})
	}
}

// traced is a vault whose steps are counted.
func (p place) traced(s *stops) *sealed.Vault {
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
