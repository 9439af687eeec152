// Package importer captures the leads of a file, CSV or JSON lines, and records the outcome of each row.
package importer

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// StoppedError is why an import ended before its last row. The rows before have their outcome: the file can be imported
// again.
type StoppedError struct {
	Rows uint64
	Line int // of the row that it ended at; 0: it was interrupted
	Err  error
}

func (e *StoppedError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("interrupted after %d rows", e.Rows)
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Err)
}

// Unwrap returns the reason.
func (e *StoppedError) Unwrap() error { return e.Err }

// Target is what the rows of a file are captured into.
type Target struct {
	Handlers  *command.Handlers
	Admission command.Admission // of ImportActor; its request id is the run
	// Actor, unless empty, is who imports: it is recorded with the start and the end.
	Actor   string
	Merge   bool     // what would be refused as a duplicate
	Intakes []string // of the file's provider, whose arrivals some rows may be
}

// NewTarget returns the target of a file in an account. The errors are those of Directory.Admit and of the log.
func NewTarget(
	ctx context.Context, handlers *command.Handlers, directory *command.Directory, account, runID string,
) (Target, error) {
	admission, err := directory.Admit(ctx, command.Caller{
		Account: account, Actor: command.ImportActor, Credential: command.ImportActor, RequestID: runID,
		ReadsLeads: true,
	})
	return Target{Handlers: handlers, Admission: admission}, err
}

// Settings are those of the account.
func (t Target) Settings() account.State { return t.Admission.Account.State }

// recorder is the caller of the start and the end.
func (t Target) recorder() command.Caller {
	caller := t.Admission.Caller
	caller.Actor = cmp.Or(t.Actor, caller.Actor)
	return caller
}

// maxFailures is how often in a row a row is tried again while the log is unavailable: for about half a minute, as each
// attempt takes some seconds.
const maxFailures = 4

// Run captures every row of a surveyed source, adds each result to the ledger, and reports its progress. Rows are
// processed like captures over HTTP. The errors are those of reading the file, of the ledger, and *StoppedError.
func Run(ctx context.Context, source *Source, target Target, into Ledger, progress func(done, total uint64)) error {
	rows := into.Counts()
	if kind := source.Provider(); kind != "" {
		var err error
		target.Intakes, err = target.Handlers.IntakesOfKind(ctx, target.Admission.Caller.Account, kind)
		if err != nil {
			return err
		}
	}
	run, err := into.start(ctx, source, target)
	if err != nil {
		return err
	}
	from, failures, retry := 0, 0, eventstore.Backoff{Shortest: time.Second, Longest: 8 * time.Second}
	for {
		done := rows.Rows()
		if err = target.capture(ctx, source, from, into, progress); err == nil {
			break
		}
		if rows.Rows() > done {
			failures = 0
			retry.Reset()
		}
		failures++
		stopped, is := errors.AsType[*StoppedError](err)
		if !is || !isTransient(err) || failures > maxFailures {
			return err
		}
		from = stopped.Line
		_ = retry.Wait(ctx) // the next attempt detects an ended ctx
	}
	if run == nil {
		return nil
	}
	finished := rows.finished()
	finished.RunID = target.Admission.Caller.RequestID
	if err := run.Finish(ctx, finished); err != nil {
		return fmt.Errorf("all rows are imported, but the end of the import is not recorded: %w", err)
	}
	return nil
}

// isTransient reports whether what failed may succeed later.
func isTransient(err error) bool {
	return errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, eventstore.ErrContended)
}

// capture captures the rows from a line on.
func (t Target) capture(
	ctx context.Context, source *Source, from int, into Ledger, progress func(done, total uint64),
) error {
	rows := into.Counts()
	var broken error // of reading the file
	arrivals := func(ctx context.Context) iter.Seq[command.BatchArrival] {
		return func(yield func(command.BatchArrival) bool) {
			for row, err := range source.rows() {
				if err != nil {
					broken = err
					return
				}
				if row.line < from {
					_, _, _ = row.read() // the keys of later rows depend on it
					continue
				}
				if ctx.Err() != nil || !yield(t.arriving(row, source.name())) {
					return
				}
			}
		}
	}
	for arrived := range t.Handlers.CaptureLeads(ctx, arrivals, into.flush) {
		if err := into.add(arrived); err != nil && ctx.Err() == nil {
			return &StoppedError{rows.Rows(), arrived.Line, err}
		}
		progress(rows.Rows(), source.total)
	}
	if ctx.Err() != nil {
		return &StoppedError{Rows: rows.Rows(), Err: context.Cause(ctx)}
	}
	return broken
}

