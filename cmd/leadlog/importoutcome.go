package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/query/export"
)

// ledger records what became of each row of an import.
type ledger interface {
	name() string // for the progress line
	rows() *tally
	add(command.Arrived) error // an error ends the import
	flush()                    // writes what was added
	again() string             // why to run an interrupted import again: the end of a sentence
	end() string               // where the outcome can be read
}

// tally counts rows by what became of them.
type tally struct{ created, merged, refused, bad, erased, before uint64 }

// rowOutcome is the result of one row, as the outcome file shows it.
type rowOutcome struct {
	status       int
	leadID, said string
}

// count adds a row to the tally. An error that is not about the row is returned, and ends the import.
func (t *tally) count(arrived command.Arrived) (rowOutcome, error) {
	var (
		refused *command.LeadRefused
		wrong   field.Errors
	)
	replayed := arrived.Replayed
	row := rowOutcome{http.StatusCreated, arrived.Lead.ID, ""}
	switch err := arrived.Err; {
	case err == nil && arrived.Merged:
		row.status = http.StatusOK
		t.merged++
	case err == nil:
		t.created++
	case errors.As(err, &refused):
		row, replayed = rowOutcome{http.StatusConflict, refused.Fact.LeadID, refused.Fact.Code}, refused.Replayed
		t.refused++
	case errors.As(err, &wrong):
		row.status, row.said = http.StatusBadRequest, reason(err)
		t.bad++
	case errors.Is(err, command.ErrErased): // imported earlier and erased since; it is not imported again
		row.status, row.said, replayed = http.StatusGone, "LEAD_ERASED", true
		t.erased++
	default:
		return row, err
	}
	if replayed {
		t.before++
	}
	return row, nil
}

func (t *tally) total() uint64 { return t.created + t.merged + t.refused + t.bad + t.erased }

func (t *tally) rows() *tally { return t }

func (t *tally) String() string {
	said := fmt.Sprintf("%d rows: %d new leads, %d merged, %d refused as duplicates, %d bad; %d of them done by an earlier import",
		t.total(), t.created, t.merged, t.refused, t.bad, t.before)
	if t.erased > 0 {
		said += fmt.Sprintf("; %d are of leads that were erased since", t.erased)
	}
	return said
}

// outcomes writes what became of each row, as CSV.
type outcomes struct {
	tally
	path  string
	file  *os.File
	table *csv.Writer
}

func createOutcomes(path string) (*outcomes, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w (--outcome names another file)", err)
	}
	o := &outcomes{path: path, file: file, table: csv.NewWriter(file)}
	if err := o.table.Write([]string{"line", "status", "leadId", "error"}); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return o, nil
}

func (o *outcomes) name() string  { return "import" }
func (o *outcomes) again() string { return " to go on from here" }
func (o *outcomes) end() string   { return "each row is in " + o.path }

func (o *outcomes) add(arrived command.Arrived) error {
	row, err := o.count(arrived)
	if err != nil {
		return err
	}
	// The message may name a column, whose name is whatever the file says.
	return o.table.Write([]string{strconv.Itoa(arrived.Line), strconv.Itoa(row.status), row.leadID, export.Defused(row.said)})
}

// flush leaves its error to close.
func (o *outcomes) flush() { o.table.Flush() }

func (o *outcomes) close() error {
	o.table.Flush()
	return errors.Join(o.table.Error(), o.file.Close())
}
