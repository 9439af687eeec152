package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Difference is a row of a live view that differs from a fresh fold of the log.
type Difference struct {
	Table string
	Key   string // the row's primary key: ids, never personal data
	What  string
}

// Of describes the difference in a view, by whose name its tables are rebuilt.
func (d Difference) Of(view string) string {
	if d.Table != view {
		view += ", table " + d.Table
	}
	return fmt.Sprintf("view %s, row %s: %s", view, d.Key, d.What)
}

// Comparison is the result of comparing one view. Err is set if the view is of another log (ErrForeignLog,
// ErrAheadOfLog) or another version (ErrReplayDue), if the log cannot be folded into it, or if it cannot apply its next
// events (ErrStopped, after a complete comparison).
type Comparison struct {
	View        string
	Differences []Difference
	Err         error
}

// ErrStopped: a view cannot apply the events after its checkpoint, so it does not get beyond them.
var ErrStopped = errors.New("the view cannot apply the events after its checkpoint")

// Compare folds the log into copies of the views and returns the rows in which the live views differ, at most limit for
// each. The live views are updated while it runs: a snapshot of each is compared with the fold up to the snapshot's
// checkpoint. If it returns an error, no comparison is valid.
func (r Replay) Compare(ctx context.Context, limit int) ([]Comparison, error) {
	r.Into, r.Until = "", Until{}
	r = r.withDefaults()
	all, failed := r.compare(ctx, limit)
	if failed != nil &&
		(len(r.Projectors) == 1 || ctx.Err() != nil ||
			errors.Is(schema.Unavailable(failed), eventstore.ErrUnavailable)) {
		return nil, schema.Unavailable(failed)
	}
	if failed != nil { // the log cannot be folded into one of the views: compare each view alone to find which
		all = make([]Comparison, len(r.Projectors))
	}
	for i, p := range r.Projectors {
		// A view that has stopped is compared again: events that were erased meanwhile may not apply after those that
		// were read before.
		if failed == nil && !errors.Is(all[i].Err, ErrStopped) {
			continue
		}
		alone := r
		alone.Projectors = []Projector{p}
		one, err := alone.compare(ctx, limit)
		if unavailable := schema.Unavailable(err); ctx.Err() != nil ||
			errors.Is(unavailable, eventstore.ErrUnavailable) {
			return nil, unavailable
		}
		if err != nil {
			one = []Comparison{{View: p.Name(), Err: err}}
		}
		all[i] = one[0]
	}
	return all, nil
}

func (r Replay) compare(ctx context.Context, limit int) ([]Comparison, error) {
	builders, err := r.open(ctx, verifying)
	defer func() {
		for _, b := range builders {
			b.dropCopy(ctx)
		}
		closeAll(ctx, builders)
	}()
	if err != nil {
		return nil, err
	}
	all := make([]Comparison, len(builders))
	var current []*builder
	for i, b := range builders {
		all[i].View = b.projector.Name()
		live, err := b.liveCheckpoint(ctx, b.conn)
		switch {
		case err == nil:
			b.end = live.position
			current = append(current, b)
		case stale(err):
			all[i].Err = err
		default:
			return nil, err
		}
	}
	if err := r.build(ctx, current); err != nil {
		return nil, err
	}
	for i, b := range builders {
		if all[i].Err != nil {
			continue
		}
		if all[i].Differences, all[i].Err = b.differences(ctx, limit); all[i].Err == nil {
			all[i].Err = b.tryNext(ctx)
		}
		if err := all[i].Err; err != nil && !stale(err) && !errors.Is(err, ErrStopped) {
			return nil, err
		}
	}
	return all, nil
}

