package audit_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/leadlog/leadlog/eventstore/audit"
)

// tileStore stores tiles as a database does.
type tileStore map[[2]int64][]byte

func (k tileStore) put(tiles []audit.Tile) {
	for _, t := range tiles {
		k[[2]int64{int64(t.Level), t.Number}] = t.Hashes
	}
}

// Every hash of every level of the tree is in its tile, for any sequence of writes and resumes.
func TestTiles_AgreeWithTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tree, tiles := &audit.Tiles{}, tileStore{}
		var stored []tlog.Hash
		reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
			for _, i := range indexes {
				hashes = append(hashes, stored[i])
			}
			return hashes, nil
		})
		turns := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 255, 256, 257, 700}), 1, 6).Draw(t, "turns")
		for _, leaves := range turns {
			for range leaves {
				leaf := tlog.RecordHash(binary.BigEndian.AppendUint64(nil, uint64(tree.Size())))
				more, err := tlog.StoredHashesForRecordHash(tree.Size(), leaf, reader)
				require.NoError(t, err)
				stored = append(stored, more...)
				tree.Add(leaf)
			}
			tiles.put(tree.Changed())
			require.Empty(t, tree.Changed())
			want, err := tlog.TreeHash(tree.Size(), reader)
			require.NoError(t, err)
			root, err := tree.Root()
			require.NoError(t, err)
			require.Equal(t, want, root)

			var edge []audit.Tile
			for _, e := range audit.EdgeOf(tree.Size()) {
				edge = append(edge, audit.Tile{Level: e.L, Number: e.N, Hashes: tiles[[2]int64{int64(e.L), e.N}]})
			}
			tree, err = audit.ResumeTiles(tree.Size(), edge)
			require.NoError(t, err)
		}
		for i, want := range stored {
			tile := tlog.TileForIndex(audit.TileHeight, int64(i))
			data := tiles[[2]int64{int64(tile.L), tile.N}]
			require.GreaterOrEqual(t, len(data), tile.W*tlog.HashSize)
			got, err := tlog.HashFromTile(tile, data[:tile.W*tlog.HashSize], int64(i))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		_, err := audit.ResumeTiles(tree.Size(), nil)
		if tree.Size()%audit.TileWidth != 0 {
			require.ErrorIs(t, err, audit.ErrTiles)
		}
	})
}

func TestTiles_ThirdLevel(t *testing.T) {
	t.Parallel()
	tree, plain, tiles := &audit.Tiles{}, &audit.Log{}, tileStore{}
	for n := range uint64(audit.TileWidth*audit.TileWidth + 3) {
		leaf := tlog.RecordHash(binary.BigEndian.AppendUint64(nil, n))
		tree.Add(leaf)
		require.NoError(t, plain.Add(leaf))
	}
	tiles.put(tree.Changed())
	require.Len(t, tiles, audit.TileWidth+1+1+1, "full tiles of levels 0 and 1, a tile of three leaves, and a tile with the root of the first 65,536")
	head, err := plain.Head()
	require.NoError(t, err)
	root, err := tree.Root()
	require.NoError(t, err)
	require.Equal(t, head.Root, root)
}
