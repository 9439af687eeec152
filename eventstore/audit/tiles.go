package audit

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Tiles of c2sp.org/tlog-tiles.
const (
	TileHeight = 8
	TileWidth  = 1 << TileHeight // hashes of a full tile
)

// Tile is a hash tile: at most TileWidth hashes of a level that is a multiple of TileHeight. Level 0 has the leaves.
type Tile struct {
	Level  int
	Number int64
	Hashes []byte // of tlog.HashSize each
}

// Width returns the number of hashes in the tile.
func (t Tile) Width() int { return len(t.Hashes) / tlog.HashSize }

// Tiles is a growing tree in tiles, of which it keeps the last tile of each level. The zero value is the empty tree.
type Tiles struct {
	size  int64
	edge  [][]byte // by level: the hashes of the partial tile
	dirty []bool   // by level: edge has changed since Changed
	full  []Tile   // tiles that were filled since the last call of Changed
}

// ErrTiles means that tiles do not belong to a tree of that size.
var ErrTiles = errors.New("not the tiles of a tree of this size")

// EdgeOf returns the partial tiles of a tree of a size, at most one on each level.
func EdgeOf(size int64) (edge []tlog.Tile) {
	for level := 0; size>>(level*TileHeight) > 0; level++ {
		n := size >> (level * TileHeight)
		if width := int(n % TileWidth); width > 0 {
			edge = append(edge, tlog.Tile{H: TileHeight, L: level, N: n / TileWidth, W: width})
		}
	}
	return edge
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

// Add adds a leaf.
func (t *Tiles) Add(leaf tlog.Hash) {
	number := t.size / TileWidth
	t.size++
	for level := 0; ; level++ {
		t.grow(level)
		t.edge[level] = append(t.edge[level], leaf[:]...)
		t.dirty[level] = true
		if len(t.edge[level]) < TileWidth*tlog.HashSize {
			return
		}
		t.full = append(t.full, Tile{level, number, t.edge[level]})
		leaf = rootOf(t.edge[level])
		t.edge[level], t.dirty[level] = nil, false
		number /= TileWidth
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

// Changed returns the tiles that have changed since its last call, in the order in which they were filled.
func (t *Tiles) Changed() []Tile {
	changed := t.Filled()
	for level, hashes := range t.edge {
		if t.dirty[level] {
			changed = append(changed, Tile{level, t.size >> (level * TileHeight) / TileWidth, bytes.Clone(hashes)})
			t.dirty[level] = false
		}
	}
	return changed
}

// Filled is Changed without the partial tiles.
func (t *Tiles) Filled() []Tile {
	full := t.full
	t.full = nil
	return full
}

// Root returns the tree's hash.
func (t *Tiles) Root() (tlog.Hash, error) {
	return tlog.TreeHash(t.size, tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			tile := tlog.TileForIndex(TileHeight, index)
			var err error
			if tile.L >= len(t.edge) || len(t.edge[tile.L]) < tile.W*tlog.HashSize {
				return nil, fmt.Errorf("%w: %s", ErrTiles, tile.Path())
			}
			if hashes[i], err = tlog.HashFromTile(tile, t.edge[tile.L][:tile.W*tlog.HashSize], index); err != nil {
				return nil, err
			}
		}
		return hashes, nil
	}))
}
