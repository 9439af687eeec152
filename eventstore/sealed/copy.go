package sealed

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// CopyKeys makes the keys in database to equal to those in from. It is for a log that moves: its events are copied sealed, and
// where its keys are stored depends on where the log is. Keys that from lacks are deleted from to, so that nobody who was forgotten
// meanwhile comes back. If both are the same database, nothing changes. Nobody may append meanwhile.
func CopyKeys(ctx context.Context, from, to *pgxpool.Pool) error {
	rows, err := from.Query(ctx, selectKeys)
	if err != nil {
		return unavailable(ctx, err)
	}
	defer rows.Close()
	return unavailable(ctx, pgx.BeginFunc(ctx, to, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE TEMP TABLE moved (LIKE person.key INCLUDING INDEXES) ON COMMIT DROP`); err != nil {
			return err
		}
		columns := []string{"stream", "id", "sealed_by", "sealed"}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "moved"}, columns, pgx.CopyFromFunc(func() ([]any, error) {
			if !rows.Next() {
				return nil, rows.Err()
			}
			k, err := scanKey(rows)
			return []any{k.Stream, k.ID, k.SealedBy, k.Sealed}, err
		}))
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `ANALYZE pg_temp.moved`); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM person.key k WHERE NOT EXISTS (SELECT FROM pg_temp.moved m WHERE m.stream = k.stream AND m.id = k.id)`)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO person.key SELECT * FROM pg_temp.moved
			ON CONFLICT (stream, id) DO UPDATE SET sealed_by = excluded.sealed_by, sealed = excluded.sealed`)
		return err
	}))
}
