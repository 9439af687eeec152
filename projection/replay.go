package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/migration"
	"github.com/leadlog/leadlog/projection/schema"
)

var (
	// ErrReplayRuns: another process is rebuilding this view.
	ErrReplayRuns = errors.New("another replay of this view is running")

	// ErrSchemaExists: the schema exists and is not a copy of the views that are to be built there.
	ErrSchemaExists = errors.New("the schema exists already")

	// ErrHasDependents: the live table cannot be dropped because other objects depend on it, such as a view of an
	// operator.
	ErrHasDependents = errors.New("other objects in the database depend on the live table")

	// ErrMigrated: the live table was migrated after the copy was begun, and the copy would undo this.
	ErrMigrated = errors.New("the tables of the views were migrated during the replay; run leadlog replay again, " +
		"with the version that migrated them")

	// ErrBeyondLog: the log ends before the position up to which a view is to be built.
	ErrBeyondLog = errors.New("the log ends before this position")
)

// Until is an upper bound of the events of a replay. The zero value is the present end of the log.
type Until struct {
	Position eventstore.Position // the last that is folded; 0: no bound
	Time     time.Time           // later events are left out; zero time: no bound
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

// Replay rebuilds views from the log, each in a schema of its own beside the live one. The live views are served and
// updated until they are replaced. The log is read once for all views.
//
// A replay can be interrupted at any time: each copy has a checkpoint, and the next Replay continues from there. A copy
// that was created under other migrations or by another version of the projector is dropped.
type Replay struct {
	URL        string // of the views' database
	Store      eventstore.Store
	Projectors []Projector
	Live       string // schema of the views that are served; empty means schema.Views
	Into       string // schema of copies that are kept; empty: each copy replaces the live view
	Until      Until  // only with Into

	// Progress is called with the position that all copies have reached, at first that of an earlier attempt.
	Progress func(done, end eventstore.Position)
	// Built is called with each completed view and its position.
	Built func(p Projector, position eventstore.Position)

	indexing *pgxpool.Pool // builds indexes, of all copies
	// attempts to replace a view before sessions that read it are terminated; 0: swapTerminateAfter
	terminateAfter int
	leaseAttempts  int // to take the lease of a copy; 0: 20
}

// Run builds the views. When the context is done, the returned error wraps its error, whichever statement it cancelled.
func (r Replay) Run(ctx context.Context) error {
	err := r.withDefaults().run(ctx)
	if ended := ctx.Err(); err != nil && ended != nil {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return schema.Unavailable(err)
}

func (r Replay) run(ctx context.Context) error {
	// before a schema is created, which would be left behind if the log ends before that position
	end, err := r.end(ctx)
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
	err = forEachBuilder(ctx, builders, func(ctx context.Context, b *builder) error {
		position, err := b.complete(ctx)
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
	if err := DeleteErasedFromCopies(ctx, r.Store, builders[0].conn); err != nil {
		return err
	}
	return grantSchema(ctx, builders[0].conn, r.Live, r.Into)
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
	r.terminateAfter, r.leaseAttempts = cmp.Or(r.terminateAfter, swapTerminateAfter), cmp.Or(r.leaseAttempts, 20)
	return r
}

// The tasks that copies are made for. Schemas and sessions are named after them.
const (
	replaying = "replay"
	verifying = "verify"
)

// ReplayLease returns the name of the lease that a replay of a projector's live view takes.
func ReplayLease(projector string) string {
	return schema.ReplayLease(replaying+"_"+projector, projector)
}

// open creates the copies, or opens those of an earlier attempt. On an error it also returns the copies that are open.
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

// build folds the events that each copy lacks, up to its end. The copies are built concurrently, and none is more than
// two batches ahead of another.
func (r Replay) build(ctx context.Context, builders []*builder) error {
	missing := r.missing(builders)
	if missing.after >= missing.end {
		return nil
	}
	r.Progress(missing.after, missing.end)
	group, ctx := errgroup.WithContext(ctx)
	inputs := make([]chan batch, len(builders))
	for i, b := range builders {
		inputs[i] = make(chan batch)
		b.from = b.checkpoint.position
		group.Go(func() error { return b.follow(ctx, inputs[i]) })
	}
	group.Go(func() error {
		defer func() {
			for _, input := range inputs {
				close(input)
			}
		}()
		// of all copies: a builder takes a batch after preparing the one before and saving all earlier ones
		var done, next eventstore.Position
		return readLog(ctx, r.Store, missing, func(ctx context.Context, b batch) error {
			for _, input := range inputs {
				if err := send(ctx, b, input); err != nil {
					return err
				}
			}
			if done > 0 {
				r.Progress(done, missing.end)
			}
			done, next = next, b.position
			return nil
		})
	})
	if err := group.Wait(); err != nil {
		return err
	}
	r.Progress(missing.end, missing.end)
	return nil
}

// missing returns the range of the log that at least one copy lacks.
func (r Replay) missing(builders []*builder) logRange {
	missing := logRange{filter: Union(r.Projectors)}
	for _, b := range builders {
		missing.end = max(missing.end, b.end)
	}
	missing.after = missing.end
	for _, b := range builders {
		if b.checkpoint.position < b.end {
			missing.after = min(missing.after, b.checkpoint.position)
		}
	}
	return missing
}

// complete finishes a copy. It replaces the live view with it, or grants the roles of the live view access to a copy
// that is kept.
func (b *builder) complete(ctx context.Context) (eventstore.Position, error) {
	if err := b.finishCopy(ctx); err != nil {
		return 0, err
	}
	if b.Into == "" {
		return b.replace(ctx)
	}
	for _, table := range b.projector.Tables() {
		if err := grantTable(ctx, b.conn, b.Live, b.schema, table); err != nil {
			return 0, err
		}
	}
	return b.checkpoint.position, nil
}

func forEachBuilder(ctx context.Context, builders []*builder, do func(context.Context, *builder) error) error {
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
	marker     string // of the copy, as of when it was opened
	checkpoint checkpoint
	from, end  eventstore.Position // of the range that is being folded: after from, up to end
	temporary  bool                // the copy is for a comparison and is dropped afterwards
	savedAt    time.Time           // when the checkpoint was last written
}

// emptyInterval is the least time between two batches without events that move a checkpoint. An interrupted replay
// reads the skipped part of the log again.
const emptyInterval = time.Second

// newBuilder connects to the database and takes the lease of the copy.
func (r Replay) newBuilder(ctx context.Context, p Projector, task, into string) (*builder, error) {
	pool, err := poolConfig(r.URL, into)
	if err != nil {
		return nil, err
	}
	config := pool.ConnConfig
	config.RuntimeParams["application_name"] = "leadlog " + task + " " + p.Name()
	config.AfterConnect = r.asOwner
	b := &builder{Replay: r, projector: p, filter: p.Filter(), schema: into, temporary: task == verifying}
	if b.conn, err = migration.Connect(ctx, config); err != nil {
		return nil, err
	}
	if err := b.lease(ctx); err != nil {
		closeConn(ctx, b.conn)
		return nil, err
	}
	return b, nil
}

// asOwner sets the role that owns the live views, if the session's role is a member of it. The service's role must own
// each table that replaces a live one, or from which it must be able to erase a person, whichever role runs the replay.
func (r Replay) asOwner(ctx context.Context, conn *pgconn.PgConn) error {
	return conn.ExecParams(ctx, `SELECT set_config('role', pg_get_userbyid(nspowner), false) FROM pg_namespace
		WHERE nspname = $1 AND pg_has_role(nspowner, 'MEMBER')`, [][]byte{[]byte(r.Live)}, nil, nil, nil).Read().Err
}

// lease takes the lease that excludes other replays of the view until the connection is closed. It retries, because the
// session of a killed replay may outlive its process for a moment.
func (b *builder) lease(ctx context.Context) error {
	const pause = 250 * time.Millisecond
	for range b.leaseAttempts {
		acquired, err := schema.AcquireLease(ctx, b.conn, schema.ReplayLease(b.schema, b.projector.Name()))
		if err != nil || acquired {
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
	_ = conn.Close(ctx) // the connection is closed in any case
}

// prepared is a batch reduced to the events that the copy lacks, ready to be written.
type prepared struct {
	batch
	write Write
}

func (b *builder) prepare(shared batch) (prepared, error) {
	own, err := b.cut(shared)
	if err != nil {
		return prepared{}, fmt.Errorf("view %s: %w", b.projector.Name(), err)
	}
	return prepared{own, prepare(b.projector, own.events)}, nil
}

// follow folds batches in order. While one is written, the next is prepared.
func (b *builder) follow(ctx context.Context, batches <-chan batch) error {
	group, ctx := errgroup.WithContext(ctx)
	ready := make(chan prepared)
	group.Go(func() error {
		defer close(ready)
		for shared := range batches {
			own, err := b.prepare(shared)
			if err == nil {
				err = send(ctx, own, ready)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	group.Go(func() error {
		for own := range ready {
			if err := b.save(ctx, own); err != nil {
				return fmt.Errorf("view %s: %w", b.projector.Name(), err)
			}
		}
		return nil
	})
	return group.Wait()
}

// saveOwn prepares a batch and saves it.
func (b *builder) saveOwn(ctx context.Context, shared batch) error {
	own, err := b.prepare(shared)
	if err != nil {
		return err
	}
	return b.save(ctx, own)
}

// save writes a batch and the checkpoint in one transaction.
func (b *builder) save(ctx context.Context, own prepared) error {
	if own.position <= b.checkpoint.position {
		return nil
	}
	if len(own.events) == 0 && own.position < b.end && time.Since(b.savedAt) < emptyInterval {
		return nil
	}
	_, err := commit(ctx, b.conn, []step{{&b.checkpoint, own.batch, own.write}})
	if err == nil {
		b.savedAt = time.Now()
	}
	return err
}

// cut returns the events of a batch that the copy lacks, up to Until. The batch is shared by all copies. Times never
// decrease within a folded stream, so the events of a stream that are kept are its first ones.
func (b *builder) cut(shared batch) (own batch, err error) {
	own.position = min(shared.position, b.end)
	for i := range shared.events {
		if !b.selects(&shared.events[i]) {
			continue
		}
		if err := shared.events[i].Err; err != nil {
			return own, err
		}
		if own.events == nil {
			own.events = make([]Event, 0, len(shared.events)-i)
		}
		own.events = append(own.events, shared.events[i])
	}
	return own, nil
}

func (b *builder) selects(e *Event) bool {
	return e.Position > b.from && e.Position <= b.end && b.filter.Matches(e.Stream, e.Type) &&
		(b.Until.Time.IsZero() || !e.At.After(b.Until.Time))
}

// currentMarker returns the schema comment that identifies a copy, so that no other schema is ever dropped.
func (b *builder) currentMarker(ctx context.Context) (string, error) {
	var migration int64
	err := b.conn.QueryRow(ctx, `SELECT max(version_id) FROM views.migration WHERE is_applied`).Scan(&migration)
	marker := fmt.Sprintf("%sof views at migration %d, as of %s", schema.CopyMarker, migration, b.Until)
	if b.temporary {
		marker += ", unlogged"
	}
	return marker, err
}

// openCopy creates the copy's tables, or opens those of an earlier attempt.
func (b *builder) openCopy(ctx context.Context) error {
	var err error
	if b.marker, err = b.currentMarker(ctx); err != nil {
		return err
	}
	epoch, err := b.Store.Epoch(ctx)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, b.conn, func(tx pgx.Tx) error {
		// Several processes may build copies of several views in one schema. This lock lets one of them create the
		// schema.
		if _, err := tx.Exec(ctx, `LOCK TABLE lease.session IN SHARE UPDATE EXCLUSIVE MODE`); err != nil {
			return err
		}
		if err := b.openSchema(ctx, tx); err != nil {
			return err
		}
		c, found, err := findCheckpoint(ctx, tx, b.projector.Name())
		if err != nil {
			return err
		}
		onLog, err := c.seen.onLog(ctx, b.Store)
		if err != nil {
			return err
		}
		var complete bool
		if err := tx.QueryRow(ctx,
			`SELECT bool_and(to_regclass(format('%I.%I', $1::text, name)) IS NOT NULL) FROM unnest($2::text[]) AS name`,
			b.schema, b.projector.Tables()).Scan(&complete); err != nil {
			return err
		}
		if found && complete && onLog && c.epoch == epoch && c.version == b.projector.Version() {
			b.checkpoint = c
			return nil
		}
		for _, table := range b.projector.Tables() {
			if err := b.createTable(ctx, tx, table); err != nil {
				return err
			}
		}
		b.checkpoint = checkpoint{projector: b.projector.Name(), version: b.projector.Version(), epoch: epoch}
		_, err = tx.Exec(ctx, `
			INSERT INTO checkpoint (projector, version, epoch, position, updated_at) VALUES ($1, $2, $3, 0, now())
			    ON CONFLICT (projector) DO UPDATE SET version = excluded.version, epoch = excluded.epoch, position = 0,
			    updated_at = now(),
			       seen_stream = NULL, seen_revision = NULL, seen_event = NULL`,
			b.checkpoint.projector, b.checkpoint.version, b.checkpoint.epoch)
		return err
	})
}

// openSchema creates the copy's schema. It drops an outdated copy of an earlier attempt, unless that copy is one that
// is kept.
func (b *builder) openSchema(ctx context.Context, tx pgx.Tx) error {
	var comment string
	err := tx.QueryRow(ctx,
		`SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1`,
		b.schema).Scan(&comment)
	switch {
	case err == nil && comment == b.marker:
		return nil
	case err == nil && !strings.HasPrefix(comment, schema.CopyMarker):
		return fmt.Errorf("schema %s: %w: it is not a copy of views", b.schema, ErrSchemaExists)
	case err == nil && b.Into != "":
		return fmt.Errorf("schema %s: %w: it is a %s, not a %s", b.schema, ErrSchemaExists, comment, b.marker)
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	quoted := pgx.Identifier{b.schema}.Sanitize()
	for _, statement := range []string{
		`DROP SCHEMA IF EXISTS ` + quoted + ` CASCADE`,
		`CREATE SCHEMA ` + quoted,
		`COMMENT ON SCHEMA ` + quoted + ` IS '` + b.marker + `'`, // the marker has no quotes
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return b.createTable(ctx, tx, "checkpoint")
}

// createTable creates a table of the copy. Tables of a temporary copy need no write-ahead log: after a crash PostgreSQL
// truncates them, and the checkpoint with them.
func (b *builder) createTable(ctx context.Context, tx pgx.Tx, table string) error {
	err := createLike(ctx, tx, b.Live, b.schema, table)
	if err == nil && b.temporary {
		_, err = tx.Exec(ctx, `ALTER TABLE `+pgx.Identifier{b.schema, table}.Sanitize()+` SET UNLOGGED`)
	}
	return err
}

// retryable reports whether other sessions caused an error: a deadlock, or a lock timeout.
func retryable(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && (answer.Code == "40P01" || answer.Code == "55P03")
}

// indexesAtOnce is how many indexes are built concurrently, over all copies. Each build takes a processor. Its sort
// memory fits into the processor's cache: sorting runs and merging them from files takes half as long as sorting
// everything in memory.
const (
	indexesAtOnce = 3
	indexMemory   = "4MB"
)

// openIndexing returns a pool of sessions that build indexes.
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
		// A synchronized scan would start in the middle of a table, and rows that are in order would have to be sorted.
		"synchronize_seqscans": "off",
	})
	return migration.NewPool(ctx, config)
}

// finishCopy creates statistics and indexes, which only readers need, and fills the derived tables of a copy that
// replaces the live view. Those of a kept copy stay empty.
func (b *builder) finishCopy(ctx context.Context) error {
	m, maintains := b.projector.(Maintainer)
	if !maintains {
		return b.finishTables(ctx, b.projector.Tables())
	}
	derived := m.DerivedTables()
	folded := slices.DeleteFunc(b.projector.Tables(), func(table string) bool {
		return slices.Contains(derived, table)
	})
	if err := b.finishTables(ctx, folded); err != nil {
		return err
	}
	if b.Into == "" {
		for work := m.Maintenance(); work.Pending(); {
			if err := pgx.BeginFunc(ctx, b.conn, func(tx pgx.Tx) error { return work.Run(ctx, tx) }); err != nil {
				return err
			}
		}
	}
	return b.finishTables(ctx, derived)
}

// finishTables creates statistics and indexes of tables. Tables are analyzed first, because that and CREATE INDEX block
// each other.
func (b *builder) finishTables(ctx context.Context, tables []string) error {
	if err := schema.Analyze(ctx, b.conn, slog.Default(), b.schema, tables, math.MaxInt64); err != nil {
		return err
	}
	var indexes []string
	for _, table := range tables {
		more, err := generateStatements(ctx, b.conn, copyIndexes, b.Live, b.schema, table)
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
