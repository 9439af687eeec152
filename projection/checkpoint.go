package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

var (
	// ErrForeignLog: the view was built from another log.
	ErrForeignLog = errors.New("the view is of another log; if the log was replaced on purpose, run leadlog replay")

	// ErrAheadOfLog: the view has seen events that the log does not have, for example because only the log was restored
	// from a backup. This is noticed even if the log has grown again since, with other events.
	ErrAheadOfLog = errors.New("the view has events that the log does not have; if the log was restored from a " +
		"backup on purpose, run leadlog replay")

	// ErrReplayDue: the view was built by another version of its projector.
	ErrReplayDue = errors.New("the view was built by another version of this program; run leadlog replay")

	// errOvertaken: another session moved the checkpoint. Only a replay that replaced the view can do so, since the
	// lease excludes all other writers.
	errOvertaken = errors.New("another session has moved the checkpoint")
)

// stale reports whether an error is permanent: the operator has to replay the view or connect the right log.
func stale(err error) bool {
	return errors.Is(err, ErrForeignLog) || errors.Is(err, ErrAheadOfLog) || errors.Is(err, ErrReplayDue)
}

// lostPosition maps the error of reading after a checkpoint to ErrAheadOfLog, if the log does not know the position.
// Checkpoints have only positions that the log gave, so the log has lost it. A log in PostgreSQL, whose positions have
// no gaps, never returns this error.
func lostPosition(err error) error {
	if errors.Is(err, eventstore.ErrUnknownPosition) {
		return fmt.Errorf("%w (%w)", ErrAheadOfLog, err)
	}
	return err
}

// checkpoint is the position of a view on a log, with the epoch of the log and the version of the projector.
type checkpoint struct {
	projector string
	version   int
	epoch     string
	position  eventstore.Position
	seen      seen
	written   time.Time // when it was written, or later, by the clock of this process; zero: by this session
	replay    int64     // transaction of the replay that replaced the view; 0: none
}

// seen is the last applied event. Its stream is empty when no event was applied, or when the event is not known.
type seen struct {
	stream   string
	revision eventstore.Revision
	event    string
}

func seenLast(events []Event) seen {
	newest := events[len(events)-1]
	return seen{newest.Stream, newest.Revision, newest.ID.String()}
}

// onLog reports whether the log has the event at that revision of its stream.
func (s seen) onLog(ctx context.Context, store eventstore.Store) (bool, error) {
	if s.stream == "" {
		return true, nil
	}
	return eventstore.HasEvent(ctx, store, s.stream, s.revision, s.event)
}

// database is a connection, or a pool of them.
type database interface {
	execer
	Begin(ctx context.Context) (pgx.Tx, error)
}

// findCheckpoint reads the checkpoint in the schema of the connection.
func findCheckpoint(ctx context.Context, db schema.Querier, projector string) (c checkpoint, found bool, err error) {
	return findCheckpointIn(ctx, db, `checkpoint`, projector)
}

// findCheckpointIn reads the checkpoint in a table, whose name is quoted SQL.
func findCheckpointIn(
	ctx context.Context, db schema.Querier, table, projector string,
) (c checkpoint, found bool, err error) {
	var position int64
	var age float64
	c.projector = projector
	err = db.QueryRow(ctx, `
		SELECT version, epoch, position, coalesce(seen_stream, ''), coalesce(seen_revision, 0),
		  coalesce(seen_event, ''), replay,
		       extract(epoch FROM now() - updated_at)::float8
		  FROM `+table+` WHERE projector = $1`, projector).
		Scan(&c.version, &c.epoch, &position, &c.seen.stream, &c.seen.revision, &c.seen.event, &c.replay, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, false, nil
	}
	c.position, c.written = eventstore.Position(position), time.Now().Add(-time.Duration(age*float64(time.Second)))
	return c, err == nil, err
}

// on checks that the checkpoint is of the log with that epoch and head. The error is ErrForeignLog or ErrAheadOfLog if
// it is not.
func (c checkpoint) on(ctx context.Context, store eventstore.Store, epoch string, head eventstore.Position) error {
	onLog, err := c.seen.onLog(ctx, store)
	switch {
	case err != nil:
		return err
	case c.epoch != epoch:
		return fmt.Errorf("%w (it is of %s, the log is %s)", ErrForeignLog, c.epoch, epoch)
	case c.position > head:
		return fmt.Errorf("%w (it is at %d, the log ends at %d)", ErrAheadOfLog, c.position, head)
	case !onLog:
		return fmt.Errorf("%w (it has seen event %s at revision %d of stream %s)", ErrAheadOfLog, c.seen.event,
			c.seen.revision, c.seen.stream)
	}
	return nil
}

