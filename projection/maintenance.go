package projection

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// Maintainer is a Projector that maintains another table, derived from its rows, such as one that speeds up searches. It does so in
// the background, when there are no events to apply.
type Maintainer interface {
	Projector
	// DerivedTable is that table. Its rows are not a fold of the log.
	DerivedTable() string
	// CompareDerived compares it in the live view's schema with the rows, and lists what is wrong.
	CompareDerived(ctx context.Context, tx pgx.Tx, live string, most int) ([]Difference, error)
	// Maintenance begins, for one session.
	Maintenance() Maintenance
}

// Maintenance is what one session knows about the work that is left to do on the derived table.
type Maintenance interface {
	// Note is told of events whose effects are written.
	Note(events []Event)
	// Due reports whether there is something to do, and Pending whether there will soon be.
	Due() bool
	Pending() bool
	// Run does a part of it, of some milliseconds. Nobody else writes the view until its transaction ends.
	Run(ctx context.Context, tx pgx.Tx) error
}

// MaintenancePause is how long a session that has nothing to apply waits while maintenance is pending.
const MaintenancePause = time.Second

const maintenanceRetry = 30 * time.Second // after a failure

// maintain does maintenance, a part at a time, until an event comes. It does nothing while the view is behind.
func (s *session) maintain(ctx context.Context, f *follower, behind bool) error {
	if s.maintenance == nil || behind {
		return nil
	}
	for first := true; first || f.idle(); first = false {
		if time.Now().Before(s.maintainAt) || !s.maintenance.Due() {
			return nil
		}
		err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
			if err := s.checkpoint.hold(ctx, tx); err != nil {
				return err
			}
			return s.maintenance.Run(ctx, tx)
		})
		if ctx.Err() != nil || s.conn.IsClosed() || errors.Is(err, errOvertaken) {
			return err
		}
		if err != nil {
			s.maintainAt = time.Now().Add(maintenanceRetry)
			s.log.Warn("searches stay slower: what helps them is not made", slog.Any("error", err), slog.String("retryIn", maintenanceRetry.String()))
		}
	}
	return nil
}

// wake returns a channel that says when to look for maintenance although no event has come; nil when there is no need to.
func (s *session) wake() <-chan time.Time {
	if s.maintenance == nil || !s.maintenance.Pending() {
		return nil
	}
	return time.After(max(MaintenancePause, time.Until(s.maintainAt)))
}

// hold makes everybody else who writes the view wait, by locking the checkpoint's row, which they write first.
func (c checkpoint) hold(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, `
		SELECT FROM checkpoint
		 WHERE projector = $1 AND version = $2 AND epoch = $3 AND position = $4 AND coalesce(seen_event, '') = $5 AND replay = $6
		   FOR NO KEY UPDATE`,
		c.projector, c.version, c.epoch, int64(c.position), c.seen.event, c.replay)
	if err == nil && tag.RowsAffected() != 1 {
		err = errOvertaken
	}
	return err
}
