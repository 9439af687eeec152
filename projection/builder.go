package projection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// builder builds the copy of one view, on a connection whose search path is the copy's schema.
type builder struct {
	Replay
	projector  Projector
	filter     eventstore.Filter
	config     *pgx.ConnConfig
	conn       *pgx.Conn
	schema     string
	made       string // marker of the copy
	checkpoint checkpoint
	from, end  eventstore.Position // of the range that is being folded: after from, up to end
	temporary  bool                // the copy is for a comparison and is dropped afterwards
	moved      time.Time           // when the checkpoint was last written
}

// idle is how long the checkpoint of a copy may stay behind while no event of its view comes: an interrupted replay has to read
// that part of the log again.
const idle = time.Second

// newBuilder connects and takes the lease of the copy.
func (r Replay) newBuilder(ctx context.Context, p Projector, task, into string) (*builder, error) {
	config, err := sessionConfig(r.URL, into)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "leadlog " + task + " " + p.Name()
	maps.Copy(config.RuntimeParams, indexSettings)
	config.AfterConnect = r.asOwner
	b := &builder{Replay: r, projector: p, filter: p.Filter(), config: config, schema: into, temporary: task == verifying}
	if b.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, err
	}
	if err := b.lease(ctx); err != nil {
		closeConn(ctx, b.conn)
		return nil, err
	}
	return b, nil
}

// asOwner makes the session create everything as the role that owns the live views, if it may: a table that replaces a live one, or
// from which the service must be able to erase a person, must belong to the service's role, whoever runs the replay.
func (r Replay) asOwner(ctx context.Context, conn *pgconn.PgConn) error {
	return conn.ExecParams(ctx, `SELECT set_config('role', pg_get_userbyid(nspowner), false) FROM pg_namespace
		WHERE nspname = $1 AND pg_has_role(nspowner, 'MEMBER')`, [][]byte{[]byte(r.Live)}, nil, nil, nil).Read().Err
}

// lease keeps other replays of the view away for as long as the connection lives. The session of one that was killed may
// take a moment to go.
func (b *builder) lease(ctx context.Context) error {
	const attempts, pause = 20, 250 * time.Millisecond
	for range attempts {
		mine, err := schema.TakeLease(ctx, b.conn, schema.ReplayLease(b.schema, b.projector.Name()))
		if err != nil || mine {
			return err
		}
		if err := eventstore.Sleep(ctx, pause); err != nil {
			return err
		}
	}
	return fmt.Errorf("view %s: %w", b.projector.Name(), ErrReplayRuns)
}

// prepared is the part of a batch that the copy does not have yet, ready to be written.
type prepared struct {
	batch
	write Write
}

func (b *builder) prepare(whole batch) (prepared, error) {
	part, err := b.cut(whole)
	if err != nil {
		return prepared{}, fmt.Errorf("view %s: %w", b.projector.Name(), err)
	}
	return prepared{part, prepare(b.projector, part.events)}, nil
}

