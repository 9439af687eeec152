// Package logtree reads the tree of the whole log: its tiles (c2sp.org/tlog-tiles), its newest published checkpoint
// (c2sp.org/tlog-checkpoint, with the cosignatures of witnesses), and the index of an event. Package
// projection/transparency writes the tree, asynchronously.
//
// An inclusion proof of an event takes three calls: Checkpoint has the size and the signed text, LeafIndex the event's
// index, which is covered when it is below that size, and Hashes is the reader for tlog.ProveRecord.
package logtree

import (
	"context"
	"errors"
	"fmt"
	"math"

	"filippo.io/torchwood"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection/schema"
)

// Reader reads the tree of one log.
type Reader struct {
	Pool   *pgxpool.Pool
	Log    eventstore.Store // with events as they are stored, sealed
	Origin string           // the log's name in its checkpoints
	// Open opens a stored event of a lead, and returns the nonce of its commitment: sealed.Store.OpenWithNonce.
	Open func(ctx context.Context, stored eventstore.Recorded) (opened eventstore.Recorded, nonce []byte, err error)
}

var (
	// ErrNoCheckpoint means that none is published yet.
	ErrNoCheckpoint = errors.New("no checkpoint of the log is published yet")
	// ErrNoTile means that the published tree does not have a tile.
	ErrNoTile = errors.New("the published tree does not have this tile")
	// ErrNotCovered means that no published checkpoint covers an event yet.
	ErrNotCovered = errors.New("no checkpoint covers the event yet")
)

// Checkpoint is a signed checkpoint of the tree.
type Checkpoint struct {
	tlog.Tree
	Note string // the signed note, with cosignatures
}

// Checkpoint returns the newest published checkpoint, which has a quorum of cosignatures.
func (r Reader) Checkpoint(ctx context.Context) (c Checkpoint, err error) {
	var root []byte
	err = r.Pool.QueryRow(ctx, `
		SELECT size, root, note FROM audit.checkpoint WHERE origin = $1 AND published_at IS NOT NULL ORDER BY size DESC
		LIMIT 1`, r.Origin).
		Scan(&c.N, &root, &c.Note)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, ErrNoCheckpoint
	}
	copy(c.Hash[:], root)
	return c, schema.Unavailable(err)
}

// Tile returns the hashes of a tile of height 8, which may be partial. It must lie within the published tree.
func (r Reader) Tile(ctx context.Context, tile tlog.Tile) (hashes []byte, err error) {
	if tile.H != torchwood.TileHeight || tile.L < 0 || tile.L > maxLevel || tile.W < 1 ||
		tile.W > torchwood.TileWidth || tile.N < 0 || tile.N > maxTile {
		return nil, ErrNoTile
	}
	err = r.Pool.QueryRow(ctx, `
		SELECT substring(hashes FOR $4 * 32) FROM audit.tile
		 WHERE origin = $1 AND level = $2 AND number = $3 AND octet_length(hashes) >= $4 * 32
		   AND $3::bigint * 256 + $4 <= (SELECT max(size) FROM audit.checkpoint WHERE origin = $1
		     AND published_at IS NOT NULL) >> $2 * 8`,
		r.Origin, tile.L, tile.N, tile.W).Scan(&hashes)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNoTile
	}
	return hashes, schema.Unavailable(err)
}

// maxLevel is that of the highest tile of a tree of 2⁶³ leaves.
const maxLevel = 7

// maxTile is the highest number of a tile of such a tree.
const maxTile = math.MaxInt64/torchwood.TileWidth - 1

// Hashes reads the hashes that proofs consist of.
func (r Reader) Hashes(ctx context.Context) tlog.HashReader {
	return schema.LogTree(r.Origin).Hashes(ctx, r.Pool)
}

// LeafIndex returns the index of the event at a position, and its leaf's bytes (audit.LogRecord). It reads at most the
// 256 events of one tile. The error is ErrNotCovered while the tree is behind.
func (r Reader) LeafIndex(ctx context.Context, position eventstore.Position) (index int64, record []byte, err error) {
	var number, after int64
	err = r.Pool.QueryRow(ctx, `
		SELECT number, after FROM audit.tile
		 WHERE origin = $1 AND level = 0 AND after < $2
		   AND EXISTS (SELECT FROM audit.tree t WHERE t.origin = $1 AND t.epoch = $3 AND t.position >= $2)
		 ORDER BY after DESC LIMIT 1`, r.Origin, int64(position), r.epoch(ctx)).Scan(&number, &after)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil, ErrNotCovered
	}
	if err != nil {
		return 0, nil, schema.Unavailable(err)
	}
	index = number * torchwood.TileWidth
	reading := eventstore.Range{After: eventstore.Position(after), Until: position, Limit: torchwood.TileWidth}
	for reading.After < position && reading.Limit > 0 {
		events, reached, err := eventstore.ReadRange(ctx, r.Log, reading)
		if err != nil {
			return 0, nil, err
		}
		index += int64(len(events))
		if n := len(events) - 1; n >= 0 && events[n].Position == position {
			return r.confirm(ctx, index-1, events[n])
		}
		reading.After, reading.Limit = reached, reading.Limit-len(events)
	}
	return 0, nil, ErrNotCovered
}

// epoch of the log; empty, which is that of no tree, when the log does not answer.
func (r Reader) epoch(ctx context.Context) string {
	epoch, _ := r.Log.Epoch(ctx)
	return epoch
}

// confirm compares the event with the leaf that the tree has at an index.
func (r Reader) confirm(ctx context.Context, index int64, e eventstore.Recorded) (int64, []byte, error) {
	record, err := audit.LogRecord(e)
	if err != nil {
		return 0, nil, err
	}
	hashes, err := r.Hashes(ctx).ReadHashes([]int64{tlog.StoredHashIndex(0, index)})
	switch {
	case errors.Is(err, merkle.ErrTiles):
		return 0, nil, ErrNotCovered
	case err != nil:
		return 0, nil, err
	case hashes[0] != tlog.RecordHash(record):
		return 0, nil, fmt.Errorf("event %s is not leaf %d of the tree of the log", e.ID, index)
	}
	return index, record, nil
}
