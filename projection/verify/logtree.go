package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
)

// logTree is the tree over the log that was read so far, and the trees and checkpoints that it is compared with.
type logTree struct {
	tree    merkle.Tiles
	stored  storedTree
	signed  []merkle.Checkpoint // in the order of their sizes; without those that the tree has reached
	agreed  int64               // size of the latest matching checkpoint
	finding string              // about the first checkpoint that does not match
}

// newLogTree takes the checkpoints of the whole log, and returns the others.
func newLogTree(checkpoints []merkle.Checkpoint) (w logTree, others []merkle.Checkpoint) {
	for _, signed := range checkpoints {
		if signed.Account == "" {
			w.signed = append(w.signed, signed)
		} else {
			others = append(others, signed)
		}
	}
	w.sort()
	return w, others
}

func (w *logTree) sort() {
	slices.SortFunc(w.signed, func(a, b merkle.Checkpoint) int { return cmp.Compare(a.N, b.N) })
}

func (w *logTree) add(stored eventstore.Recorded) error {
	leaf, err := audit.LogLeaf(stored)
	if err != nil {
		return err
	}
	w.stored.note(&w.tree, w.tree.Add(leaf))
	return w.compare()
}

// compare compares the tree with the checkpoints of its size.
func (w *logTree) compare() error {
	for len(w.signed) > 0 && w.signed[0].N == w.tree.Size() {
		now, err := w.tree.Head()
		if err != nil {
			return err
		}
		switch {
		case w.signed[0].Tree == now:
			w.agreed = now.N
		case w.finding == "":
			w.finding = fmt.Sprintf("the log: its first %d events are not those of the checkpoint that was signed", now.N)
			if w.agreed > 0 {
				w.finding += fmt.Sprintf(", though the first %d are", w.agreed)
			}
		}
		w.signed = w.signed[1:]
	}
	return nil
}

// findings returns the findings after the end of the log.
func (w *logTree) findings() (findings []string) {
	if w.finding != "" {
		findings = append(findings, w.finding)
	}
	if len(w.signed) > 0 {
		lost := fmt.Sprintf("the log: has lost events: a checkpoint of %d was signed, and there are %d", w.signed[0].N, w.tree.Size())
		if w.finding == "" && w.agreed > 0 {
			lost += fmt.Sprintf(", of which the first %d are as they were signed", w.agreed)
		}
		findings = append(findings, lost)
	}
	return findings
}
