package schema

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
)

// grownBy is the least growth of a table that Analyze acts on: one in so many of its rows.
const grownBy = 4

// Analyze tells PostgreSQL of rows that were written in bulk to tables of a schema, about as many as written to each:
// how many there are, their values, and the pages whose index entries need no look at the rows. Until then it may read
// all of a table for a page of a list; autovacuum does the same, a minute or more later. Tables that have grown by less
// than a quarter are left to it. Without names, all tables are meant. A table of another role is skipped, and the log
// says so: only the owner may analyze it.
func Analyze(
	ctx context.Context, conn *pgx.Conn, log *slog.Logger, namespace string, names []string, written int64,
) error {
	rows, err := conn.Query(ctx, `
		SELECT format('%I.%I', nspname, relname), pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE')
		  FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		 WHERE nspname = $1 AND relkind = 'r' AND ($2::text[] IS NULL OR relname = ANY ($2)) AND reltuples < $3::float8
		 ORDER BY 1`,
		namespace, names, grownBy*float64(written))
	if err != nil {
		return err
	}
	var table, owner string
	var own bool
	var tables []string
	_, err = pgx.ForEachRow(rows, []any{&table, &owner, &own}, func() error {
		if own {
			tables = append(tables, table)
		} else {
			log.Info("table not analyzed: it belongs to another role", slog.String("table", table),
				slog.String("owner", owner))
		}
		return nil
	})
	for _, table := range tables {
		if err == nil { // dead rows and empty pages are left to autovacuum
			_, err = conn.Exec(ctx, `VACUUM (ANALYZE, INDEX_CLEANUP off, TRUNCATE off) `+table)
		}
	}
	return err
}
