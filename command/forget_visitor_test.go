package command_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection/forget"
)

// loser forgets visitors whose keys are lost. Each thing that it asks for comes after a step, which may stop it.
type loser struct {
	*sealed.Store
	forget.Views
	step      func() error
	withdrawn *[]eventstore.Position
}

func (l loser) Destroy(ctx context.Context, streams ...string) error {
	if err := l.step(); err != nil {
		return err
	}
	return l.Store.Destroy(ctx, streams...)
}

func (l loser) Expel(ctx context.Context, streams ...string) error {
	if err := l.step(); err != nil {
		return err
	}
	return l.Store.Expel(ctx, streams...)
}

func (l loser) Await(context.Context, eventstore.Position) error { return l.step() }

func (l loser) Withdraw(_ context.Context, _ string, at []eventstore.Position) error {
	if err := l.step(); err != nil {
		return err
	}
	*l.withdrawn = append(*l.withdrawn, at...)
	return nil
}

// forgetVisitor is one process that says that a visitor stays lost. It gives what was taken out of the views.
func forgetVisitor(ctx context.Context, of process, account, visitor string, step func() error) (
	done forget.VisitorForgotten, withdrawn []eventstore.Position, err error,
) {
	e := forgets(of, step, &withdrawn)
	done, err = e.ForgetVisitor(ctx, e.Erasure(command.Caller{Account: account}), claim.NewNames(claimKey()).Visitor("acme", visitor), false)
	return done, withdrawn, err
}

// forgets forgets visitors. Each of its steps may stop it.
func forgets(of process, step func() error, withdrawn *[]eventstore.Position) eraser {
	return newEraser(stoppable{of.store, step}, loser{Store: of.store.(*sealed.Store), step: step, withdrawn: withdrawn})
}

func nothing() error { return nil }

// loses takes all keys of the log away.
func loses(t *testing.T, url string) {
	t.Helper()
	pgtest.Exec(t, pgtest.Pool(t, url), `DELETE FROM person.key`)
}

// facts are what a visitor's stream says of keys, and readable how many activities can be read.
func (p process) facts(t *testing.T, visitor string) (facts []event.VisitorForgotten, readable int) {
	t.Helper()
	for _, r := range p.activities(t, visitor) {
		fact, err := r.Fact()
		require.NoError(t, err)
		if forgotten, is := fact.Data.(event.VisitorForgotten); is {
			facts = append(facts, forgotten)
		} else if !r.Erased {
			readable++
		}
	}
	return facts, readable
}

