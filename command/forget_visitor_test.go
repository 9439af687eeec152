package command_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/sealed"
	"github.com/leadlog/leadlog/projection"
)

// faultyKeyStore calls step before each operation, and fails with its error.
type faultyKeyStore struct {
	*sealed.Store
	forget.Views
	step      func() error
	withdrawn *[]int64
}

func (k faultyKeyStore) Destroy(ctx context.Context, streams ...string) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.Store.Destroy(ctx, streams...)
}

func (k faultyKeyStore) DestroyReturned(ctx context.Context, streams ...string) error {
	if err := k.step(); err != nil {
		return err
	}
	return k.Store.DestroyReturned(ctx, streams...)
}

func (k faultyKeyStore) Await(context.Context, eventstore.Position) error { return k.step() }

func (k faultyKeyStore) DeleteFromCopies(_ context.Context, gone projection.Forgotten) error {
	if err := k.step(); err != nil {
		return err
	}
	for _, keys := range gone.Keys {
		*k.withdrawn = append(*k.withdrawn, keys...)
	}
	return nil
}

// forgetVisitor forgets a visitor whose key is lost, in the given process, and returns the keys of the activities
// that were deleted from copies of the views.
func forgetVisitor(ctx context.Context, of process, account, visitor string, step func() error) (
	done forget.VisitorForgotten, withdrawn []int64, err error,
) {
	e := visitorEraser(of, step, &withdrawn)
	done, err = e.ForgetVisitor(ctx, e.Erasure(command.Caller{Account: account}),
		claim.NewNames(claimKey()).Visitor("acme", visitor), false)
	return done, withdrawn, err
}

// visitorEraser returns an eraser that calls step before each operation.
func visitorEraser(of process, step func() error, withdrawn *[]int64) eraser {
	return newEraser(killableStore{of.store, step}, faultyKeyStore{
		Store: of.store.(*sealed.Store), step: step, withdrawn: withdrawn,
	})
}

func noFault() error { return nil }

// deleteAllKeys deletes the keys of all persons.
func deleteAllKeys(t *testing.T, on backend) {
	t.Helper()
	pgtest.Exec(t, pgtest.Connect(t, on.url), `DELETE FROM person.key`)
}

// facts returns the VisitorForgotten facts of a visitor's stream and the number of its readable activities.
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
	p := start(t, keyDatabase(t))
	p.provision(t)
	_, err := p.recordActivity(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	_, _, err = forgetVisitor(t.Context(), p, "acme", "v", noFault)
	require.ErrorIs(t, err, forget.ErrNotLost)
	for account, visitor := range map[string]string{"acme": "w", "globex": "v"} {
		_, _, err = forgetVisitor(t.Context(), p, account, visitor, noFault)
		require.ErrorIs(t, err, command.ErrNoVisitor)
	}
	e := newEraser(p.store, withoutFaults(&externalData{}))
	captured := p.captured(t, `{"phone":"9876543210"}`)
	_, err = e.ForgetVisitor(t.Context(), e.Erasure(owner), event.LeadStream(captured.Lead.ID), false)
	require.ErrorIs(t, err, command.ErrNoVisitor)
	facts, readable := p.facts(t, "v")
	require.Empty(t, facts)
	require.Equal(t, 1, readable)
}

