package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/forget"
	"github.com/leadlog/leadlog/projection/schema"
)

var (
	// ErrReplayRuns: another process is rebuilding this view.
	ErrReplayRuns = errors.New("another replay of this view is running")

	// ErrSchemaTaken: the schema contains something other than the copy that is to be built there.
	ErrSchemaTaken = errors.New("the schema is there already, and holds something else")

	// ErrBuiltUpon: the live table cannot be dropped because other objects depend on it.
	ErrBuiltUpon = errors.New("something else in the database is built upon the live table")

	// ErrMigrated: the live table was migrated after the copy was begun, and the copy would undo this.
	ErrMigrated = errors.New("the tables of views were migrated meanwhile; run leadlog replay again, of the version that migrated them")

	// ErrBeyondLog: the log does not have the position that a view is to be built as of.
	ErrBeyondLog = errors.New("the log ends before this position")
)

// Until is a moment of the log. The zero value is its present end.
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

// Replay rebuilds views from the log, each in a schema of its own beside the live one, which is served and kept up to date
// meanwhile. The log is read once for all of them.
//
// It can be interrupted at any time: each copy has a checkpoint, and the next Replay continues from there. A copy that was begun
// under other migrations or by another version of the projector is dropped.
type Replay struct {
	URL        string // of the read models' database
	Store      eventstore.Store
	Projectors []Projector
	Live       string // schema of the views that are served; empty means schema.Views
	Into       string // schema of copies that stay there; empty: each copy replaces the live view
	Until      Until  // only with Into

	// Progress is called with how far all of the copies are, first with how far an earlier attempt had come.
	Progress func(done, end eventstore.Position)
	// Built is called with each view that is done, and the position that it is as of.
	Built func(p Projector, position eventstore.Position)

	indexing *pgxpool.Pool // builds indexes, of all copies
	polite   int           // attempts to replace a view before sessions that read it are ended; 0: swapPoliteAttempts
}

