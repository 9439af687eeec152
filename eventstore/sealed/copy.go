package sealed

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// CopyKeys makes the keys of one database those of another: a log that moves is copied as it is sealed, and where its keys
// stand depends on where the log does. Keys that are gone from the one go from the other, so that who was forgotten
// meanwhile does not come back. Both may be the same database, and then nothing changes. Nobody may append meanwhile.
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
