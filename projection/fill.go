package projection

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// filler is a Projector that derives more from its rows than readers need, such as what speeds up searches. It does so in
// the background, when there is nothing to apply.
type filler interface {
	// filling begins to, for one session.
	filling() filling
	// misfilled compares the table filled in the live view's schema with the rows, and lists what is wrong.
	misfilled(ctx context.Context, tx pgx.Tx, live string, most int) ([]Difference, error)
	// filled is the table that it writes. Its rows are not a fold of the log.
	filled() string
}

// filling is what one session knows of what it has to fill.
type filling interface {
	// note is told of events whose effects are written.
	note(events []Event)
	// due tells whether there is something to do, and pending whether there will soon be.
	due() bool
	pending() bool
	// fill does a part of it, of some milliseconds. Nobody else writes the view until its transaction ends.
	fill(ctx context.Context, tx pgx.Tx) error
}

// fillPause is how long a session that has nothing to apply waits for what is pending.
const fillPause = time.Second

// fillAgain is how long after a failure nothing is filled.
const fillAgain = 30 * time.Second

// fill does a part of what there is to fill, unless the view is behind, and goes on until an event comes.
func (s *session) fill(ctx context.Context, feed *feed, behind bool) error {
	if s.filling == nil || behind {
		return nil
	}
	for first := true; first || feed.idle(); first = false {
		if time.Now().Before(s.fillAt) || !s.filling.due() {
			return nil
		}
		err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
			if err := s.checkpoint.hold(ctx, tx); err != nil {
				return err
			}
			return s.filling.fill(ctx, tx)
		})
		if ctx.Err() != nil || s.conn.IsClosed() || errors.Is(err, errOvertaken) {
			return err
		}
		if err != nil {
			s.fillAt = time.Now().Add(fillAgain)
			s.log.Warn("searches stay slower: what helps them is not made", slog.Any("error", err), slog.Duration("retryIn", fillAgain))
		}
	}
	return nil
}

// wake is when to look what there is to fill, though no event comes; nil: there is no need to.
func (s *session) wake() <-chan time.Time {
	if s.filling == nil || !s.filling.pending() {
		return nil
	}
	return time.After(max(fillPause, time.Until(s.fillAt)))
}

// hold has everybody else who writes the view wait: the checkpoint comes first in what they do.
func (c checkpoint) hold(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, `SELECT FROM checkpoint WHERE projector = $1 AND version = $2 AND epoch = $3 AND position = $4 FOR NO KEY UPDATE`,
		c.projector, c.version, c.epoch, int64(c.position))
	if err == nil && tag.RowsAffected() != 1 {
		err = errOvertaken
	}
	return err
}