// arriving turns a row of a source into a capture.
func (t Target) arriving(r row, source string) command.BatchArrival {
	read := func(ctx context.Context) (command.CaptureLead, error) {
		record, key, err := r.read()
		cmd := command.CaptureLead{
			Admission: t.Admission, Body: record.Body, Source: source, IdempotencyKey: key,
			ReceivedAt: record.ReceivedAt, Import: true, MergeDuplicates: t.Merge, Noted: record.Warnings,
		}
		if err != nil || record.DeliveryID == "" {
			return cmd, err
		}
		cmd.KeyAlone = true
		for _, intake := range t.Intakes {
			lead, err := t.Handlers.DeliveredLead(ctx, t.Admission.Caller.Account, intake, record.DeliveryID)
			if err == nil && lead != "" {
				err = &deliveredError{lead}
			}
			if err != nil {
				return cmd, err
			}
		}
		return cmd, nil
	}
	return command.BatchArrival{Line: r.line, Lines: r.lines, Bytes: r.bytes, Read: read}
}

// deliveredError says that an intake has received the arrival of a row before.
type deliveredError struct{ leadID string }

func (e *deliveredError) Error() string { return "an intake has received this arrival before" }

// Ledger records the outcome of each row of an import.
type Ledger interface {
	// Counts returns those of the rows so far.
	Counts() *Tally
	// start records that the import begins. It returns nil for an import that is not recorded.
	start(context.Context, *Source, Target) (*command.Import, error)
	add(command.BatchOutcome) error // an error ends the import
	flush()                         // writes the added results
}

// Tally counts rows by outcome.
type Tally struct {
	Created, Merged, Refused, Invalid uint64
	Erased                            uint64            // of leads that were erased since an earlier import
	Repeated                          uint64            // of all of these, done before: by an earlier import or attempt
	Warned                            uint64            // of all of these, with warnings
	Warnings                          map[string]uint64 // of these, by code
}

// rowOutcome is the result of one row, as the outcome file shows it.
type rowOutcome struct {
	status          int
	leadID, message string
}

// count adds a row. An error that is not about the row is returned, and ends the import.
func (t *Tally) count(arrived command.BatchOutcome) (rowOutcome, error) {
	var (
		refused   *command.LeadRefused
		wrong     field.Errors
		delivered *deliveredError
	)
	if codes := codesOf(arrived); len(codes) > 0 {
		t.Warned++
		for _, code := range codes {
			if t.Warnings == nil {
				t.Warnings = map[string]uint64{}
			}
			t.Warnings[code]++
		}
	}
	replayed := arrived.Replayed
	row := rowOutcome{http.StatusCreated, arrived.Lead.ID, ""}
	switch err := arrived.Err; {
	case err == nil && arrived.Merged:
		row.status = http.StatusOK
		t.Merged++
	case err == nil:
		t.Created++
	case errors.As(err, &refused):
		row, replayed = rowOutcome{http.StatusConflict, refused.Fact.LeadID, refused.Fact.Code}, refused.Replayed
		t.Refused++
	case errors.As(err, &delivered):
		row, replayed = rowOutcome{http.StatusOK, delivered.leadID, ""}, true
		t.Merged++
	case errors.As(err, &wrong):
		row.status, row.message = http.StatusBadRequest, reason(err)
		t.Invalid++
	case errors.Is(err, command.ErrErased): // imported earlier and erased since: not imported again
		row.status, row.message, replayed = http.StatusGone, "LEAD_ERASED", true
		t.Erased++
	default:
		return row, err
	}
	if replayed {
		t.Repeated++
	}
	return row, nil
}

// Rows returns the number of rows.
func (t *Tally) Rows() uint64 { return t.Created + t.Merged + t.Refused + t.Invalid + t.Erased }