// openCheckpoint returns the checkpoint from which a projector continues, and the head of the log. The error says why
// it must not continue.
func openCheckpoint(
	ctx context.Context, db database, p Projector, store eventstore.Store,
) (c checkpoint, head eventstore.Position, err error) {
	epoch, err := store.Epoch(ctx)
	if err != nil {
		return c, 0, err
	}
	c, found, err := findCheckpoint(ctx, db, p.Name())
	if err != nil {
		return c, 0, err
	}
	// The head is read after the checkpoint, because the log only grows.
	if head, err = store.Head(ctx); err != nil {
		return c, 0, err
	}
	if !found {
		c, err = create(ctx, db, p, epoch)
		return c, head, err
	}
	if err = c.on(ctx, store, epoch, head); err == nil && c.version != p.Version() {
		err = fmt.Errorf("%w (it is of version %d, the program's is %d)", ErrReplayDue, c.version, p.Version())
	}
	return c, head, err
}

// AppliedUpTo returns the position of the view that a projector serves: 0 when there is no such view, or none of this
// log.
func AppliedUpTo(
	ctx context.Context, db schema.Querier, store eventstore.Store, projector string,
) (eventstore.Position, error) {
	c, found, err := findCheckpointIn(ctx, db, schema.Views+`.checkpoint`, projector)
	if err != nil || !found {
		return 0, schema.Unavailable(err)
	}
	epoch, err := store.Epoch(ctx)
	if err != nil {
		return 0, err
	}
	head, err := store.Head(ctx)
	if err != nil {
		return 0, err
	}
	if err := c.on(ctx, store, epoch, head); errors.Is(err, ErrForeignLog) || errors.Is(err, ErrAheadOfLog) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return c.position, nil
}

// CheckLog returns ErrForeignLog if there are views and none of them is of this log.
func CheckLog(ctx context.Context, db schema.Querier, store eventstore.Store) error {
	epoch, err := store.Epoch(ctx)
	if err != nil {
		return err
	}
	var foreign bool
	err = db.QueryRow(ctx, `SELECT count(*) > 0 AND count(*) FILTER (WHERE epoch = $1) = 0 FROM views.checkpoint`,
		epoch).Scan(&foreign)
	if err == nil && foreign {
		err = ErrForeignLog
	}
	return schema.Unavailable(err)
}

// create creates the checkpoint of a view that has none, and empties its tables: the position of their rows is unknown.
func create(ctx context.Context, db database, p Projector, epoch string) (checkpoint, error) {
	c := checkpoint{projector: p.Name(), version: p.Version(), epoch: epoch}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, table := range p.Tables() {
			if _, err := tx.Exec(ctx, `DELETE FROM `+pgx.Identifier{table}.Sanitize()); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx,
			`INSERT INTO checkpoint (projector, version, epoch, position, updated_at) VALUES ($1, $2, $3, 0, now())`,
			c.projector, c.version, c.epoch)
		return err
	})
	return c, err
}

// advance moves the checkpoint, but only from the state that this session wrote. A replay that replaces the view's
// tables changes that state even at the same position: each replay has its own value of replay.
func (c checkpoint) advance(ctx context.Context, db execer, b batch) (checkpoint, error) {
	next := c
	if next.position = b.position; len(b.events) > 0 {
		next.seen = seenLast(b.events)
	}
	tag, err := db.Exec(ctx, `
		UPDATE checkpoint SET position = $5, updated_at = now(), seen_stream = nullif($6, ''), seen_revision = $7,
		  seen_event = $8
		 WHERE projector = $1 AND version = $2 AND epoch = $3 AND position = $4 AND coalesce(seen_event, '') = $9
		 AND replay = $10`,
		c.projector, c.version, c.epoch, int64(c.position), int64(next.position),
		next.seen.stream, int64(next.seen.revision), next.seen.event, c.seen.event, c.replay)
	if err == nil && tag.RowsAffected() != 1 {
		err = errOvertaken
	}
	if err != nil {
		return c, err
	}
	return next, nil
}

// apply writes the checkpoint and a batch in one transaction, and returns the new checkpoint. The checkpoint is written
// first: a replay locks its row while it replaces the view's tables, and a batch must not write to a table that is
// about to be dropped. A batch without events is one statement.
func (c checkpoint) apply(ctx context.Context, db database, b batch, write Write) (next checkpoint, err error) {
	if len(b.events) == 0 {
		return c.advance(ctx, db, b)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if next, err = c.advance(ctx, tx, b); err != nil {
			return err
		}
		if err := write(ctx, tx); err != nil {
			return fmt.Errorf("events at positions %d to %d: %w", b.events[0].Position, last(b.events), err)
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	return next, nil
}

// hold locks the checkpoint's row, so that other writers of the view wait: each of them writes this row first.
func (c checkpoint) hold(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, `
		SELECT FROM checkpoint
		 WHERE projector = $1 AND version = $2 AND epoch = $3 AND position = $4 AND coalesce(seen_event, '') = $5
		 AND replay = $6
		   FOR NO KEY UPDATE`,
		c.projector, c.version, c.epoch, int64(c.position), c.seen.event, c.replay)
	if err == nil && tag.RowsAffected() != 1 {
		err = errOvertaken
	}
	return err
}

func last(events []Event) eventstore.Position { return events[len(events)-1].Position }
