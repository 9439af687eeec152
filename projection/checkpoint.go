package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	Rows
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

// step is a batch of a view that is to be written.
type step struct {
	checkpoint *checkpoint // moved by commit
	batch
	write Write // unless there are no events
}

// next is the checkpoint after the step.
func (s step) next() checkpoint {
	next := *s.checkpoint
	if next.position = s.position; len(s.events) > 0 {
		next.seen = seenLast(s.events)
	}
	return next
}

// advanceSQL moves checkpoints, but only from the state that this session wrote, and returns their projectors. A replay
// that replaces the view's tables changes that state even at the same position: each replay has its own value of
// replay. While it locks the checkpoint, others do not wait for it.
const advanceSQL = `
WITH step AS (
    SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[],
      $8::text[], $9::bigint[], $10::text[])
        AS s (projector, version, epoch, position, seen_event, replay, next_position, next_stream, next_revision,
          next_event)
), held AS (
    SELECT c.projector FROM checkpoint c JOIN step s USING (projector)
     WHERE c.version = s.version AND c.epoch = s.epoch AND c.position = s.position
       AND coalesce(c.seen_event, '') = s.seen_event AND c.replay = s.replay
       FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE checkpoint c
   SET position = s.next_position, updated_at = now(), seen_stream = nullif(s.next_stream, ''),
       seen_revision = s.next_revision, seen_event = s.next_event
  FROM step s JOIN held USING (projector)
 WHERE c.projector = s.projector
RETURNING c.projector`

// advance moves the checkpoints of steps. The error is errOvertaken with the first step whose checkpoint has another
// state; some of the others may have been moved.
func advance(ctx context.Context, db Rows, steps []step) (failed int, err error) {
	type columns struct {
		projectors, epochs, seen, streams, events    []string
		versions                                     []int
		positions, replays, nextPositions, revisions []int64
	}
	var c columns
	for _, s := range steps {
		next := s.next()
		c.projectors, c.epochs = append(c.projectors, s.checkpoint.projector), append(c.epochs, s.checkpoint.epoch)
		c.versions, c.seen = append(c.versions, s.checkpoint.version), append(c.seen, s.checkpoint.seen.event)
		c.positions = append(c.positions, int64(s.checkpoint.position))
		c.replays = append(c.replays, s.checkpoint.replay)
		c.nextPositions = append(c.nextPositions, int64(next.position))
		c.streams, c.events = append(c.streams, next.seen.stream), append(c.events, next.seen.event)
		c.revisions = append(c.revisions, int64(next.seen.revision))
	}
	rows, err := db.Query(ctx, advanceSQL, c.projectors, c.versions, c.epochs, c.positions, c.seen, c.replays,
		c.nextPositions, c.streams, c.revisions, c.events)
	if err != nil {
		return unknown, err
	}
	moved, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return unknown, err
	}
	for i, s := range steps {
		if !slices.Contains(moved, s.checkpoint.projector) {
			return i, errOvertaken
		}
	}
	return unknown, nil
}

// unknown is the failed step of an error that is not about one of them.
const unknown = -1

// commit writes batches of several views, and their checkpoints, in one transaction. If one fails, nothing is written,
// and failed is which: unknown if the error is not about a step. The checkpoints are written first: a replay locks its
// row while it replaces the view's tables, and a batch must not write to a table that is about to be dropped.
func commit(ctx context.Context, db database, steps []step) (failed int, err error) {
	if len(steps) == 1 && len(steps[0].events) == 0 {
		failed, err = advance(ctx, db, steps)
	} else {
		err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
			if failed, err = advance(ctx, tx, steps); err != nil {
				return err
			}
			for i, s := range steps {
				if len(s.events) == 0 {
					continue
				}
				if err := s.write(ctx, tx); err != nil {
					if failed = i; ctx.Err() != nil || tx.Conn().IsClosed() {
						failed = unknown
					}
					return fmt.Errorf("events at positions %d to %d: %w", s.events[0].Position, last(s.events), err)
				}
			}
			return nil
		})
	}
	if err != nil {
		return failed, err
	}
	for _, s := range steps {
		*s.checkpoint = s.next()
	}
	return unknown, nil
}

// lock locks the checkpoint's row, so that other writers of the view wait: each of them writes this row first.
func (c checkpoint) lock(ctx context.Context, tx pgx.Tx) error {
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
