package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
)

// logTree is the tree over the log that was read so far, and the trees and heads that it is compared with.
type logTree struct {
	tree    audit.Tiles
	stored  storedTree
	heads   []audit.Head // signed earlier, in the order of their sizes; without those that the tree has reached
	agreed  int64        // size of the latest matching head
	finding string       // about the first head that does not match
}

// newLogTree takes the heads of the whole log, and returns the others.
func newLogTree(heads []audit.Head) (w logTree, others []audit.Head) {
	for _, head := range heads {
		if head.Account == audit.WholeLog {
			w.heads = append(w.heads, head)
		} else {
			others = append(others, head)
		}
	}
	w.sort()
	return w, others
}

func (w *logTree) sort() {
	slices.SortFunc(w.heads, func(a, b audit.Head) int { return cmp.Compare(a.Size, b.Size) })
}

func (w *logTree) add(e eventstore.Recorded) error {
	if e.Stored != nil {
		e.Event = *e.Stored
	}
	leaf, err := audit.LogLeaf(e)
	if err != nil {
		return err
	}
	w.tree.Add(leaf)
	w.stored.note(&w.tree)
	return w.compare()
}

func (w *logTree) head() (audit.Head, error) {
	root, err := w.tree.Root()
	return audit.Head{Account: audit.WholeLog, Size: w.tree.Size(), Root: root}, err
}

// compare compares the tree with the heads of its size.
func (w *logTree) compare() error {
	for len(w.heads) > 0 && w.heads[0].Size == w.tree.Size() {
		now, err := w.head()
		if err != nil {
			return err
		}
		switch signed := w.heads[0]; {
		case signed.Root == now.Root:
			w.agreed = now.Size
		case w.finding == "":
			w.finding = fmt.Sprintf("the log: its first %d events are not those of the head that was signed", now.Size)
			if w.agreed > 0 {
				w.finding += fmt.Sprintf(", though the first %d are", w.agreed)
			}
		}
		w.heads = w.heads[1:]
	}
	return nil
}

// findings returns the findings after the end of the log.
func (w *logTree) findings() (findings []string) {
	if w.finding != "" {
		findings = append(findings, w.finding)
	}
	if len(w.heads) > 0 {
		lost := fmt.Sprintf("the log: has lost events: a head of %d was signed, and there are %d", w.heads[0].Size, w.tree.Size())
		if w.finding == "" && w.agreed > 0 {
			lost += fmt.Sprintf(", of which the first %d are as they were signed", w.agreed)
		}
		findings = append(findings, lost)
	}
	return findings
}
