package projection

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

// Difference is a row of a live view that is not what a fresh fold of the log gives.
type Difference struct {
	Table string
	Key   string // the row's primary key: ids, never what people told about themselves
	What  string
}

func (d Difference) String() string {
	return fmt.Sprintf("view %s, row %s: %s", d.Table, d.Key, d.What)
}

// Compare folds the log into a copy of the view and says where the live one differs, at most so many times. The live
// view goes on meanwhile: it is compared as one snapshot shows it, with the fold up to that snapshot's checkpoint.
//
// The error is ErrForeignLog, ErrAheadOfLog or ErrReplayDue when the live view is not to be compared at all.
func (r Replay) Compare(ctx context.Context, most int) (found []Difference, err error) {
	if r.Live == "" {
		r.Live = schema.Views
	}
	if r.Progress == nil {
		r.Progress = func(_, _ eventstore.Position) {}
	}
	r.Into, r.Until = "", Until{}
	place := "verify_" + r.Projector.Name()
	conn, err := connect(ctx, r.URL, place, "leadlog verify "+r.Projector.Name())
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	defer closeConn(ctx, conn)
	b := &builder{Replay: r, conn: conn, place: place}
	if err := b.lock(ctx); err != nil {
		return nil, schema.Unavailable(err)
	}
	defer b.dropCopy(ctx)
	if err = b.openCopy(ctx); err != nil {
		return nil, schema.Unavailable(err)
	}
	live, err := b.liveCheckpoint(ctx, conn)
	if err == nil {
		err = b.catchUp(ctx, live.position)
	}
	if err != nil {
		return nil, schema.Unavailable(err)
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		found, err = b.differences(ctx, tx, most)
		return err
	})
	return found, schema.Unavailable(err)
}

// dropCopy leaves nothing behind. What a killed process left is used by the next.
func (b *builder) dropCopy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, _ = b.conn.Exec(ctx, `DROP SCHEMA IF EXISTS `+pgx.Identifier{b.place}.Sanitize()+` CASCADE`)
}

// liveCheckpoint is how far the live view is: nowhere, when it was never built.
func (b *builder) liveCheckpoint(ctx context.Context, db querier) (c checkpoint, err error) {
	var position int64
	err = db.QueryRow(ctx, `SELECT coalesce(max(version), $2), coalesce(max(epoch), $3), coalesce(max(position), 0)
		FROM `+pgx.Identifier{b.Live}.Sanitize()+`.checkpoint WHERE projector = $1`,
		b.Projector.Name(), b.checkpoint.version, b.checkpoint.epoch).Scan(&c.version, &c.epoch, &position)
	if err != nil {
		return c, err
	}
	c.position = eventstore.Position(position)
	head, err := b.Store.Head(ctx)
	switch {
	case err != nil:
		return c, err
	case c.epoch != b.checkpoint.epoch:
		return c, ErrForeignLog
	case c.position > head:
		return c, fmt.Errorf("%w (it is at %d, the log ends at %d)", ErrAheadOfLog, c.position, head)
	case c.version != b.checkpoint.version:
		return c, ErrReplayDue
	}
	return c, nil
}

// differences compares within one snapshot. The copy may be a little behind what that shows: the rest is folded here.
func (b *builder) differences(ctx context.Context, tx pgx.Tx, most int) (found []Difference, err error) {
	live, err := b.liveCheckpoint(ctx, tx)
	if err != nil {
		return nil, err
	}
	err = b.fold(ctx, b.checkpoint.position, live.position, func(part batch) error {
		if len(part.events) == 0 {
			return nil
		}
		return b.Projector.Apply(ctx, tx, part.events)
	})
	if err != nil {
		return nil, err
	}
	for _, table := range b.Projector.Tables() {
		more, err := b.compareTable(ctx, tx, table, most-len(found))
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

func (b *builder) compareTable(ctx context.Context, tx pgx.Tx, table string, most int) ([]Difference, error) {
	live, copied := pgx.Identifier{b.Live, table}.Sanitize(), pgx.Identifier{b.place, table}.Sanitize()
	rows, err := tx.Query(ctx, `
		SELECT quote_ident(a.attname) FROM pg_index x JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey)
		 WHERE x.indrelid = $1::text::regclass AND x.indisprimary ORDER BY a.attnum`, live)
	if err != nil {
		return nil, err
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	key := strings.Join(columns, ", ")
	rows, err = tx.Query(ctx, `
		SELECT concat_ws(' ', `+key+`),
		       CASE WHEN l.row_text IS NULL THEN 'is missing' WHEN c.row_text IS NULL THEN 'is not of the log'
		            ELSE 'is not what the log says' END
		  FROM (SELECT `+key+`, t::text AS row_text FROM `+live+` t) l
		  FULL JOIN (SELECT `+key+`, t::text AS row_text FROM `+copied+` t) c USING (`+key+`)
		 WHERE l.row_text IS DISTINCT FROM c.row_text
		 ORDER BY 1 LIMIT $1`, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Difference, error) {
		d := Difference{Table: table}
		return d, row.Scan(&d.Key, &d.What)
	})
}
