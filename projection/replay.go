package projection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

var (
	// ErrReplayRuns says that somebody else builds this view right now.
	ErrReplayRuns = errors.New("another replay of this view is running")

	// ErrSchemaTaken says that a schema holds something else than the copy that is to be made there.
	ErrSchemaTaken = errors.New("the schema is there already, and holds something else: drop it, or name another")

	// ErrBeyondLog says that a view is wanted as of a position that the log does not have.
	ErrBeyondLog = errors.New("the log ends before this position")
)

// Until is a moment of the log. The zero value is its end, at the time of asking.
type Until struct {
	Position eventstore.Position // the last that counts; 0 for any
	Time     time.Time           // what happened later does not count; the zero time for any
}

func (u Until) String() string {
	switch {
	case u.Position > 0:
		return fmt.Sprintf("position %d", u.Position)
	case !u.Time.IsZero():
		return u.Time.UTC().Format(time.RFC3339Nano)
	}
	return "the end of the log"
}

// Replay builds a view anew out of the log, in a schema of its own beside the live one, which goes on meanwhile.
//
// It can be interrupted at any point: the copy has a checkpoint, and the next Replay goes on from there. A copy that
// was begun under other migrations or by another version of the projector is thrown away.
type Replay struct {
	URL       string // of the read models' database
	Store     eventstore.Store
	Projector Projector
	Live      string // schema of the views that are served; empty means schema.Views
	Into      string // schema of a copy that is to stay; empty: the copy takes the live view's place
	Until     Until  // only of a copy that is to stay
	Progress  func(done, end eventstore.Position)
}

// replayBatch is the most events of a transaction, and how many are read ahead.
const replayBatch = 2000

// Run builds the view and returns the position that it is of.
func (r Replay) Run(ctx context.Context) (eventstore.Position, error) {
	if r.Live == "" {
		r.Live = schema.Views
	}
	if r.Progress == nil {
		r.Progress = func(_, _ eventstore.Position) {}
	}
	place := r.Into
	if place == "" {
		place = "replay_" + r.Projector.Name()
	}
	conn, err := connect(ctx, r.URL, place, "leadlog replay "+r.Projector.Name())
	if err != nil {
		return 0, schema.Unavailable(err)
	}
	defer closeConn(ctx, conn)
	b := builder{Replay: r, conn: conn, place: place}
	position, err := b.build(ctx)
	if err == nil && r.Into == "" {
		position, err = b.replace(ctx)
	}
	return position, schema.Unavailable(err)
}

func connect(ctx context.Context, url, place, name string) (*pgx.Conn, error) {
	config, err := sessionConfig(url, place)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = name
	return pgx.ConnectConfig(ctx, config)
}

// builder is a Replay at work, on a connection whose search path is the copy's schema.
type builder struct {
	Replay
	conn       *pgx.Conn
	place      string
	checkpoint checkpoint
}

// build makes the copy, or goes on with it, up to the moment that is wanted.
func (b *builder) build(ctx context.Context) (eventstore.Position, error) {
	if err := b.lock(ctx); err != nil {
		return 0, err
	}
	end, err := b.Store.Head(ctx)
	if err != nil {
		return 0, err
	}
	if b.Until.Position > end {
		return 0, fmt.Errorf("%w (it ends at %d)", ErrBeyondLog, end)
	}
	if b.Until.Position > 0 {
		end = b.Until.Position
	}
	if err := b.openCopy(ctx); err != nil {
		return 0, err
	}
	if err := b.catchUp(ctx, end); err != nil {
		return 0, err
	}
	return b.checkpoint.position, b.finishCopy(ctx)
}

