package move

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/view"
)

// pairs maps the position of each event in the source to that in the copy. It is a temporary table, for logs of any
// length.
type pairs struct {
	tx   pgx.Tx
	rows [][]any
	last eventstore.Position // of the source
}

// rowsAtOnce is how many pairs are written to the database at a time.
const rowsAtOnce = 10_000

func newPairs(ctx context.Context, tx pgx.Tx) (*pairs, error) {
	_, err := tx.Exec(ctx, `CREATE TEMP TABLE pair (source bigint NOT NULL, target bigint NOT NULL) ON COMMIT DROP`)
	return &pairs{tx: tx}, err
}

func (p *pairs) add(ctx context.Context, from, to eventstore.Position) error {
	p.rows, p.last = append(p.rows, []any{int64(from), int64(to)}), from
	if len(p.rows) < rowsAtOnce {
		return nil
	}
	return p.flush(ctx)
}

func (p *pairs) flush(ctx context.Context) error {
	_, err := p.tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "pair"}, []string{"source", "target"},
		pgx.CopyFromRows(p.rows))
	p.rows = p.rows[:0]
	return err
}

func (p *pairs) end(ctx context.Context) error {
	if err := p.flush(ctx); err != nil {
		return err
	}
	for _, statement := range []string{
		`CREATE UNIQUE INDEX ON pg_temp.pair (source) INCLUDE (target)`, `ANALYZE pg_temp.pair`,
	} {
		if _, err := p.tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// translated is the copy's position of the last event at or before a position of the source. A checkpoint may lie
// between two events.
const translated = `coalesce((SELECT target FROM pg_temp.pair WHERE source <= %s ORDER BY source DESC LIMIT 1), 0)`

// Positions in the views are in columns of that name, except for conversions, which are built again. Deliveries keep
// their positions, because bodies contain them and must be the same at every attempt.
const tablesWithPositions = `
	SELECT c.table_schema, c.table_name FROM information_schema.columns c JOIN information_schema.tables t
	USING (table_schema, table_name)
	 WHERE c.table_schema = 'views' AND c.column_name = 'position' AND t.table_type = 'BASE TABLE'
	 AND c.table_name <> 'checkpoint'
	 ORDER BY 1, 2`

// translate translates all positions of the source.
func translate(ctx context.Context, tx pgx.Tx, e epochs) error {
	rows, err := tx.Query(ctx, tablesWithPositions)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (pgx.Identifier, error) {
		table := make(pgx.Identifier, 2)
		return table, r.Scan(&table[0], &table[1])
	})
	if err != nil {
		return err
	}
	for _, table := range tables {
		if err := moveRows(ctx, tx, table.Sanitize()); err != nil {
			return err
		}
	}
	for _, schema := range []string{"views", "delivery"} {
		if _, err := tx.Exec(ctx,
			`UPDATE `+schema+`.checkpoint SET epoch = $1, position = `+of(`position`)+`, updated_at = now()`,
			e.to); err != nil {
			return err
		}
	}
	for _, statement := range []string{
		`UPDATE delivery.replay SET requested = ` + of(`requested`) + `, reached = CASE WHEN reached IS ` +
			`NOT NULL THEN ` + of(`reached`) + ` END`,
		`UPDATE delivery.queue SET retried = ` + of(`retried`) + ` WHERE retried > 0`,
		`UPDATE delivery.delivery SET retried = ` + of(`retried`) + ` WHERE retried > 0`,
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO delivery.origin (epoch, position)
		SELECT $2, `+of(`position`)+` FROM delivery.origin WHERE epoch = $1
		    ON CONFLICT (epoch) DO UPDATE SET position = excluded.position`, e.from, e.to)
	return err
}

func of(position string) string { return fmt.Sprintf(translated, position) }

// beyond is larger than any position.
const beyond = `4611686018427387904` // 2^62

// moveRows first adds an offset to all positions. They are unique, and a new one may equal the old one of another row.
func moveRows(ctx context.Context, tx pgx.Tx, table string) error {
	for _, statement := range []string{
		`UPDATE ` + table + ` SET position = position + ` + beyond,
		`UPDATE ` + table + ` SET position = ` + of(`position - `+beyond),
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// rebuildConversions builds the rows of conversions again, whose encoded touches have positions.
func rebuildConversions(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx,
		`SET LOCAL search_path TO views; DELETE FROM conversion; DELETE FROM conversion_state; DELETE
			FROM conversion_sweep`)
	for work := (view.Touch{}).Maintenance(); err == nil && work.Pending(); {
		err = work.Run(ctx, tx)
	}
	return err
}
