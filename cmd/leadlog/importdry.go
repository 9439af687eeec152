package main

import (
	"fmt"
	"io"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
)

// foretold is the ledger of a dry run: it tells of the rows that would be refused.
type foretold struct {
	tally
	out  io.Writer
	born map[string]int // the lines of leads that would be made
}

func (f *foretold) name() string  { return "import, dry run" }
func (f *foretold) again() string { return "" }
func (f *foretold) end() string   { return "nothing was written" }
func (f *foretold) flush()        {}

func (f *foretold) add(arrived command.Arrived) error {
	row, err := f.count(arrived)
	if err != nil {
		return err
	}
	switch said := row.said; {
	case arrived.Err == nil && !arrived.Merged && !arrived.Replayed:
		f.born[row.leadID] = arrived.Line
		return nil
	case said == "":
		return nil
	case said == lead.CodeDuplicateSource:
		row.said = fmt.Sprintf("%s: %s already has an arrival from this source", said, f.known(row.leadID))
	case said == lead.CodeDuplicateEmail:
		row.said = fmt.Sprintf("%s: the email already belongs to %s", said, f.known(row.leadID))
	}
	_, err = fmt.Fprintf(f.out, "line %d: %s\n", arrived.Line, printable(row.said))
	return err
}

// known names a lead by its line, if the import would make it: ids that are made up mean nothing to anybody.
func (f *foretold) known(id string) string {
	if line, here := f.born[id]; here {
		return fmt.Sprintf("the lead of line %d", line)
	}
	return "lead " + id
}