func (t *Tally) finished() event.ImportFinished {
	return event.ImportFinished{
		Rows: int(t.Rows()), Created: int(t.Created), Merged: int(t.Merged), Refused: int(t.Refused),
		Invalid: int(t.Invalid), Repeated: int(t.Repeated),
	}
}

// Bad is how many rows have no lead: conflicts and invalid ones.
func (t *Tally) Bad() uint64 { return t.Refused + t.Invalid }

// Counts implements Ledger.
func (t *Tally) Counts() *Tally { return t }

func (t *Tally) String() string {
	text := fmt.Sprintf("%d rows: %d new leads, %d merged, %d refused as duplicates, %d bad; %d of them done before",
		t.Rows(), t.Created, t.Merged, t.Refused, t.Invalid, t.Repeated)
	if t.Erased > 0 {
		text += fmt.Sprintf("; %d are of leads erased since", t.Erased)
	}
	if t.Warned > 0 {
		text += fmt.Sprintf("; %d with warnings", t.Warned)
	}
	return text
}

// Outcomes writes the outcome of each row as CSV.
type Outcomes struct {
	Tally
	open  func() (io.Writer, error)
	table *csv.Writer
}

// NewOutcomes returns outcomes that are written to what open returns, which is called once the import has started.
func NewOutcomes(open func() (io.Writer, error)) *Outcomes { return &Outcomes{open: open} }

func (o *Outcomes) start(ctx context.Context, source *Source, t Target) (*command.Import, error) {
	file, reading, err := source.digests()
	if err != nil {
		return nil, err
	}
	run, err := t.Handlers.StartImport(ctx, t.recorder(), file, reading)
	if err != nil {
		return nil, err
	}
	out, err := o.open()
	if err != nil {
		return nil, err
	}
	o.table = csv.NewWriter(out)
	return run, o.table.Write([]string{"line", "lines", "status", "leadId", "warnings", "errors"})
}

func (o *Outcomes) add(arrived command.BatchOutcome) error {
	row, err := o.count(arrived)
	if err != nil {
		return err
	}
	// The message may contain the name of a column, which comes from the file.
	return o.table.Write([]string{
		strconv.Itoa(arrived.Line), strconv.Itoa(arrived.Lines), strconv.Itoa(row.status), row.leadID,
		strings.Join(codesOf(arrived), " "), leadfile.Defused(row.message),
	})
}

// codesOf returns the codes of a row's warnings, each once.
func codesOf(arrived command.BatchOutcome) (codes []string) {
	for _, warning := range slices.Concat(arrived.Noted, arrived.Warnings) {
		if !slices.Contains(codes, warning.Code) {
			codes = append(codes, warning.Code)
		}
	}
	return codes
}

// flush leaves its error to Close.
func (o *Outcomes) flush() { o.table.Flush() }

// Close writes the added results.
func (o *Outcomes) Close() error {
	if o.table == nil {
		return nil
	}
	o.table.Flush()
	return o.table.Error()
}

// DryRun is the ledger of a dry run, which reports the rows that would be refused. Its handlers work on a draft of the
// log.
type DryRun struct {
	Tally
	report func(line int, reason string) error
	lines  map[string]int // line of each lead that would be created, by its id
}

// NewDryRun returns a ledger that reports rows that would be refused. An error ends the dry run.
func NewDryRun(report func(line int, reason string) error) *DryRun {
	return &DryRun{report: report, lines: map[string]int{}}
}

func (d *DryRun) start(context.Context, *Source, Target) (*command.Import, error) { return nil, nil }

func (d *DryRun) flush() {}

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
	return d.report(arrived.Line, row.message)
}

// known names a lead by its line if the import itself would create it: the id of such a lead exists in the draft alone.
func (d *DryRun) known(id string) string {
	if line, here := d.lines[id]; here {
		return fmt.Sprintf("the lead of line %d", line)
	}
	return "lead " + id
}

// reason describes an error in one line.
func reason(err error) string {
	var wrong field.Errors
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	parts := make([]string, len(wrong))
	for i, one := range wrong {
		parts[i] = one.Field + " " + one.Message
	}
	return strings.Join(parts, "; ")
}
