package schema

import (
	"context"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore/merkle"
)

// Rows reads rows: a connection, a transaction or a pool.
type Rows interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Tree names a stored tree: the table of its tiles, and the value of the column that tells trees apart.
type Tree struct{ table, column, name string }

// LogTree is the tree of the log with this origin.
func LogTree(origin string) Tree { return Tree{"audit.tile", "origin", origin} }

// TokenTree is the tree of an account's token events.
func TokenTree(account string) Tree { return Tree{"views.token_tree", "account", account} }

// Tiles reads tiles, each by its key. Tiles that were never written are left out. The error may be
// eventstore.ErrUnavailable.
func (t Tree) Tiles(ctx context.Context, db Rows, wanted []tlog.Tile) ([]merkle.Tile, error) {
	levels, numbers := make([]int16, len(wanted)), make([]int64, len(wanted))
	for i, tile := range wanted {
		levels[i], numbers[i] = int16(tile.L), tile.N
	}
	return collected(db.Query(ctx, `
		SELECT t.level, t.number, t.hashes
		  FROM (SELECT DISTINCT level, number FROM unnest($2::smallint[], $3::bigint[]) AS wanted (level, number)) AS w
		 CROSS JOIN LATERAL (SELECT * FROM `+t.table+` WHERE `+t.column+` = $1 AND level = w.level AND number = `+
		`w.number OFFSET 0) AS t`,
		t.name, levels, numbers))
}

func collected(rows pgx.Rows, err error) (tiles []merkle.Tile, _ error) {
	if err == nil {
		tiles, err = pgx.CollectRows(rows, pgx.RowToStructByPos[merkle.Tile])
	}
	return tiles, Unavailable(err)
}

// Hashes returns a reader of the tree's hashes, which reads each tile once.
func (t Tree) Hashes(ctx context.Context, db Rows) tlog.HashReader {
	return merkle.Hashes(func(wanted []tlog.Tile) ([]merkle.Tile, error) { return t.Tiles(ctx, db, wanted) })
}

// TokenTreeSize returns the number of leaves of the tree of an account's token events.
func TokenTreeSize(ctx context.Context, db Rows, account string) (int64, error) {
	last, err := collected(db.Query(ctx, `
		SELECT level, number, hashes FROM views.token_tree WHERE account = $1 AND level = 0 ORDER BY number DESC
		LIMIT 1`, account))
	return merkle.SizeOf(last), err
}
