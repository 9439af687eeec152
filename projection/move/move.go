// Package move moves the views and the deliveries to a copy of their log in another store, so that the views need not
// be rebuilt and nothing is delivered again.
//
// A copy has other positions and an epoch of its own. So every position in the views' database is translated, through
// the event at that position, and every checkpoint gets the copy's epoch. This happens in one transaction, after both
// logs have been compared in full. Before its commit the views belong to the source, afterwards to the copy, and a
// service that is started on the other log is refused.
package move

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/delivery"
	"github.com/leadlog/leadlog/projection/schema"
	"github.com/leadlog/leadlog/projection/view"
)

var (
	// ErrServiceRuns means that a service writes the views, which prevents the move.
	ErrServiceRuns = errors.New("a service runs on these views")

	// ErrGrown means that events were appended to the source while it was compared.
	ErrGrown = errors.New("the source has new events")

	// ErrOtherLog means that views belong neither to the source nor to the copy.
	ErrOtherLog = errors.New("the views belong to a third log")

	// ErrSameLog means that source and target are the same log.
	ErrSameLog = errors.New("source and target are the same log")
)

// Move configures a move.
type Move struct {
	URL      string // of the views' database
	From, To eventstore.Store
	// Copy copies the events of From that To lacks.
	Copy func(context.Context) error
	// Compare reads both logs in full, and calls each with the two positions of every event. It fails if the events
	// differ.
	Compare func(ctx context.Context, each func(from, to eventstore.Position) error) error
}

// Run copies the log and moves the views. It returns how many checkpoints it moved: none if an earlier run moved them.
// It may be interrupted at any time and run again. While a service is running, it only copies the log and returns
// ErrServiceRuns, so that little is left to copy after the service has stopped.
func (m Move) Run(ctx context.Context) (moved int, err error) {
	epochs, err := m.epochs(ctx)
	if err != nil {
		return 0, err
	}
	if err := m.Copy(ctx); err != nil {
		return 0, err
	}
	conn, err := connect(ctx, m.URL)
	if err != nil {
		return 0, schema.Unavailable(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		moved, err = m.moveViews(ctx, tx, epochs)
		return err
	})
	return moved, schema.Unavailable(err)
}

// epochs are the epochs of the source and of the target.
type epochs struct{ from, to string }

func (m Move) epochs(ctx context.Context) (e epochs, err error) {
	if e.from, err = m.From.Epoch(ctx); err != nil {
		return e, err
	}
	if e.to, err = m.To.Epoch(ctx); err != nil {
		return e, err
	}
	if e.from == e.to {
		return e, ErrSameLog
	}
	return e, nil
}

func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	pool, err := pgxpool.ParseConfig(url) // parses the pool_ parameters, which the server rejects
	if err != nil {
		return nil, fmt.Errorf("database address: %w", err)
	}
	config := pool.ConnConfig
	schema.Session(config)
	config.RuntimeParams["application_name"] = "leadlog copy-log"
	return migration.Connect(ctx, config)
}

// moveViews blocks services, copies the last events, compares both logs, and translates all positions.
func (m Move) moveViews(ctx context.Context, tx pgx.Tx, e epochs) (moved int, err error) {
	if err := lockOut(ctx, tx); err != nil {
		return 0, err
	}
	state, err := stateOf(ctx, tx, e)
	if err != nil {
		return 0, err
	}
	if err := m.Copy(ctx); err != nil {
		return 0, err
	}
	pairs, err := newPairs(ctx, tx)
	if err != nil {
		return 0, err
	}
	err = m.Compare(ctx, func(from, to eventstore.Position) error { return pairs.add(ctx, from, to) })
	if err != nil {
		return 0, err
	}
	if err := pairs.end(ctx); err != nil {
		return 0, err
	}
	if !state.moved {
		if err := translate(ctx, tx, e); err != nil {
			return 0, err
		}
		if err := rebuildConversions(ctx, tx); err != nil {
			return 0, err
		}
		moved = state.checkpoints
	}
	// These checks come last, because a later write to the source would not be detected. A service that made its check
	// just before the lock is running couriers now.
	if err := idle(ctx, tx); err != nil {
		return 0, err
	}
	head, err := m.From.Head(ctx)
	if err == nil && head != pairs.last {
		err = ErrGrown
	}
	if err != nil {
		return 0, err
	}
	return moved, schema.ReleaseLeases(ctx, tx) // PostgreSQL detects the end of a session with a delay
}

// lockOut takes the lease of every projector and replay, and locks the checkpoints, until the end of the transaction.
// Before its first write to a log, a process checks that the views belong to it, and that check waits for the lock.
func lockOut(ctx context.Context, tx pgx.Tx) error {
	names := map[string][]string{schema.Deliveries: {delivery.FanOut{}.Name()}}
	for _, p := range view.All() {
		names[schema.Views] = append(names[schema.Views], p.Name())
	}
	for in, projectors := range names {
		for _, name := range projectors {
			acquired, err := schema.AcquireLease(ctx, tx, schema.ProjectorLease(in, name))
			if err != nil {
				return err
			}
			if !acquired {
				return fmt.Errorf("%w (%s)", ErrServiceRuns, name)
			}
		}
	}
	for _, name := range names[schema.Views] {
		acquired, err := schema.AcquireLease(ctx, tx, projection.ReplayLease(name))
		if err != nil {
			return err
		}
		if !acquired {
			return fmt.Errorf("%w (%s)", projection.ErrReplayRuns, name)
		}
	}
	if err := idle(ctx, tx); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `LOCK TABLE views.checkpoint IN ACCESS EXCLUSIVE MODE`)
	return err
}

// idle checks that no couriers are running.
func idle(ctx context.Context, tx pgx.Tx) error {
	couriers, err := delivery.Couriers(ctx, tx)
	if err == nil && couriers > 0 {
		err = fmt.Errorf("%w (%d couriers)", ErrServiceRuns, couriers)
	}
	return err
}

// state is the progress of a move, derived from the checkpoints of the views.
type state struct {
	moved       bool // all views belong to the copy
	checkpoints int
}

func stateOf(ctx context.Context, tx pgx.Tx, e epochs) (s state, err error) {
	var source, target int
	err = tx.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE epoch = $1), count(*) FILTER (WHERE epoch = $2)
		  FROM (SELECT epoch FROM views.checkpoint UNION ALL SELECT epoch FROM delivery.checkpoint) c`, e.from, e.to).
		Scan(&s.checkpoints, &source, &target)
	if err == nil && s.checkpoints != source && s.checkpoints != target {
		err = fmt.Errorf("%w: of %d, %d are of the source and %d of the target", ErrOtherLog,
			s.checkpoints, source, target)
	}
	s.moved = s.checkpoints > 0 && s.checkpoints == target
	return s, err
}
