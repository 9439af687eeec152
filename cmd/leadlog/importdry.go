package main

import (
	"fmt"
	"io"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
)

// dryRun is the ledger of a dry run: it prints the rows that would be refused.
type dryRun struct {
	tally
	out  io.Writer
	born map[string]int // line of each lead that would be created, by its id
}

func (d *dryRun) name() string  { return "import, dry run" }
func (d *dryRun) again() string { return "" }
func (d *dryRun) end() string   { return "nothing was written" }
func (d *dryRun) flush()        {}

func (d *dryRun) add(arrived command.Arrived) error {
	row, err := d.count(arrived)
	if err != nil {
		return err
	}
	switch said := row.said; {
	case arrived.Err == nil && !arrived.Merged && !arrived.Replayed:
		d.born[row.leadID] = arrived.Line
		return nil
	case said == "":
		return nil
	case said == lead.CodeDuplicateSource:
		row.said = fmt.Sprintf("%s: %s already has an arrival from this source", said, d.known(row.leadID))
	case said == lead.CodeDuplicateEmail:
		row.said = fmt.Sprintf("%s: the email already belongs to %s", said, d.known(row.leadID))
	}
	_, err = fmt.Fprintf(d.out, "line %d: %s\n", arrived.Line, cli.Printable(row.said))
	return err
}

// known names a lead by its line if the import itself would create it: the made-up id of such a lead means nothing to anybody.
func (d *dryRun) known(id string) string {
	if line, here := d.born[id]; here {
		return fmt.Sprintf("the lead of line %d", line)
	}
	return "lead " + id
}
