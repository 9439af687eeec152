package merkle_test

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"
	"testing"

	"filippo.io/torchwood"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore/merkle"
)

// tileStore stores tiles as a database does.
type tileStore map[[2]int64][]byte

func (k tileStore) put(tiles []merkle.Tile) {
	for _, t := range tiles {
		k[[2]int64{int64(t.Level), t.Number}] = t.Hashes
	}
}

// Every hash of every level of the tree is in its tile, for any sequence of writes and resumes.
func TestTiles_AgreeWithTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tree, tiles := &merkle.Tiles{}, tileStore{}
		var stored []tlog.Hash
		reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
			for _, i := range indexes {
				hashes = append(hashes, stored[i])
			}
			return hashes, nil
		})
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 255, 256, 257, 700}), 1, 6).Draw(t, "sizes")
		for _, leaves := range sizes {
			for range leaves {
				leaf := tlog.RecordHash(binary.BigEndian.AppendUint64(nil, uint64(tree.Size())))
				more, err := tlog.StoredHashesForRecordHash(tree.Size(), leaf, reader)
				require.NoError(t, err)
				stored = append(stored, more...)
				tiles.put(tree.Add(leaf))
			}
			tiles.put(tree.Changed())
			require.Empty(t, tree.Changed())
			want, err := tlog.TreeHash(tree.Size(), reader)
			require.NoError(t, err)
			head, err := tree.Head()
			require.NoError(t, err)
			require.Equal(t, tlog.Tree{N: tree.Size(), Hash: want}, head)

			var edge []merkle.Tile
			for _, e := range merkle.EdgeOf(tree.Size()) {
				edge = append(edge, merkle.Tile{Level: e.L, Number: e.N, Hashes: tiles[[2]int64{int64(e.L), e.N}]})
			}
			tree, err = merkle.ResumeTiles(tree.Size(), edge)
			require.NoError(t, err)
		}
		reads := 0
		hashes := merkle.Hashes(func(wanted []tlog.Tile) (read []merkle.Tile, err error) {
			reads++
			for _, w := range wanted {
				if data, has := tiles[[2]int64{int64(w.L), w.N}]; has {
					read = append(read, merkle.Tile{Level: w.L, Number: w.N, Hashes: data})
				}
			}
			return read, nil
		})
		for i, want := range stored {
			got, err := hashes.ReadHashes([]int64{int64(i)})
			require.NoError(t, err)
			require.Equal(t, want, got[0])
		}
		require.Equal(t, len(tiles), reads, "each tile is read once")
		_, err := hashes.ReadHashes([]int64{int64(len(stored))})
		require.ErrorIs(t, err, merkle.ErrTiles)
		last := map[int64]merkle.Tile{}
		for coordinates, data := range tiles {
			if coordinates[1] >= last[coordinates[0]].Number {
				last[coordinates[0]] = merkle.Tile{Level: int(coordinates[0]), Number: coordinates[1], Hashes: data}
			}
		}
		require.Equal(t, tree.Size(), merkle.SizeOf(slices.Collect(maps.Values(last))))
		_, err = merkle.ResumeTiles(tree.Size(), nil)
		if tree.Size()%torchwood.TileWidth != 0 {
			require.ErrorIs(t, err, merkle.ErrTiles)
		}
	})
}

func TestTiles_ThirdLevel(t *testing.T) {
	t.Parallel()
	const size = torchwood.TileWidth*torchwood.TileWidth + 3
	tree, tiles := &merkle.Tiles{}, tileStore{}
	var leaves []tlog.Hash
	for n := range uint64(size) {
		leaves = append(leaves, tlog.RecordHash(binary.BigEndian.AppendUint64(nil, n)))
		tiles.put(tree.Add(leaves[n]))
	}
	tiles.put(tree.Changed())
	require.Len(t, tiles, torchwood.TileWidth+1+1+1,
		"full tiles of levels 0 and 1, a tile of three leaves, and a tile with the root of the first 65,536")
	head, err := tree.Head()
	require.NoError(t, err)
	require.Equal(t, rootOf(leaves), head.Hash)
}

// rootOf is the definition in RFC 6962.
func rootOf(leaves []tlog.Hash) tlog.Hash {
	if len(leaves) == 1 {
		return leaves[0]
	}
	half := 1 << (bits.Len(uint(len(leaves)-1)) - 1)
	return tlog.NodeHash(rootOf(leaves[:half]), rootOf(leaves[half:]))
}
