package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore"
)

const (
	swapTimeout        = `2s` // for each lock; other sessions queue behind the request
	swapAttempts       = 30
	swapTerminateAfter = 24 // attempts, about a minute, before sessions that read the view are terminated
	swapPause          = 500 * time.Millisecond
)

// replace replaces the live view with the copy. Readers of the live table have a minute to finish. After that their
// sessions are terminated.
func (b *builder) replace(ctx context.Context) (position eventstore.Position, err error) {
	for attempt := range swapAttempts {
		if b.end, err = b.Store.Head(ctx); err != nil {
			return 0, err
		}
		if err = b.fold(ctx, b.saveOwn); err != nil {
			return 0, err
		}
		err = pgx.BeginFunc(ctx, b.conn, func(tx pgx.Tx) error {
			position, err = b.swap(ctx, tx)
			return err
		})
		if !retryable(err) {
			return position, err
		}
		if attempt+1 >= b.terminateAfter {
			b.terminateReaders(ctx)
		}
		if err := eventstore.Sleep(ctx, swapPause); err != nil {
			return 0, err
		}
	}
	return 0, err
}

// terminateReaders terminates the sessions that hold locks on the live tables, of roles that are neither superusers nor
// members of the views' owner. It needs the role pg_signal_backend. Without that role the replay fails and can be run
// again.
func (b *builder) terminateReaders(ctx context.Context) {
	_, _ = b.conn.Exec(ctx, `
		SELECT pg_terminate_backend(a.pid)
		  FROM pg_stat_activity a, pg_namespace n
		 WHERE n.nspname = $1 AND NOT pg_has_role(a.usesysid, n.nspowner, 'MEMBER') AND a.pid IN (
		       SELECT l.pid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		        WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		          AND c.relnamespace = n.oid AND c.relname = ANY ($2))`, b.Live, b.projector.Tables())
}

// fold folds the events that the copy lacks, up to its end.
func (b *builder) fold(ctx context.Context, each func(context.Context, batch) error) error {
	b.from = b.checkpoint.position
	return readLog(ctx, b.Store, logRange{after: b.from, end: b.end, filter: b.filter}, each)
}

// foldWithin folds events up to a position in the caller's transaction, without moving the checkpoint. It returns the
// last applied event.
func (b *builder) foldWithin(ctx context.Context, tx pgx.Tx, end eventstore.Position) (seen, error) {
	b.end = end
	last := b.checkpoint.seen
	err := b.fold(ctx, func(ctx context.Context, shared batch) error {
		own, err := b.cut(shared)
		if err != nil || len(own.events) == 0 {
			return err
		}
		last = seenLast(own.events)
		return b.projector.Apply(ctx, tx, own.events)
	})
	return last, err
}

// swap replaces the live view in one transaction. It does not need the projector's lease, which a service may hold for
// months: every batch of a live session writes the checkpoint's row first, so a lock on that row stops the live view.
//
// Events that the live view has applied and the copy has not are then folded into the copy, so that readers never see
// the view go back. The live session's next batch fails with errOvertaken, because the checkpoint names another replay.
// The session starts again from the checkpoint, and drops its cache of the tables that were replaced, such as which
// leads are in blocks.
func (b *builder) swap(ctx context.Context, tx pgx.Tx) (eventstore.Position, error) {
	live := pgx.Identifier{b.Live}.Sanitize()
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '`+swapTimeout+`'`); err != nil {
		return 0, err
	}
	current, err := b.lockLive(ctx, tx, live)
	if err != nil {
		return 0, err
	}
	position, last := b.checkpoint.position, b.checkpoint.seen
	head, err := b.Store.Head(ctx)
	if err != nil {
		return 0, err
	}
	// otherwise the live view is of another log, or of one that has lost events
	if current.position > position && current.position <= head {
		if last, err = b.foldWithin(ctx, tx, current.position); err != nil {
			return 0, err
		}
		position = current.position
	}
	quoted := pgx.Identifier{b.schema}.Sanitize()
	for _, table := range b.projector.Tables() {
		if err := grantTable(ctx, tx, b.Live, b.schema, table); err != nil {
			return 0, err
		}
		name := pgx.Identifier{table}.Sanitize()
		if _, err := tx.Exec(ctx, `DROP TABLE `+live+`.`+name); err != nil {
			return 0, dependentsError(err)
		}
		if _, err := tx.Exec(ctx, `ALTER TABLE `+quoted+`.`+name+` SET SCHEMA `+live); err != nil {
			return 0, err
		}
	}
	// A migration that has committed changed the dropped tables. A later one waits for the locks and changes the new
	// tables.
	if marker, err := b.currentMarker(ctx); err != nil || marker != b.marker {
		return 0, cmp.Or(err, ErrMigrated)
	}
	_, err = tx.Exec(ctx,
		`UPDATE `+live+`.checkpoint SET version = $2, epoch = $3, position = $4, updated_at = clock_timestamp(),
		seen_stream = nullif($5, ''), seen_revision = $6, seen_event = nullif($7, ''),
		  replay = pg_current_xact_id()::text::bigint
		WHERE projector = $1`,
		b.checkpoint.projector, b.checkpoint.version, b.checkpoint.epoch, int64(position),
		last.stream, int64(last.revision), last.event)
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `DROP SCHEMA `+quoted+` CASCADE`)
	return position, err
}

// lockLive locks the live view's checkpoint, and creates it if it does not exist.
func (b *builder) lockLive(ctx context.Context, tx pgx.Tx, live string) (c checkpoint, err error) {
	_, err = tx.Exec(ctx, `INSERT INTO `+live+`.checkpoint (projector, version, epoch, position, updated_at)
		VALUES ($1, $2, $3, 0, now()) ON CONFLICT (projector) DO NOTHING`,
		b.checkpoint.projector, b.checkpoint.version, b.checkpoint.epoch)
	if err != nil {
		return c, err
	}
	table := live + `.checkpoint`
	if _, err = tx.Exec(ctx, `SELECT FROM `+table+` WHERE projector = $1 FOR UPDATE`,
		b.checkpoint.projector); err != nil {
		return c, err
	}
	c, _, err = findCheckpointIn(ctx, tx, table, b.checkpoint.projector)
	return c, err
}

// dependentsError maps PostgreSQL's error about dependent objects to ErrHasDependents.
func dependentsError(err error) error {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok && answer.Code == "2BP01" {
		return fmt.Errorf("%w: %s", ErrHasDependents, answer.Detail)
	}
	return err
}
