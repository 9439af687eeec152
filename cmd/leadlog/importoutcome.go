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

// outcomes writes what became of each row, as CSV, and counts.
type outcomes struct {
	path  string
	file  *os.File
	table *csv.Writer

	created, merged, refused, bad, erased, before uint64
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

// add writes the outcome of one row. The error is one that ends the import: the row's, when it is not about the row, or
// that of writing.
func (o *outcomes) add(arrived command.Arrived) error {
	var (
		refused *command.LeadRefused
		wrong   field.Errors
	)
	replayed := arrived.Replayed
	status, leadID, said := http.StatusCreated, arrived.Lead.ID, ""
	switch err := arrived.Err; {
	case err == nil && arrived.Merged:
		status = http.StatusOK
		o.merged++
	case err == nil:
		o.created++
	case errors.As(err, &refused):
		status, leadID, said, replayed = http.StatusConflict, refused.Fact.LeadID, refused.Fact.Code, refused.Replayed
		o.refused++
	case errors.As(err, &wrong):
		status, said = http.StatusBadRequest, reason(err)
		o.bad++
	case errors.Is(err, command.ErrErased): // since an earlier import: it stays so
		status, said, replayed = http.StatusGone, "LEAD_ERASED", true
		o.erased++
	default:
		return err
	}
	if replayed {
		o.before++
	}
	// A column's name is what somebody wrote.
	return o.table.Write([]string{strconv.Itoa(arrived.Line), strconv.Itoa(status), leadID, export.Defused(said)})
}

func (o *outcomes) total() uint64 { return o.created + o.merged + o.refused + o.bad + o.erased }

// flush hands on what is written. What goes wrong shows when it is closed.
func (o *outcomes) flush() { o.table.Flush() }

func (o *outcomes) close() error {
	o.table.Flush()
	return errors.Join(o.table.Error(), o.file.Close())
}

func (o *outcomes) String() string {
	said := fmt.Sprintf("%d rows: %d new leads, %d merged, %d refused as duplicates, %d bad; %d of them done by an earlier import",
		o.total(), o.created, o.merged, o.refused, o.bad, o.before)
	if o.erased > 0 {
		said += fmt.Sprintf("; %d are of leads that were erased since", o.erased)
	}
	return said
}
