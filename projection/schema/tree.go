package schema

import (
	"context"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"
)

// Rows reads rows: a connection, a transaction or a pool.
type Rows interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// TreeHashes returns a reader of an account's tree from a table, whose name is written as in SQL.
func TreeHashes(ctx context.Context, db Rows, table, account string) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		rows, err := db.Query(ctx, `
			SELECT t.hash FROM unnest($2::bigint[]) WITH ORDINALITY AS wanted (ordinal, place) JOIN `+table+` t USING (ordinal)
			 WHERE t.account = $1 ORDER BY wanted.place`, account, indexes)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (hash tlog.Hash, err error) {
			var stored []byte
			err = row.Scan(&stored)
			copy(hash[:], stored)
			return hash, err
		})
	})
}
