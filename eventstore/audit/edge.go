package audit

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Edge is the right edge of a growing tree: the hashes of its largest complete subtrees, at most one for each power of two. They suffice to
// add leaves and to compute the root. The zero value is the empty tree.
type Edge struct {
	size  int64
	peaks map[int64]tlog.Hash // by stored index
}

// Resume returns the edge of a tree whose hashes are stored.
func Resume(size int64, stored tlog.HashReader) (*Edge, error) {
	e := &Edge{size: size, peaks: map[int64]tlog.Hash{}}
	_, err := tlog.TreeHash(size, tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes, err := stored.ReadHashes(indexes)
		if err == nil && len(hashes) != len(indexes) {
			err = fmt.Errorf("tree of %d leaves: %d of %d hashes are there", size, len(hashes), len(indexes))
		}
		if err != nil {
			return nil, err
		}
		for i, index := range indexes {
			e.peaks[index] = hashes[i]
		}
		return hashes, nil
	}))
	return e, err
}

// SizeOf returns the number of leaves of a tree whose last stored hash is at an index.
func SizeOf(lastStored int64) int64 {
	level, n := tlog.SplitStoredHashIndex(lastStored)
	return (n + 1) << level
}

// Size is how many leaves the tree has.
func (e *Edge) Size() int64 { return e.size }

// Add adds a leaf. It returns the hashes to store: the leaf's, at tlog.StoredHashIndex(0, size before), and after it those of the subtrees
// that it completes.
func (e *Edge) Add(leaf tlog.Hash) ([]tlog.Hash, error) {
	stored, err := tlog.StoredHashesForRecordHash(e.size, leaf, e.reader())
	if err != nil {
		return nil, err
	}
	if e.peaks == nil {
		e.peaks = map[int64]tlog.Hash{}
	}
	top := len(stored) - 1
	for level := range top { // these are now inside the new subtree
		delete(e.peaks, tlog.StoredHashIndex(level, e.size>>level-1))
	}
	e.peaks[tlog.StoredHashIndex(top, e.size>>top)] = stored[top]
	e.size++
	return stored, nil
}

// Root is the tree's hash.
func (e *Edge) Root() (tlog.Hash, error) { return tlog.TreeHash(e.size, e.reader()) }

func (e *Edge) reader() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			hash, ok := e.peaks[index]
			if !ok {
				return nil, fmt.Errorf("hash %d of a tree of %d leaves is not on its edge", index, e.size)
			}
			hashes[i] = hash
		}
		return hashes, nil
	})
}
