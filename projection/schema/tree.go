package schema

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore/audit"
)

// Rows reads rows: a connection, a transaction or a pool.
type Rows interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// TreeHashes returns a reader of an account's tree from a table, whose name is quoted SQL.
func TreeHashes(ctx context.Context, db Rows, table, account string) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		rows, err := db.Query(ctx, `
			SELECT t.hash FROM unnest($2::bigint[]) WITH ORDINALITY AS wanted (ordinal, place)
			 CROSS JOIN LATERAL (SELECT hash FROM `+table+` WHERE account = $1 AND ordinal = wanted.ordinal OFFSET 0) AS t
			 ORDER BY wanted.place`, account, indexes)
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

// Tiles reads tiles of the tree of the log with this origin, each by its key. Tiles that were never written are left out.
func Tiles(ctx context.Context, db Rows, origin string, wanted []tlog.Tile) ([]audit.Tile, error) {
	levels, numbers := make([]int16, len(wanted)), make([]int64, len(wanted))
	for i, tile := range wanted {
		levels[i], numbers[i] = int16(tile.L), tile.N
	}
	rows, err := db.Query(ctx, `
		SELECT t.level, t.number, t.hashes
		  FROM (SELECT DISTINCT level, number FROM unnest($2::smallint[], $3::bigint[]) AS wanted (level, number)) AS w
		 CROSS JOIN LATERAL (SELECT * FROM audit.tile WHERE origin = $1 AND level = w.level AND number = w.number OFFSET 0) AS t`,
		origin, levels, numbers)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[audit.Tile])
}

// TileHashes returns a reader of the hashes of the tree of the log with this origin.
func TileHashes(ctx context.Context, db Rows, origin string) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		wanted := make([]tlog.Tile, len(indexes))
		for i, index := range indexes {
			wanted[i] = tlog.TileForIndex(audit.TileHeight, index)
		}
		tiles, err := Tiles(ctx, db, origin, wanted)
		if err != nil {
			return nil, err
		}
		hashes := make([]tlog.Hash, len(indexes))
		for i, tile := range wanted {
			at := slices.IndexFunc(tiles, func(t audit.Tile) bool { return t.Level == tile.L && t.Number == tile.N && t.Width() >= tile.W })
			if at < 0 {
				return nil, fmt.Errorf("%w: %s", audit.ErrTiles, tile.Path())
			}
			if hashes[i], err = tlog.HashFromTile(tile, tiles[at].Hashes[:tile.W*tlog.HashSize], indexes[i]); err != nil {
				return nil, err
			}
		}
		return hashes, nil
	})
}
