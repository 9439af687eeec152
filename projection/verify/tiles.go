package verify

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore/merkle"
)

// storedTree is the stored tree of the log. It is compared with the tree of the events, tile by tile.
type storedTree struct {
	origin string
	size   int64 // as of the snapshot
	levels []int16
	number []int64
	bytes  []int32
	digest [][]byte // expected digest of each tile
}

// openStored reads the size of the stored tree, and returns its signed checkpoints.
func openStored(ctx context.Context, tx pgx.Tx, origin string) (s storedTree, signed []merkle.Checkpoint, err error) {
	s.origin = origin
	err = tx.QueryRow(ctx, `SELECT size FROM audit.tree WHERE origin = $1`, origin).Scan(&s.size)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return s, nil, err
	}
	rows, err := tx.Query(ctx, `SELECT size, root FROM audit.checkpoint WHERE origin = $1`, origin)
	if err != nil {
		return s, nil, err
	}
	signed, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c merkle.Checkpoint, err error) {
		var root []byte
		err = row.Scan(&c.N, &root)
		copy(c.Hash[:], root)
		return c, err
	})
	return s, signed, err
}

// note records the tiles that were filled, and all others when the tree has the size of the stored one.
func (s *storedTree) note(tree *merkle.Tiles, filled []merkle.Tile) {
	if tree.Size() > s.size {
		return
	}
	if tree.Size() == s.size {
		filled = append(filled, tree.Changed()...)
	}
	for _, tile := range filled {
		sum := sha256.Sum256(tile.Hashes)
		s.levels, s.number = append(s.levels, int16(tile.Level)), append(s.number, tile.Number)
		s.bytes, s.digest = append(s.bytes, int32(len(tile.Hashes))), append(s.digest, sum[:])
	}
}

// findings returns the tiles that do not match the log. A stored tile may have more hashes while the tree is rebuilt.
func (s *storedTree) findings(ctx context.Context, tx pgx.Tx, limit int) ([]string, error) {
	rows, err := tx.Query(ctx, `
		SELECT w.level, w.number FROM unnest($2::smallint[], $3::bigint[], $4::integer[], $5::bytea[]) AS w (level,
		  number, bytes, digest)
		  LEFT JOIN audit.tile t ON t.origin = $1 AND t.level = w.level AND t.number = w.number
		 WHERE t.number IS NULL OR sha256(substring(t.hashes FOR w.bytes)) <> w.digest
		 ORDER BY w.level, w.number LIMIT $6`, s.origin, s.levels, s.number, s.bytes, s.digest, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var level, number int64
		err := row.Scan(&level, &number)
		return fmt.Sprintf("the tree of the log: tile %d of level %d is missing or is not that of the log",
			number, level), err
	})
}