// Run builds the views. When the context has ended, its error is in the one returned, whichever statement it cut off.
func (r Replay) Run(ctx context.Context) error {
	err := r.withDefaults().run(ctx)
	if ended := ctx.Err(); err != nil && ended != nil {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return schema.Unavailable(err)
}

func (r Replay) run(ctx context.Context) error {
	end, err := r.end(ctx) // before there is a schema, which would stay when the log does not reach that far
	if err != nil {
		return err
	}
	if r.indexing, err = r.openIndexing(ctx); err != nil {
		return err
	}
	defer r.indexing.Close()
	builders, err := r.open(ctx, replaying)
	defer closeAll(ctx, builders)
	if err != nil {
		return err
	}
	for _, b := range builders {
		b.end = end
	}
	if err := r.build(ctx, builders); err != nil {
		return err
	}
	var reporting sync.Mutex
	err = atOnce(ctx, builders, func(ctx context.Context, b *builder) error {
		position, err := b.settle(ctx)
		if err != nil {
			return err
		}
		reporting.Lock()
		defer reporting.Unlock()
		r.Built(b.projector, position)
		return nil
	})
	if err != nil || r.Into == "" || len(builders) == 0 {
		return err
	}
	if err := forget.SweepErased(ctx, r.Store, builders[0].conn); err != nil {
		return err
	}
	return openAlike(ctx, builders[0].conn, r.Live, r.Into)
}

func (r Replay) withDefaults() Replay {
	if r.Live == "" {
		r.Live = schema.Views
	}
	if r.Progress == nil {
		r.Progress = func(_, _ eventstore.Position) {}
	}
	if r.Built == nil {
		r.Built = func(Projector, eventstore.Position) {}
	}
	r.polite = cmp.Or(r.polite, swapPoliteAttempts)
	return r
}

// What copies are for. Their schemas are named after it, and their sessions.
const (
	replaying = "replay"
	verifying = "verify"
)

// ReplayLease is the lease that a replay of a projector's live view has.
func ReplayLease(projector string) string {
	return schema.ReplayLease(replaying+"_"+projector, projector)
}

// open makes the copies, or finds them as an earlier attempt left them. Those that are open are returned with an error too.
func (r Replay) open(ctx context.Context, task string) (builders []*builder, err error) {
	for _, p := range r.Projectors {
		into := r.Into
		if into == "" {
			into = task + "_" + p.Name()
		}
		b, err := r.newBuilder(ctx, p, task, into)
		if err != nil {
			return builders, err
		}
		builders = append(builders, b)
		if err := b.openCopy(ctx); err != nil {
			return builders, err
		}
	}
	return builders, nil
}

func closeAll(ctx context.Context, builders []*builder) {
	for _, b := range builders {
		closeConn(ctx, b.conn)
	}
}

// end returns the position up to which the log is folded.
func (r Replay) end(ctx context.Context) (eventstore.Position, error) {
	head, err := r.Store.Head(ctx)
	if err != nil || r.Until.Position == 0 {
		return head, err
	}
	if r.Until.Position > head {
		return 0, fmt.Errorf("%w (it ends at %d)", ErrBeyondLog, head)
	}
	return r.Until.Position, nil
}

// build folds what the copies do not have yet, each up to its end. They work side by side, and none runs further ahead
// of another than two batches.
func (r Replay) build(ctx context.Context, builders []*builder) error {
	whole := r.missing(builders)
	if whole.after >= whole.end {
		return nil
	}
	r.Progress(whole.after, whole.end)
	group, ctx := errgroup.WithContext(ctx)
	lanes := make([]chan batch, len(builders))
	for i, b := range builders {
		lanes[i] = make(chan batch)
		b.from = b.checkpoint.position
		group.Go(func() error { return b.follow(ctx, lanes[i]) })
	}
	group.Go(func() error {
		defer func() {
			for _, lane := range lanes {
				close(lane)
			}
		}()
		var done, next eventstore.Position // by all: who takes a batch has prepared the one before, and written those before that
		return readLog(ctx, r.Store, whole, 0, func(ctx context.Context, b batch) error {
			for _, lane := range lanes {
				if err := send(ctx, b, lane); err != nil {
					return err
				}
			}
			if done > 0 {
				r.Progress(done, whole.end)
			}
			done, next = next, b.position
			return nil
		})
	})
	if err := group.Wait(); err != nil {
		return err
	}
	r.Progress(whole.end, whole.end)
	return nil
}

// missing returns the part of the log that at least one copy does not have yet.
func (r Replay) missing(builders []*builder) logRange {
	s := logRange{filter: union(r.Projectors)}
	for _, b := range builders {
		s.end = max(s.end, b.end)
	}
	s.after = s.end
	for _, b := range builders {
		if b.checkpoint.position < b.end {
			s.after = min(s.after, b.checkpoint.position)
		}
	}
	return s
}

// settle finishes a copy, and either puts it in the place of the live view or, if it stays beside it, grants the same roles access.
func (b *builder) settle(ctx context.Context) (eventstore.Position, error) {
	if err := b.finishCopy(ctx); err != nil {
		return 0, err
	}
	if b.Into == "" {
		return b.replace(ctx)
	}
	for _, table := range b.projector.Tables() {
		if err := grantAlike(ctx, b.conn, b.Live, b.schema, table); err != nil {
			return 0, err
		}
	}
	return b.checkpoint.position, nil
}

func atOnce(ctx context.Context, builders []*builder, do func(context.Context, *builder) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, b := range builders {
		group.Go(func() error {
			if err := do(ctx, b); err != nil {
				return fmt.Errorf("view %s: %w", b.projector.Name(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// builder builds the copy of one view, on a connection whose search path is the copy's schema.
type builder struct {
	Replay
	projector  Projector
	filter     eventstore.Filter
	conn       *pgx.Conn
	schema     string
	madeAs     string // marker of the copy
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
	pool, err := poolConfig(r.URL, into)
	if err != nil {
		return nil, err
	}
	config := pool.ConnConfig
	config.RuntimeParams["application_name"] = "leadlog " + task + " " + p.Name()
	config.AfterConnect = r.asOwner
	b := &builder{Replay: r, projector: p, filter: p.Filter(), schema: into, temporary: task == verifying}
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
// from which the service must be able to erase a person, must belong to the service's role, whatever role runs the replay.
func (r Replay) asOwner(ctx context.Context, conn *pgconn.PgConn) error {
	return conn.ExecParams(ctx, `SELECT set_config('role', pg_get_userbyid(nspowner), false) FROM pg_namespace
		WHERE nspname = $1 AND pg_has_role(nspowner, 'MEMBER')`, [][]byte{[]byte(r.Live)}, nil, nil, nil).Read().Err
}

// lease excludes other replays of the view for as long as the connection lives. The session of a killed replay may end a little later
// than its process.
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

func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the connection is gone in any case
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
	marker := fmt.Sprintf("%sof views at migration %d, as of %s", schema.CopyMarker, migration, b.Until)
	if b.temporary {
		marker += ", unlogged"
	}
	return marker, err
}

// openCopy creates the copy's tables, empty, unless they are there from an earlier attempt.
func (b *builder) openCopy(ctx context.Context) error {
	var err error
	if b.madeAs, err = b.marker(ctx); err != nil {
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
		if err := b.openSchema(ctx, tx, b.madeAs); err != nil {
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

// indexesAtOnce is how many indexes are built at a time, of all copies together. Each takes a processor, and sorts in an amount
// of memory that fits into the processor's cache: sorting runs and merging them from files takes half as long as sorting
// everything in memory.
const (
	indexesAtOnce = 3
	indexMemory   = "4MB"
)

// openIndexing prepares the sessions that build indexes.
func (r Replay) openIndexing(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := poolConfig(r.URL, r.Live)
	if err != nil {
		return nil, err
	}
	config.MinConns, config.MaxConns = 0, indexesAtOnce
	config.ConnConfig.AfterConnect = r.asOwner
	maps.Copy(config.ConnConfig.RuntimeParams, map[string]string{
		"application_name":     "leadlog replay indexes",
		"maintenance_work_mem": indexMemory,
		// The other processors build other indexes.
		"max_parallel_maintenance_workers": "0",
		// A scan that starts in the middle of a table, because another one is reading there, would have to sort rows that are in order.
		"synchronize_seqscans": "off",
	})
	return pgxpool.NewWithConfig(ctx, config)
}

// finishCopy creates what is needed only for reading: statistics and indexes. A table is analyzed first, because analyzing and
// building an index block each other.
func (b *builder) finishCopy(ctx context.Context) error {
	var indexes []string
	for _, table := range b.projector.Tables() {
		if _, err := b.conn.Exec(ctx, `ANALYZE `+pgx.Identifier{b.schema, table}.Sanitize()); err != nil {
			return err
		}
		more, err := propose(ctx, b.conn, copyIndexes, b.Live, b.schema, table)
		if err != nil {
			return err
		}
		indexes = append(indexes, more...)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, statement := range indexes {
		group.Go(func() error {
			_, err := b.indexing.Exec(ctx, statement)
			return err
		})
	}
	return group.Wait()
}