// follow folds batches that come one after another. While one is written, the next is prepared.
func (b *builder) follow(ctx context.Context, batches <-chan batch) error {
	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan prepared)
	group.Go(func() error {
		defer close(ready)
		for whole := range batches {
			part, err := b.prepare(whole)
			if err == nil {
				err = send(ctx, part, ready)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	group.Go(func() error {
		for part := range ready {
			if err := b.save(ctx, part); err != nil {
				return fmt.Errorf("view %s: %w", b.projector.Name(), err)
			}
		}
		return nil
	})
	return group.Wait()
}

// take folds a batch.
func (b *builder) take(ctx context.Context, whole batch) error {
	part, err := b.prepare(whole)
	if err != nil {
		return err
	}
	return b.save(ctx, part)
}

// save writes a part, with the checkpoint in the transaction.
func (b *builder) save(ctx context.Context, part prepared) error {
	if part.position <= b.checkpoint.position {
		return nil
	}
	if len(part.events) == 0 && part.position < b.end && time.Since(b.moved) < idle {
		return nil
	}
	next, err := b.checkpoint.apply(ctx, b.conn, part.batch, part.write)
	if err != nil {
		return err
	}
	b.checkpoint, b.moved = next, time.Now()
	return nil
}

// cut returns the events that the copy does not have yet, up to Until. Times never go back within a stream that is folded, so what
// remains of it is its beginning.
func (b *builder) cut(whole batch) (part batch, err error) {
	part.position = min(whole.position, b.end)
	for i := range whole.events {
		if !b.counts(&whole.events[i]) {
			continue
		}
		if err := whole.events[i].err; err != nil {
			return part, err
		}
		if part.events == nil {
			part.events = make([]Event, 0, len(whole.events)-i)
		}
		part.events = append(part.events, whole.events[i])
	}
	return part, nil
}

func (b *builder) counts(e *Event) bool {
	return e.Position > b.from && e.Position <= b.end && b.filter.Matches(e.Stream, e.Type) &&
		(b.Until.Time.IsZero() || !e.At.After(b.Until.Time))
}

// marker returns the comment by which the schema of a copy is recognised, so that no other schema is ever taken for one.
func (b *builder) marker(ctx context.Context) (string, error) {
	var migration int64
	err := b.conn.QueryRow(ctx, `SELECT max(version_id) FROM views.migration WHERE is_applied`).Scan(&migration)
	said := fmt.Sprintf("%sof views at migration %d, as of %s", schema.CopyMarker, migration, b.Until)
	if b.temporary {
		said += ", unlogged"
	}
	return said, err
}

// openCopy creates the copy's tables, empty, unless they are there from an earlier attempt.
func (b *builder) openCopy(ctx context.Context) error {
	var err error
	if b.made, err = b.marker(ctx); err != nil {
		return err
	}
	epoch, err := b.Store.Epoch(ctx)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, b.conn, func(tx pgx.Tx) error {
		// Several may make copies of several views in one schema at the same time: one of them makes the schema.
		if _, err := tx.Exec(ctx, `LOCK TABLE lease.session IN SHARE UPDATE EXCLUSIVE MODE`); err != nil {
			return err
		}
		if err := b.openSchema(ctx, tx, b.made); err != nil {
			return err
		}
		c, found, err := findCheckpoint(ctx, tx, b.projector.Name())
		if err != nil {
			return err
		}
		there, err := c.seen.onLog(ctx, b.Store)
		if err != nil {
			return err
		}
		if found && there && c.epoch == epoch && c.version == b.projector.Version() {
			b.checkpoint = c
			return nil
		}
		for _, table := range b.projector.Tables() {
			if err := b.makeTable(ctx, tx, table); err != nil {
				return err
			}
		}
		b.checkpoint = checkpoint{projector: b.projector.Name(), version: b.projector.Version(), epoch: epoch}
		_, err = tx.Exec(ctx, `
			INSERT INTO checkpoint (projector, version, epoch, position, updated_at) VALUES ($1, $2, $3, 0, now())
			    ON CONFLICT (projector) DO UPDATE SET version = excluded.version, epoch = excluded.epoch, position = 0, updated_at = now(),
			       seen_stream = NULL, seen_revision = NULL, seen_event = NULL`,
			b.checkpoint.projector, b.checkpoint.version, b.checkpoint.epoch)
		return err
	})
}

// openSchema makes the copy's schema. One that was left behind on the way to replacing the live view may be thrown away.
func (b *builder) openSchema(ctx context.Context, tx pgx.Tx, marker string) error {
	var comment string
	err := tx.QueryRow(ctx, `SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1`,
		b.schema).Scan(&comment)
	switch {
	case err == nil && comment == marker:
		return nil
	case err == nil && !strings.HasPrefix(comment, schema.CopyMarker):
		return fmt.Errorf("schema %s: %w: it is no copy of views", b.schema, ErrSchemaTaken)
	case err == nil && b.Into != "":
		return fmt.Errorf("schema %s: %w: it is a %s, and asked for is a %s", b.schema, ErrSchemaTaken, comment, marker)
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	quoted := pgx.Identifier{b.schema}.Sanitize()
	for _, statement := range []string{
		`DROP SCHEMA IF EXISTS ` + quoted + ` CASCADE`,
		`CREATE SCHEMA ` + quoted,
		`COMMENT ON SCHEMA ` + quoted + ` IS '` + marker + `'`, // our own words: no quotes
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return b.makeTable(ctx, tx, "checkpoint")
}

// makeTable makes a table of the copy. One that is thrown away needs no write-ahead log: when PostgreSQL crashes, it is
// empty, and so is its checkpoint.
func (b *builder) makeTable(ctx context.Context, tx pgx.Tx, table string) error {
	err := makeCopy(ctx, tx, b.Live, b.schema, table)
	if err == nil && b.temporary {
		_, err = tx.Exec(ctx, `ALTER TABLE `+pgx.Identifier{b.schema, table}.Sanitize()+` SET UNLOGGED`)
	}
	return err
}

// retryable reports whether an error came from other sessions: a deadlock, or a lock that was not free in time.
func retryable(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && (answer.Code == "40P01" || answer.Code == "55P03")
}
