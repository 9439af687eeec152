package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/leadlog/leadlog/eventstore/merkle"
)

// Check compares an export, as JSON lines, with checkpoints of one account's tree: the export must contain exactly the
// tree of the newest checkpoint, and must begin with the tree of each older one.
type Check struct {
	Checkpoints []merkle.Checkpoint      // at least one
	Limit       int                      // maximum number of findings
	Progress    func(events, size int64) // may be nil
}

// Export reads an export to its end, in constant memory. It returns findings, as sentences that name the events, or the
// number of events if there are none. The error means that the export could not be read.
func (c Check) Export(r io.Reader) (findings []string, events int64, err error) {
	checking := checking{
		Check:  c,
		newest: slices.MaxFunc(c.Checkpoints, func(a, b merkle.Checkpoint) int { return cmp.Compare(a.N, b.N) }),
	}
	if err := checking.compare(); err != nil {
		return nil, 0, err
	}
	lines := bufio.NewScanner(r) // of lines up to 64 KiB: user agents are cut at 1 KiB, names at 100 characters
	for lines.Scan() {
		if err := checking.line(lines.Bytes()); err != nil {
			return checking.findings, checking.lines, err
		}
		if c.Progress != nil {
			c.Progress(checking.lines, checking.newest.N)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		checking.find("line %d: longer than any line of an export", checking.lines+1)
	case err != nil:
		return checking.findings, checking.lines, err
	}
	checking.end()
	return checking.findings, checking.next, nil
}

// checking is the state of a check.
type checking struct {
	Check
	newest   merkle.Checkpoint
	tree     merkle.Tiles
	lines    int64
	empty    int64 // the first empty line since the last event, or 0
	next     int64 // the leaf that is expected on the next line
	wrong    bool
	findings []string
}

func (c *checking) find(format string, args ...any) {
	c.wrong = true
	if len(c.findings) < c.Limit {
		c.findings = append(c.findings, fmt.Sprintf(format, args...))
	}
}

func (c *checking) line(line []byte) error {
	c.lines++
	if len(bytes.TrimSpace(line)) == 0 {
		c.empty = cmp.Or(c.empty, c.lines)
		return nil
	}
	if c.empty > 0 { // empty lines at the end, which editors and shells add, are allowed
		c.find("line %d: is empty", c.empty)
		c.empty = 0
	}
	var e Entry
	if err := json.Unmarshal(line, &e, json.RejectUnknownMembers(true)); err != nil {
		c.find("line %d: is not a token event as leadlog exports it: %v", c.lines, err)
		c.next++
		return nil
	}
	sealed, err := e.Sealed()
	if err != nil {
		return fmt.Errorf("line %d: %w", c.lines, err)
	}
	if sealed.LineHash != e.LineHash {
		c.find("line %d, event %s: was changed: it is not what its lineHash says", c.lines, e.ID)
		c.next++
		return nil
	}
	c.checkIndex(e)
	if c.wrong {
		return nil // it was reported
	}
	hash, err := e.LeafHash(c.newest.Account)
	if err != nil {
		return fmt.Errorf("line %d: %w", c.lines, err)
	}
	c.tree.Add(hash)
	return c.compare()
}

// compare checks the current tree against the checkpoints of its size.
func (c *checking) compare() error {
	for _, signed := range c.Checkpoints {
		if signed.N != c.tree.Size() {
			continue
		}
		head, err := c.tree.Head()
		if err != nil {
			return err
		}
		if head != signed.Tree {
			c.find("the first %d events are not those of the checkpoint that was signed (account %s), though each "+
				"matches its "+
				"lineHash: one or more were rewritten, or are of another account", signed.N, signed.Account)
			return nil
		}
	}
	return nil
}

// checkIndex checks that the event has the expected leaf index.
func (c *checking) checkIndex(e Entry) {
	switch missing := e.Leaf - c.next; {
	case missing == 1:
		c.find("line %d, event %s: is leaf %d of the tree: leaf %d is missing before it", c.lines, e.ID, e.Leaf, c.next)
	case missing > 1:
		c.find("line %d, event %s: is leaf %d of the tree: leaves %d to %d are missing before it",
			c.lines, e.ID, e.Leaf, c.next, e.Leaf-1)
	case missing < 0:
		c.find("line %d, event %s: is leaf %d of the tree: it is out of order, or there twice", c.lines, e.ID, e.Leaf)
		return
	}
	c.next = e.Leaf + 1
}

// end reports findings that depend on the end of the export.
func (c *checking) end() {
	switch size := c.newest.N; {
	case c.next == size-1:
		c.find("the export ends early: leaf %d of the tree, the last, is missing", c.next)
	case c.next < size:
		c.find("the export ends early: leaves %d to %d of the tree are missing", c.next, size-1)
	case c.next > size:
		c.find("the export goes on after leaf %d, where the checkpoint ends: one of size %d is needed to check it",
			size-1, c.next)
	}
}
