// Package merkle has the trees over the log, and over the token events of each account: their tiles
// (c2sp.org/tlog-tiles), signed checkpoints (c2sp.org/tlog-checkpoint), proofs of inclusion (c2sp.org/tlog-proof) and
// witnesses (c2sp.org/tlog-witness).
//
// The trees are those of RFC 6962, as implemented by golang.org/x/mod/sumdb/tlog. Package eventstore/audit makes their
// leaves, projection/schema stores their tiles. One key signs all checkpoints, under the name of the log.
package merkle

import (
	"bytes"
	"errors"
	"fmt"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

// Tile is a hash tile: at most torchwood.TileWidth hashes of a level that is a multiple of torchwood.TileHeight. Level
// 0 has the leaves.
type Tile struct {
	Level  int
	Number int64
	Hashes []byte // of tlog.HashSize each
}

// Width returns the number of hashes in the tile.
func (t Tile) Width() int { return len(t.Hashes) / tlog.HashSize }

// Tiles is a growing tree in tiles, of which it keeps the partial tile of each level. The zero value is the empty tree.
type Tiles struct {
	size  int64
	edge  [][]byte // by level: the hashes of the partial tile
	dirty []bool   // by level: edge has changed since Changed
}

// ErrTiles means that tiles do not belong to a tree of that size.
var ErrTiles = errors.New("not the tiles of a tree of this size")

// EdgeOf returns the partial tiles of a tree of a size, at most one on each level.
func EdgeOf(size int64) (edge []tlog.Tile) {
	for level := 0; size>>(level*torchwood.TileHeight) > 0; level++ {
		n := size >> (level * torchwood.TileHeight)
		if width := int(n % torchwood.TileWidth); width > 0 {
			edge = append(edge, tlog.Tile{H: torchwood.TileHeight, L: level, N: n / torchwood.TileWidth, W: width})
		}
	}
	return edge
}

// SizeOf returns the size of a tree from its last tiles.
func SizeOf(last []Tile) (size int64) {
	for _, tile := range last {
		if tile.Level == 0 {
			size = tile.Number*torchwood.TileWidth + int64(tile.Width())
		}
	}
	return size
}

// ResumeTiles returns the tree of a size from its partial tiles, which may have more hashes.
func ResumeTiles(size int64, edge []Tile) (*Tiles, error) {
	t := &Tiles{size: size}
	for _, wanted := range EdgeOf(size) {
		t.grow(wanted.L)
		for _, tile := range edge {
			if tile.Level == wanted.L && tile.Number == wanted.N && tile.Width() >= wanted.W {
				t.edge[wanted.L] = bytes.Clone(tile.Hashes[:wanted.W*tlog.HashSize])
			}
		}
		if len(t.edge[wanted.L]) == 0 {
			return nil, fmt.Errorf("%w: %s", ErrTiles, wanted.Path())
		}
	}
	return t, nil
}

func (t *Tiles) grow(level int) {
	for len(t.edge) <= level {
		t.edge, t.dirty = append(t.edge, nil), append(t.dirty, false)
	}
}

// Size returns the number of leaves of the tree.
func (t *Tiles) Size() int64 { return t.size }

// Add adds a leaf, and returns the tiles that it fills.
func (t *Tiles) Add(leaf tlog.Hash) (filled []Tile) {
	number := t.size / torchwood.TileWidth
	t.size++
	for level := 0; ; level++ {
		t.grow(level)
		t.edge[level] = append(t.edge[level], leaf[:]...)
		t.dirty[level] = true
		if len(t.edge[level]) < torchwood.TileWidth*tlog.HashSize {
			return filled
		}
		filled = append(filled, Tile{level, number, t.edge[level]})
		leaf = rootOf(t.edge[level])
		t.edge[level], t.dirty[level] = nil, false
		number /= torchwood.TileWidth
	}
}

// rootOf returns the root of the subtree over the hashes of a full tile.
func rootOf(hashes []byte) tlog.Hash {
	level := make([]tlog.Hash, len(hashes)/tlog.HashSize)
	for i := range level {
		level[i] = tlog.Hash(hashes[i*tlog.HashSize:])
	}
	for len(level) > 1 {
		for i := range len(level) / 2 {
			level[i] = tlog.NodeHash(level[2*i], level[2*i+1])
		}
		level = level[:len(level)/2]
	}
	return level[0]
}

// Changed returns the partial tiles that have changed since its last call.
func (t *Tiles) Changed() (changed []Tile) {
	for _, tile := range t.partial() {
		if t.dirty[tile.Level] {
			tile.Hashes = bytes.Clone(tile.Hashes)
			changed = append(changed, tile)
			t.dirty[tile.Level] = false
		}
	}
	return changed
}

func (t *Tiles) partial() (tiles []Tile) {
	for level, hashes := range t.edge {
		if len(hashes) > 0 {
			tiles = append(tiles, Tile{level, t.size >> (level * torchwood.TileHeight) / torchwood.TileWidth, hashes})
		}
	}
	return tiles
}

// Head returns the tree's size and root.
func (t *Tiles) Head() (tlog.Tree, error) {
	root, err := tlog.TreeHash(t.size, Hashes(func([]tlog.Tile) ([]Tile, error) { return t.partial(), nil }))
	return tlog.Tree{N: t.size, Hash: root}, err
}

// Hashes returns a reader of the hashes of a tree, which reads each tile once. Tiles that read does not return cause
// ErrTiles; those that it returns may have more hashes.
func Hashes(read func(wanted []tlog.Tile) ([]Tile, error)) tlog.HashReader {
	type key struct {
		level  int
		number int64
	}
	known := map[key][]byte{}
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		wanted := make([]tlog.Tile, len(indexes))
		var missing []tlog.Tile
		for i, index := range indexes {
			w := tlog.TileForIndex(torchwood.TileHeight, index)
			if wanted[i] = w; len(known[key{w.L, w.N}]) < w.W*tlog.HashSize {
				missing = append(missing, w)
			}
		}
		if len(missing) > 0 {
			tiles, err := read(missing)
			if err != nil {
				return nil, err
			}
			for _, tile := range tiles {
				known[key{tile.Level, tile.Number}] = tile.Hashes
			}
		}
		hashes := make([]tlog.Hash, len(indexes))
		for i, w := range wanted {
			data, size := known[key{w.L, w.N}], w.W*tlog.HashSize
			if len(data) < size {
				return nil, fmt.Errorf("%w: %s", ErrTiles, w.Path())
			}
			var err error
			if hashes[i], err = tlog.HashFromTile(w, data[:size], indexes[i]); err != nil {
				return nil, err
			}
		}
		return hashes, nil
	})
}