// dropCopy drops the schema of an opened copy. A copy that a killed process left is reused by the next run.
func (b *builder) dropCopy(ctx context.Context) {
	if b.checkpoint.projector == "" { // it was not opened
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, _ = b.conn.Exec(ctx, `DROP SCHEMA IF EXISTS `+pgx.Identifier{b.schema}.Sanitize()+` CASCADE`)
}

// liveCheckpoint returns the checkpoint of the live view: position 0 when the view was never built.
func (b *builder) liveCheckpoint(ctx context.Context, db schema.Querier) (checkpoint, error) {
	c, found, err := findCheckpointIn(ctx, db, pgx.Identifier{b.Live, "checkpoint"}.Sanitize(), b.projector.Name())
	if err != nil {
		return c, err
	}
	if !found {
		return checkpoint{projector: c.projector, version: b.checkpoint.version, epoch: b.checkpoint.epoch}, nil
	}
	head, err := b.Store.Head(ctx)
	if err != nil {
		return c, err
	}
	if err = c.on(ctx, b.Store, b.checkpoint.epoch, head); err == nil && c.version != b.checkpoint.version {
		err = ErrReplayDue
	}
	return c, err
}

// tryNext applies the next events after those of the copy, and rolls them back. A view that fails retries with one
// event at a time, so the event that stops it is among them. The error is ErrStopped with the reason, unless the
// database is unavailable.
func (b *builder) tryNext(ctx context.Context) error {
	var err error
	if b.end, err = b.Store.Head(ctx); err != nil {
		return err
	}
	tx, err := b.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	applied := errors.New("applied")
	err = b.fold(ctx, func(ctx context.Context, shared batch) error {
		next, err := b.cut(shared)
		if err != nil || len(next.events) == 0 {
			return err
		}
		return cmp.Or(b.projector.Apply(ctx, tx, next.events), applied)
	})
	switch {
	case err == nil || errors.Is(err, applied):
		return nil
	case ctx.Err() != nil || errors.Is(schema.Unavailable(err), eventstore.ErrUnavailable):
		return err
	case errors.Is(err, eventstore.ErrUnknownPosition):
		return lostPosition(err)
	}
	return fmt.Errorf("%w, which is at position %d: %w", ErrStopped, b.checkpoint.position, err)
}

// differences compares within one snapshot. It first folds the events that the copy lacks up to the snapshot's
// checkpoint.
func (b *builder) differences(ctx context.Context, limit int) (found []Difference, err error) {
	var position eventstore.Position
	err = pgx.BeginTxFunc(ctx, b.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		found, position, err = b.differencesIn(ctx, tx, limit)
		return err
	})
	if err == nil {
		b.checkpoint.position = position
	}
	return found, err
}

// differencesIn also returns the position of the snapshot's checkpoint.
func (b *builder) differencesIn(
	ctx context.Context, tx pgx.Tx, limit int,
) (found []Difference, position eventstore.Position, err error) {
	live, err := b.liveCheckpoint(ctx, tx)
	if err != nil {
		return nil, 0, err
	}
	if _, err := b.foldWithin(ctx, tx, live.position); err != nil {
		return nil, 0, err
	}
	m, maintains := b.projector.(Maintainer)
	for _, table := range b.projector.Tables() {
		if maintains && slices.Contains(m.DerivedTables(), table) {
			continue
		}
		more, err := b.compareTable(ctx, tx, table, limit-len(found))
		if err != nil {
			return nil, 0, err
		}
		found = append(found, more...)
	}
	if maintains {
		more, err := m.CompareDerived(ctx, tx, b.Live, limit-len(found))
		if err != nil {
			return nil, 0, err
		}
		found = append(found, more...)
	}
	return found, live.position, nil
}

func (b *builder) compareTable(ctx context.Context, tx pgx.Tx, table string, limit int) ([]Difference, error) {
	live, copied := pgx.Identifier{b.Live, table}.Sanitize(), pgx.Identifier{b.schema, table}.Sanitize()
	rows, err := tx.Query(ctx, `
		SELECT quote_ident(a.attname) FROM pg_index x JOIN pg_attribute a ON a.attrelid = x.indrelid
		AND a.attnum = ANY (x.indkey)
		 WHERE x.indrelid = $1::text::regclass AND x.indisprimary ORDER BY a.attnum`, live)
	if err != nil {
		return nil, err
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	key := strings.Join(columns, ", ")
	// Merge joins in key order use the tables' indexes, whereas hash joins spill to temporary files. Rows with equal
	// bytes are not converted to text.
	if _, err := tx.Exec(ctx, `ANALYZE `+copied+` (`+key+`); SET LOCAL enable_hashjoin = off`); err != nil {
		return nil, err
	}
	rows, err = tx.Query(ctx, `
		SELECT concat_ws(' ', `+key+`),
		       CASE WHEN l.whole IS NULL THEN 'is missing' WHEN c.whole IS NULL THEN 'is not from the log'
		            ELSE 'differs from the log' END
		  FROM (SELECT `+key+`, t AS whole FROM `+live+` t) l
		  FULL JOIN (SELECT `+key+`, t AS whole FROM `+copied+` t) c USING (`+key+`)
		 WHERE l.whole IS NULL OR c.whole IS NULL OR l.whole *<> c.whole AND l.whole::text <> c.whole::text
		 ORDER BY 1 LIMIT $1`, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Difference, error) {
		d := Difference{Table: table}
		err := row.Scan(&d.Key, &d.What)
		return d, err
	})
}