// lock keeps other replays of the view away for as long as the connection lives. The session of one that was killed may
// take a moment to go.
func (b *builder) lock(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, b.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '5s'`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, "leadlog replay "+b.place+"."+b.Projector.Name())
		return err
	})
	if retryable(err) {
		return ErrReplayRuns
	}
	return err
}

// catchUp folds what the copy does not have yet, with its checkpoint in each transaction.
func (b *builder) catchUp(ctx context.Context, end eventstore.Position) error {
	s := session{worker: &worker{projector: b.Projector}, conn: b.conn, checkpoint: b.checkpoint}
	return b.fold(ctx, b.checkpoint.position, end, func(part batch) error {
		err := s.apply(ctx, part)
		b.checkpoint = s.checkpoint
		return err
	})
}

// fold brings the events behind a position, up to another one that the log has, in batches.
func (b *builder) fold(ctx context.Context, after, end eventstore.Position, apply func(batch) error) error {
	if after >= end {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	feed := openFeed(ctx, b.Store, after, b.Projector.Filter(), replayBatch)
	defer feed.drain()
	defer cancel()
	for after < end {
		part, err := feed.collect(ctx, replayBatch, time.Time{})
		if err != nil {
			return err
		}
		if part.position <= after {
			continue
		}
		part = b.cut(part, end)
		if err := apply(part); err != nil {
			return err
		}
		after = part.position
		b.Progress(after, end)
	}
	return nil
}

// cut leaves out what does not count. Times never go back within a stream, so what is left of each is its beginning.
func (b *builder) cut(part batch, end eventstore.Position) batch {
	kept := part.events[:0]
	for _, e := range part.events {
		if e.Position <= end && (b.Until.Time.IsZero() || !e.At.After(b.Until.Time)) {
			kept = append(kept, e)
		}
	}
	return batch{events: kept, position: min(part.position, end)}
}

// marker says in the database what a schema is, so that nothing else is ever taken for a copy of ours.
func (b *builder) marker(ctx context.Context) (string, error) {
	var migration int64
	err := b.conn.QueryRow(ctx, `SELECT max(version_id) FROM views.migration WHERE is_applied`).Scan(&migration)
	return fmt.Sprintf("%sof views at migration %d, as of %s", markerPrefix, migration, b.Until), err
}

const markerPrefix = "leadlog copy "

// openCopy makes the copy's tables, empty, unless they are there from an earlier attempt.
func (b *builder) openCopy(ctx context.Context) error {
	marker, err := b.marker(ctx)
	if err != nil {
		return err
	}
	epoch, err := b.Store.Epoch(ctx)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, b.conn, func(tx pgx.Tx) error {
		if err := b.openPlace(ctx, tx, marker); err != nil {
			return err
		}
		c, found, err := findCheckpoint(ctx, tx, b.Projector.Name())
		if err != nil {
			return err
		}
		if found && c.epoch == epoch && c.version == b.Projector.Version() {
			if b.Until.Position > 0 && c.position > b.Until.Position {
				return fmt.Errorf("%w (it is at position %d)", ErrSchemaTaken, c.position)
			}
			b.checkpoint = c
			return nil
		}
		for _, table := range b.Projector.Tables() {
			if err := makeCopy(ctx, tx, b.Live, b.place, table); err != nil {
				return err
			}
		}
		b.checkpoint = checkpoint{projector: b.Projector.Name(), version: b.Projector.Version(), epoch: epoch}
		_, err = tx.Exec(ctx, `
			INSERT INTO checkpoint (projector, version, epoch, position, updated_at) VALUES ($1, $2, $3, 0, now())
			    ON CONFLICT (projector) DO UPDATE SET version = excluded.version, epoch = excluded.epoch, position = 0, updated_at = now()`,
			b.checkpoint.projector, b.checkpoint.version, b.checkpoint.epoch)
		return err
	})
}

// openPlace makes the copy's schema. One that was left behind on the way to replacing the live view may be thrown away.
func (b *builder) openPlace(ctx context.Context, tx pgx.Tx, marker string) error {
	var comment string
	err := tx.QueryRow(ctx, `SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1`,
		b.place).Scan(&comment)
	switch {
	case err == nil && comment == marker:
		return nil
	case err == nil && (b.Into != "" || !strings.HasPrefix(comment, markerPrefix)):
		return fmt.Errorf("schema %s: %w", b.place, ErrSchemaTaken)
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	place := pgx.Identifier{b.place}.Sanitize()
	for _, statement := range []string{
		`DROP SCHEMA IF EXISTS ` + place + ` CASCADE`,
		`CREATE SCHEMA ` + place,
		`COMMENT ON SCHEMA ` + place + ` IS '` + marker + `'`, // our own words: no quotes
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return makeCopy(ctx, tx, b.Live, b.place, "checkpoint")
}

// finishCopy makes what rows need only when they are read.
func (b *builder) finishCopy(ctx context.Context) error {
	for _, table := range b.Projector.Tables() {
		if err := finishCopy(ctx, b.conn, b.Live, b.place, table); err != nil {
			return err
		}
	}
	return nil
}

// retryable tells errors of who met somebody on the way: a deadlock, or a lock that did not come in time.
func retryable(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && (answer.Code == "40P01" || answer.Code == "55P03")
}