// The visitor is active before each append of the fact that its activity is lost.
func TestForgetVisitor_ConcurrentActivity(t *testing.T) {
	t.Parallel()
	on := database(t)
	other := start(t, on)
	other.provision(t)
	_, err := other.recordActivity(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	deleteAllKeys(t, on)
	p, remaining := start(t, on), 6 // steps of reads and appends
	done, withdrawn, err := forgetVisitor(t.Context(), p, "acme", "v", func() error {
		if remaining--; remaining >= 0 {
			_, err := other.recordActivity(t.Context(), "v", `{"type":"click"}`)
			return err
		}
		return nil
	})
	require.NoError(t, err)
	require.True(t, done.Remaining)
	require.Equal(t, []int64{other.activities(t, "v")[0].KeyID}, withdrawn)
	facts, readable := start(t, on).facts(t, "v")
	require.Len(t, facts, 1)
	require.Len(t, facts[0].Keys, 1)
	require.Equal(t, 6, readable)
}

// A process is killed before each step in turn, and another one completes the command.
func TestForgetVisitor_ResumesAfterKill(t *testing.T) {
	t.Parallel()
	keys := keyDatabase(t)
	for stops, finished := 0, false; !finished; stops++ {
		on := keys.withNewLog(t)
		other := start(t, on)
		other.provision(t)
		_, err := other.recordActivity(t.Context(), "v", `{"type":"click"}`)
		require.NoError(t, err)
		deleteAllKeys(t, on)
		p, remaining := start(t, on), stops
		_, _, err = forgetVisitor(t.Context(), p, "acme", "v", func() error {
			if remaining--; remaining < 0 {
				return errKilled
			}
			return nil
		})
		if finished = err == nil; !finished {
			require.ErrorIs(t, err, errKilled)
		}
		_, withdrawn, err := forgetVisitor(t.Context(), start(t, on), "acme", "v", noFault)
		require.NoError(t, err)
		require.Equal(t, []int64{other.activities(t, "v")[0].KeyID}, withdrawn)
		facts, readable := p.facts(t, "v")
		require.Equal(t, []event.VisitorForgotten{{}}, facts, "stop %d", stops)
		require.Zero(t, readable)
	}
}

// An older backup of the keys is restored. It contains a key that was declared lost, and lacks the next key. Only an
// operator may declare the next key lost.
func TestForgetVisitor_FinishAppendsNothing(t *testing.T) {
	t.Parallel()
	on := keyDatabase(t)
	p := start(t, on)
	p.provision(t)
	pool := pgtest.Pool(t, on.url)
	_, err := p.recordActivity(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	pgtest.Exec(t, pool, `CREATE TABLE person.backup AS TABLE person.key`)
	deleteAllKeys(t, on)
	first, _, err := forgetVisitor(t.Context(), start(t, on), "acme", "v", noFault)
	require.NoError(t, err)
	_, err = start(t, on).recordActivity(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	deleteAllKeys(t, on)
	pgtest.Exec(t, pool, `INSERT INTO person.key TABLE person.backup`)

	last, withdrawn := start(t, on), []int64(nil)
	e := visitorEraser(last, noFault, &withdrawn)
	done, err := e.ForgetVisitor(t.Context(), e.Erasure(owner), claim.NewNames(claimKey()).Visitor("acme", "v"), true)
	require.NoError(t, err)
	require.True(t, done.Again)
	require.Equal(t, first.Position, done.Position)
	require.Equal(t, []int64{p.activities(t, "v")[0].KeyID}, withdrawn, "later activity is not withdrawn")
	facts, readable := start(t, on).facts(t, "v")
	require.Equal(t, []event.VisitorForgotten{{}}, facts)
	require.Zero(t, readable, "the restored key is destroyed")
	_, _, err = forgetVisitor(t.Context(), start(t, on), "acme", "v", noFault)
	require.NoError(t, err)
	facts, _ = p.facts(t, "v")
	require.Equal(t, []event.VisitorForgotten{{}, {}}, facts)
}

func TestForgetVisitor_TwoProcesses(t *testing.T) {
	t.Parallel()
	on := database(t)
	one, other := start(t, on), start(t, on)
	one.provision(t)
	_, err := one.recordActivity(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	deleteAllKeys(t, on)
	var racing sync.WaitGroup
	var failed [2]error
	for i, p := range []process{start(t, on), other} {
		racing.Go(func() { _, _, failed[i] = forgetVisitor(t.Context(), p, "acme", "v", noFault) })
	}
	racing.Wait()
	require.Equal(t, [2]error{}, failed)
	_, err = one.recordActivity(t.Context(), "v", `{"type":"click"}`)
	require.NoError(t, err)
	facts, readable := other.facts(t, "v")
	require.Equal(t, []event.VisitorForgotten{{}}, facts)
	require.Equal(t, 1, readable)
}
