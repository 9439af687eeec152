// Package importer captures the leads of a file, CSV or JSON lines, and records the outcome of each row.
package importer

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query/export"
)

// errRows ends an import of which some rows were refused. The reasons are in the outcome or were printed.
var errRows = errors.New("some rows were not imported")

// Target is what the rows of a file are captured into.
type Target struct {
	Handlers  *command.Handlers
	Admission command.Admission
	Merge     bool     // what would be refused as a duplicate
	Intakes   []string // of the file's provider, whose arrivals some rows may be
}

// Run captures every row of the source, adds each result to the ledger, and shows its progress. Rows are processed like
// captures over HTTP.
func Run(ctx context.Context, progress io.Writer, source *Source, target Target, into Ledger) error {
	rows := into.rows()
	shown := cli.NewProgress(progress, into.name())
	var broken error // of reading the file
	arrivals := func(ctx context.Context) iter.Seq[command.BatchArrival] {
		return func(yield func(command.BatchArrival) bool) {
			for row, err := range source.rows() {
				if err != nil {
					broken = err
					return
				}
				if ctx.Err() != nil || !yield(target.arriving(row)) {
					return
				}
			}
		}
	}
	run, err := into.start(ctx, source, target)
	if err != nil {
		return err
	}
	for arrived := range target.Handlers.CaptureLeads(ctx, arrivals, into.flush) {
		if err := into.add(arrived); err != nil && ctx.Err() == nil {
			return fmt.Errorf("line %d: %w; run it again%s", arrived.Line, err, into.again())
		}
		shown.Show(rows.total(), source.total, "rows")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %d rows; run it again%s", rows.total(), into.again())
	}
	if broken != nil {
		return broken
	}
	if run != nil {
		finished := rows.finished()
		finished.RunID = target.Admission.Caller.RequestID
		if err := run.Finish(ctx, finished); err != nil {
			return fmt.Errorf("all rows are imported, but the end of the import is not recorded: %w; run it again%s",
				err, into.again())
		}
	}
	shown.End("%s; %s%s", rows, into.end(), source.accounted())
	if rows.refused+rows.bad > 0 {
		return errRows
	}
	return nil
}

// arriving turns a row into a capture.
func (t Target) arriving(r row) command.BatchArrival {
	read := func(ctx context.Context) (command.CaptureLead, error) {
		cmd := command.CaptureLead{
			Admission: t.Admission, Body: r.body, Source: r.source, IdempotencyKey: r.key,
			ReceivedAt: r.record.ReceivedAt, Import: true, MergeDuplicates: t.Merge,
		}
		if r.err != nil || r.record.DeliveryID == "" {
			return cmd, r.err
		}
		cmd.KeyAlone = true
		for _, intake := range t.Intakes {
			lead, err := t.Handlers.DeliveredLead(ctx, t.Admission.Caller.Account, intake, r.record.DeliveryID)
			if err == nil && lead != "" {
				err = &deliveredError{lead}
			}
			if err != nil {
				return cmd, err
			}
		}
		return cmd, nil
	}
	return command.BatchArrival{Line: r.line, Lines: r.lines, Bytes: r.bytes, Noted: r.record.Warnings, Read: read}
}

// deliveredError says that an intake has received the arrival of a row before.
type deliveredError struct{ leadID string }

func (e *deliveredError) Error() string { return "an intake has received this arrival before" }

// Ledger records the outcome of each row of an import.
type Ledger interface {
	// start records that the import begins. It returns nil for an import that is not recorded.
	start(context.Context, *Source, Target) (*command.Import, error)
	name() string // for the progress line
	rows() *tally
	add(command.BatchOutcome) error // an error ends the import
	flush()                         // writes the added results
	again() string                  // the effect of repeating an interrupted import: the end of a sentence
	end() string                    // where the outcome is
}

// tally counts rows by outcome.
type tally struct{ created, merged, refused, bad, erased, before, warned uint64 }

// rowOutcome is the result of one row, as the outcome file shows it.
type rowOutcome struct {
	status          int
	leadID, message string
}