func TestForgetVisitor_Readable(t *testing.T) {
	t.Parallel()
	p := start(t, database(t))
	p.provision(t)
	_, err := p.act(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	_, _, err = forgetVisitor(t.Context(), p, "acme", "v", nothing)
	require.ErrorIs(t, err, forget.ErrNotLost)
	for account, visitor := range map[string]string{"acme": "w", "globex": "v"} {
		_, _, err = forgetVisitor(t.Context(), p, account, visitor, nothing)
		require.ErrorIs(t, err, command.ErrNoVisitor)
	}
	e := newEraser(p.store, unstopped(&oblivion{}))
	captured := p.captured(t, `{"phone":"9876543210"}`)
	_, err = e.ForgetVisitor(t.Context(), e.Erasure(owner), event.LeadStream(captured.Lead.ID), false)
	require.ErrorIs(t, err, command.ErrNoVisitor)
	facts, readable := p.facts(t, "v")
	require.Empty(t, facts)
	require.Equal(t, 1, readable)
}

// The visitor does something whenever it is about to be said that all they did is lost.
func TestForgetVisitor_ConcurrentActivity(t *testing.T) {
	t.Parallel()
	url := database(t)
	far := start(t, url)
	far.provision(t)
	lost, err := far.act(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	loses(t, url)
	near, left := start(t, url), 6 // the steps are to read and to append
	done, withdrawn, err := forgetVisitor(t.Context(), near, "acme", "v", func() error {
		if left--; left >= 0 {
			_, err := far.act(t.Context(), "v", `{"type":"click"}`)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	require.True(t, done.Rest)
	require.Equal(t, []eventstore.Position{lost.Position}, withdrawn)
	facts, readable := start(t, url).facts(t, "v")
	require.Len(t, facts, 1)
	require.Len(t, facts[0].Keys, 1)
	require.Equal(t, 6, readable)
}

// A process is stopped before each single step in turn, and the next finishes what it began.
func TestForgetVisitor_ResumesAfterStop(t *testing.T) {
	t.Parallel()
	for stops, whole := 0, false; !whole; stops++ {
		url := database(t)
		far := start(t, url)
		far.provision(t)
		lost, err := far.act(t.Context(), "v", `{"type":"click"}`)
		require.NoError(t, err)
		loses(t, url)
		near, left := start(t, url), stops
		_, _, err = forgetVisitor(t.Context(), near, "acme", "v", func() error {
			if left--; left < 0 {
				return errKilled
			}
			return nil
		})
		if whole = err == nil; !whole {
			require.ErrorIs(t, err, errKilled)
		}
		_, withdrawn, err := forgetVisitor(t.Context(), start(t, url), "acme", "v", nothing)
		require.NoError(t, err)
		require.Equal(t, []eventstore.Position{lost.Position}, withdrawn)
		facts, readable := near.facts(t, "v")
		require.Equal(t, []event.VisitorForgotten{{}}, facts, "stop %d", stops)
		require.Zero(t, readable)
	}
}

// An older backup of the keys is restored: a key that was given up is back, and the one after it is lost. Only an operator gives
// that up too.
func TestForgetVisitor_FinishAppendsNothing(t *testing.T) {
	t.Parallel()
	url := database(t)
	p := start(t, url)
	p.provision(t)
	pool := pgtest.Pool(t, url)
	lost, err := p.act(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	pgtest.Exec(t, pool, `CREATE TABLE person.backup AS TABLE person.key`)
	loses(t, url)
	said, _, err := forgetVisitor(t.Context(), start(t, url), "acme", "v", nothing)
	require.NoError(t, err)
	_, err = start(t, url).act(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	loses(t, url)
	pgtest.Exec(t, pool, `INSERT INTO person.key TABLE person.backup`)

	last, withdrawn := start(t, url), []eventstore.Position(nil)
	e := forgets(last, nothing, &withdrawn)
	done, err := e.ForgetVisitor(t.Context(), e.Erasure(owner), claim.NewNames(claimKey()).Visitor("acme", "v"), true)
	require.NoError(t, err)
	require.True(t, done.Again)
	require.Equal(t, said.Position, done.Position)
	require.Equal(t, []eventstore.Position{lost.Position}, withdrawn, "what was done since may be found")
	facts, readable := start(t, url).facts(t, "v")
	require.Equal(t, []event.VisitorForgotten{{}}, facts)
	require.Zero(t, readable, "the key that came back is gone")
	_, _, err = forgetVisitor(t.Context(), start(t, url), "acme", "v", nothing)
	require.NoError(t, err)
	facts, _ = p.facts(t, "v")
	require.Equal(t, []event.VisitorForgotten{{}, {}}, facts)
}

func TestForgetVisitor_TwoProcesses(t *testing.T) {
	t.Parallel()
	url := database(t)
	one, other := start(t, url), start(t, url)
	one.provision(t)
	_, err := one.act(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	loses(t, url)
	var racing sync.WaitGroup
	var failed [2]error
	for i, p := range []process{start(t, url), other} {
		racing.Go(func() { _, _, failed[i] = forgetVisitor(t.Context(), p, "acme", "v", nothing) })
	}
	racing.Wait()
	require.Equal(t, [2]error{}, failed)
	_, err = one.act(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	facts, readable := other.facts(t, "v")
	require.Equal(t, []event.VisitorForgotten{{}}, facts)
	require.Equal(t, 1, readable)
}
