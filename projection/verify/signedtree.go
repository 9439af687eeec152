package verify

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// signedTree is a tree over the log that was read so far, of all events or of an account's token events, and the
// checkpoints that it is compared with.
type signedTree struct {
	tree    merkle.Tiles
	signed  []merkle.Checkpoint // in the order of their sizes; without those that the tree has reached
	agreed  int64               // size of the latest matching checkpoint
	finding string              // about the first checkpoint that does not match
}

// signedTrees returns trees by account, with their checkpoints. That of the log, without an account, is always there.
func signedTrees(checkpoints []merkle.Checkpoint) map[string]*signedTree {
	trees := map[string]*signedTree{"": {}}
	for _, c := range checkpoints {
		if trees[c.Account] == nil {
			trees[c.Account] = &signedTree{}
		}
		trees[c.Account].signed = append(trees[c.Account].signed, c)
	}
	return trees
}

// begin compares the empty tree.
func (t *signedTree) begin() error {
	slices.SortFunc(t.signed, func(a, b merkle.Checkpoint) int { return cmp.Compare(a.N, b.N) })
	return t.compare()
}

func (t *signedTree) add(leaf tlog.Hash) (filled []merkle.Tile, err error) {
	filled = t.tree.Add(leaf)
	return filled, t.compare()
}

// compare compares the tree with the checkpoints of its size.
func (t *signedTree) compare() error {
	for len(t.signed) > 0 && t.signed[0].N == t.tree.Size() {
		now, err := t.tree.Head()
		if err != nil {
			return err
		}
		switch {
		case t.signed[0].Tree == now:
			t.agreed = now.N
		case t.finding == "":
			t.finding = fmt.Sprintf("its first %d events are not those of the checkpoint that was signed", now.N)
			if t.agreed > 0 {
				t.finding += fmt.Sprintf(", though the first %d are", t.agreed)
			}
		}
		t.signed = t.signed[1:]
	}
	return nil
}

// findings returns the findings after the end of the log.
func (t *signedTree) findings(account string) (findings []string) {
	of := "the log: "
	if account != "" {
		of = "audit tree of account " + account + ": "
	}
	if t.finding != "" {
		findings = append(findings, of+t.finding)
	}
	if len(t.signed) > 0 {
		lost := fmt.Sprintf("has lost events: a checkpoint of %d was signed, and there are %d",
			t.signed[0].N, t.tree.Size())
		if t.finding == "" && t.agreed > 0 {
			lost += fmt.Sprintf(", of which the first %d are as they were signed", t.agreed)
		}
		findings = append(findings, of+lost)
	}
	return findings
}

// noteInLog adds an event to the tree of the log.
func (r *logReader) noteInLog(stored eventstore.Recorded) error {
	leaf, err := audit.LogLeaf(stored)
	if err != nil {
		return err
	}
	whole := r.trees[""]
	filled, err := whole.add(leaf)
	r.stored.note(&whole.tree, filled)
	return err
}