// count adds a row to the tally. An error that is not about the row is returned, and ends the import.
func (t *tally) count(arrived command.BatchOutcome) (rowOutcome, error) {
	var (
		refused   *command.LeadRefused
		wrong     field.Errors
		delivered *deliveredError
	)
	if len(arrived.Noted)+len(arrived.Warnings) > 0 {
		t.warned++
	}
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
	case errors.As(err, &delivered):
		row, replayed = rowOutcome{http.StatusOK, delivered.leadID, ""}, true
		t.merged++
	case errors.As(err, &wrong):
		row.status, row.message = http.StatusBadRequest, reason(err)
		t.bad++
	case errors.Is(err, command.ErrErased): // imported earlier and erased since: not imported again
		row.status, row.message, replayed = http.StatusGone, "LEAD_ERASED", true
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

func (t *tally) finished() event.ImportFinished {
	return event.ImportFinished{
		Rows: int(t.total()), Created: int(t.created), Merged: int(t.merged), Refused: int(t.refused),
		Invalid: int(t.bad), Repeated: int(t.before),
	}
}

func (t *tally) rows() *tally { return t }

// Rows returns the number of rows.
func (t *tally) Rows() uint64 { return t.total() }

func (t *tally) String() string {
	text := fmt.Sprintf("%d rows: %d new leads, %d merged, %d refused as duplicates, %d bad; %d of them done by an "+
		"earlier import",
		t.total(), t.created, t.merged, t.refused, t.bad, t.before)
	if t.erased > 0 {
		text += fmt.Sprintf("; %d are of leads erased since", t.erased)
	}
	if t.warned > 0 {
		text += fmt.Sprintf("; %d with warnings", t.warned)
	}
	return text
}

// Outcomes is a CSV file with the outcome of each row.
type Outcomes struct {
	tally
	path  string
	file  *os.File
	table *csv.Writer
}

// CreateOutcomes creates the file, unless there is one. What it has is replaced once the import has started.
func CreateOutcomes(path string) (*Outcomes, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w (--outcome names another file)", err)
	}
	return &Outcomes{path: path, file: file, table: csv.NewWriter(file)}, nil
}

func (o *Outcomes) start(ctx context.Context, source *Source, t Target) (*command.Import, error) {
	file, reading, err := source.digests()
	if err != nil {
		return nil, err
	}
	run, err := t.Handlers.StartImport(ctx, t.Admission.Caller, file, reading)
	if unfinished, is := errors.AsType[*command.ImportUnfinishedError](err); is {
		return nil, cli.Usagef("%w: run it again as before, or take it back by leadlog import --undo %s --account %s",
			err, unfinished.RunID, t.Admission.Caller.Account)
	}
	if err != nil {
		return nil, err
	}
	if info, err := o.file.Stat(); err == nil && info.Mode().IsRegular() {
		if err := o.file.Truncate(0); err != nil {
			return nil, err
		}
	}
	return run, o.table.Write([]string{"line", "lines", "status", "leadId", "warnings", "errors"})
}

func (o *Outcomes) name() string  { return "import" }
func (o *Outcomes) again() string { return " to resume" }
func (o *Outcomes) end() string   { return "each row is in " + o.path }

func (o *Outcomes) add(arrived command.BatchOutcome) error {
	row, err := o.count(arrived)
	if err != nil {
		return err
	}
	// The message may contain the name of a column, which comes from the file.
	return o.table.Write([]string{
		strconv.Itoa(arrived.Line), strconv.Itoa(arrived.Lines), strconv.Itoa(row.status), row.leadID,
		codes(slices.Concat(arrived.Noted, arrived.Warnings)), export.Defused(row.message),
	})
}

// codes returns the codes of warnings, each once.
func codes(warnings field.Warnings) string {
	var codes []string
	for _, warning := range warnings {
		if !slices.Contains(codes, warning.Code) {
			codes = append(codes, warning.Code)
		}
	}
	return strings.Join(codes, " ")
}

// flush leaves its error to close.
func (o *Outcomes) flush() { o.table.Flush() }

// Close writes the added results, and closes the file.
func (o *Outcomes) Close() error {
	o.table.Flush()
	return errors.Join(o.table.Error(), o.file.Close())
}

// DryRun is the ledger of a dry run, which prints the rows that would be refused. Its handlers work on a draft of the
// log.
type DryRun struct {
	tally
	out   io.Writer
	lines map[string]int // line of each lead that would be created, by its id
}

// NewDryRun returns a ledger that prints to out.
func NewDryRun(out io.Writer) *DryRun { return &DryRun{out: out, lines: map[string]int{}} }

func (d *DryRun) start(context.Context, *Source, Target) (*command.Import, error) { return nil, nil }

func (d *DryRun) name() string  { return "import, dry run" }
func (d *DryRun) again() string { return "" }
func (d *DryRun) end() string   { return "nothing was written" }
func (d *DryRun) flush()        {}

func (d *DryRun) add(arrived command.BatchOutcome) error {
	row, err := d.count(arrived)
	if err != nil {
		return err
	}
	switch code := row.message; {
	case arrived.Err == nil && !arrived.Merged && !arrived.Replayed:
		d.lines[row.leadID] = arrived.Line
		return nil
	case code == "":
		return nil
	case code == lead.CodeDuplicateSource:
		row.message = fmt.Sprintf("%s: %s already has an arrival from this source", code, d.known(row.leadID))
	case code == lead.CodeDuplicateEmail:
		row.message = fmt.Sprintf("%s: the email already belongs to %s", code, d.known(row.leadID))
	}
	_, err = fmt.Fprintf(d.out, "line %d: %s\n", arrived.Line, cli.Printable(row.message))
	return err
}

// known names a lead by its line if the import itself would create it: the id of such a lead exists in the draft alone.
func (d *DryRun) known(id string) string {
	if line, here := d.lines[id]; here {
		return fmt.Sprintf("the lead of line %d", line)
	}
	return "lead " + id
}
