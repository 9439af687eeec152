package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/term"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/leadfile"
	"github.com/leadlog/leadlog/command/worker/importer"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
	"github.com/leadlog/leadlog/projection"
)

type importCommand struct {
	service.SealedDatabase `embed:""`

	Path        string            `arg:"" optional:"" name:"file" placeholder:"FILE" help:"CSV with a header, or JSON lines. Not with --undo."`
	Account     string            `required:"" placeholder:"ID" help:"Account that the leads are for."`
	OnDuplicate string            `enum:"refuse,merge" default:"refuse" help:"What to do with a row of a person whom another row or import has brought: refuse or merge."`
	Undo        string            `placeholder:"RUN" help:"Take back an import, by the run that it printed: erase the leads that only it made and that were not changed since."`
	Yes         bool              `help:"Do not ask before the first row, and import although columns with contacts become custom fields."`
	DryRun      bool              `help:"Print which rows would be refused, and why, and write nothing. With --undo: which leads would stay."`
	Map         map[string]string `mapsep:"none" placeholder:"COLUMN=FIELD" help:"Field of a CSV column, such as phone, metadata.KEY or customFields.KEY, or nothing to leave it out. The error of an unknown field lists all. May be repeated."`
	Keep        []string          `sep:"none" placeholder:"COLUMN" help:"Column of a CSV file that stays a custom field, although it looks like a contact. May be repeated."`
	At          string            `placeholder:"COLUMN" help:"Column of a CSV file with the time when the person came. Default: detected by its name."`
	Format      string            `enum:",csv,ndjson" default:"" placeholder:"FORMAT" help:"csv or ndjson. Default: detected from the name or the beginning of the file."`
	Delimiter   string            `placeholder:"CHARACTER" help:"Delimiter of a CSV file, such as ; or tab. Default: detected from the header."`
	Skip        int               `placeholder:"N" help:"Lines before the header of a CSV file, such as a title."`
	Encoding    string            `placeholder:"NAME" help:"Encoding of a CSV file, such as windows-1251. Default: detected among UTF-8, UTF-16 and Windows-1252."`
	Outcome     string            `placeholder:"FILE" help:"Where to write the outcome of each row. Default: FILE.outcome.csv in the same directory."`
	ClaimKey    string            `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"32 bytes: the HMAC key of claim names, the same as that of the service."`
}

// Run is leadlog import. Rows are processed like captures over HTTP, without the rate limit.
func (i *importCommand) Run(ctx context.Context, c cli.Output) error {
	if i.Undo != "" {
		return i.undo(ctx, c)
	}
	file, source, err := i.open()
	if err != nil {
		return err
	}
	defer file.Close()
	outcome := cmp.Or(i.Outcome, i.Path+".outcome.csv")
	if same(file, outcome) {
		return cli.Usagef("--outcome=%q: must be another file than the one to import, which it would overwrite",
			outcome)
	}
	handlers, directory, stores, err := i.wire(ctx, c)
	if err != nil {
		return err
	}
	defer stores.Close()
	target, err := importer.NewTarget(ctx, handlers, directory, i.Account, ulid.Make().String())
	if errors.Is(err, command.ErrFeatureDisabled) {
		if found, failed := directory.ConfirmAccount(ctx, i.Account); failed == nil && !found.State.Provisioned {
			return noAccount(i.Account)
		}
		return fmt.Errorf("account %s: %w", i.Account, err)
	}
	if err != nil {
		return err
	}
	target.Merge = i.OnDuplicate == "merge"
	if err := handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	report, err := source.Survey(target.Settings(), time.Now())
	if err != nil {
		return err
	}
	if err := i.show(c.Err, report); err != nil {
		return err
	}
	if i.DryRun {
		return i.try(ctx, c, source, target)
	}
	if err := i.confirm(ctx, c); err != nil {
		return err
	}
	service.CollectLess(importer.RowMemory * int64(report.Rows))
	return i.capture(ctx, c, source, target, stores, outcome)
}

// open opens the file and finds out how to read it.
func (i *importCommand) open() (*os.File, *importer.Source, error) {
	if i.Path == "" {
		return nil, nil, cli.Usagef("name the file to import")
	}
	file, err := openRegular(i.Path)
	if err != nil {
		return nil, nil, err
	}
	source, err := importer.Open(file, i.Path, importer.Options{
		Format: i.Format, Delimiter: i.Delimiter, Encoding: i.Encoding, Skip: i.Skip,
		Columns: leadfile.Options{Map: i.Map, Keep: i.Keep, At: i.At},
	})
	if err == nil {
		return file, source, nil
	}
	_ = file.Close() // it was only read
	var option *importer.OptionError
	var columns *importer.ColumnsError
	switch {
	case errors.As(err, &option):
		err = cli.Usagef("--%w", option)
	case errors.As(err, &columns):
		err = cli.Usagef("%s: %w", i.Path, err)
	case errors.Is(err, importer.ErrOnlyCSV):
		err = cli.Usagef("--map, --keep, --at, --delimiter, --encoding and --skip %w", err)
	default:
		err = fmt.Errorf("%s: %w", i.Path, err)
	}
	return nil, nil, err
}

// openRegular opens a regular file, which can be read more than once.
func openRegular(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: must be a file, since it is read twice", path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// same reports whether a path leads to a file.
func same(file *os.File, path string) bool {
	own, err := file.Stat()
	if err != nil {
		return false
	}
	other, err := os.Stat(path)
	return err == nil && os.SameFile(own, other)
}

// show prints how the file is read, and what each column becomes. It returns an error if a person must decide on that
// first.
func (i *importCommand) show(w io.Writer, r importer.Report) error {
	if r.Columns == nil { // JSON lines
		return nil
	}
	describe(w, r)
	for _, note := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", cli.Printable(note))
	}
	hint := ""
	if len(r.Contacts) > 0 {
		hint = " (" + cli.Printable(strings.Join(r.Contacts, "; ")) + ")"
	}
	title := ""
	if r.Skip > 0 {
		title = fmt.Sprintf("; or, if line %d names the columns, leave out those before it by --skip %d", r.Skip+1, r.Skip)
	}
	switch {
	case r.Headless:
		return cli.Usagef("the first row must name the columns, and looks like a person: add a row such as " +
			"name,phone,email before it")
	case r.NoContact:
		return cli.Usagef("no column is a phone or an email%s: name one by --map \"COLUMN=phone\"%s", hint, title)
	case hint != "" && !i.Yes:
		return cli.Usagef("contacts would become custom fields%s: say what the column is by --map \"COLUMN=phone\", "+
			"that it is none by --keep \"COLUMN\", or --yes", hint)
	}
	return nil
}

func describe(w io.Writer, r importer.Report) {
	fmt.Fprintf(w, "CSV in %s, delimiter %q, %d rows\n", r.Encoding, r.Delimiter, r.Rows)
	if r.Sampled > 0 {
		fmt.Fprintf(w, "(emails and phones of the first %d rows)\n", r.Sampled)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  column\tbecomes\tfilled\temails\tphones\texamples")
	for _, column := range r.Columns {
		var examples []string
		for _, example := range column.Examples {
			examples = append(examples, cli.Printable(strings.ReplaceAll(example, "\t", " ")))
		}
		fmt.Fprintf(table, "  %s\t%s\t%d\t%d\t%d\t%s\n", cli.Printable(column.Name),
			cli.Printable(cmp.Or(column.Becomes, "(left out)")), column.Filled, column.Emails, column.Phones,
			strings.Join(examples, " | "))
	}
	_ = table.Flush() // like other prints, which may fail
}

// confirm asks on a terminal whether the columns are as they should be.
func (i *importCommand) confirm(ctx context.Context, c cli.Output) error {
	if i.Yes || !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	fmt.Fprint(c.Err, "Import these rows? Type yes to continue: ")
	if err := confirmed(ctx, os.Stdin); err != nil {
		return errors.New("not confirmed: nothing was imported")
	}
	return nil
}

// errRows ends an import of which some rows were refused. The reasons are in the outcome or were printed.
var errRows = errors.New("some rows were not imported")

// try prints the rows that would be refused.
func (i *importCommand) try(ctx context.Context, c cli.Output, source *importer.Source, target importer.Target) error {
	shown := cli.NewProgress(c.Err, "import, dry run")
	ledger := importer.NewDryRun(func(line int, reason string) error {
		_, err := fmt.Fprintf(c.Out, "line %d: %s\n", line, cli.Printable(reason))
		return err
	})
	err := importer.Run(ctx, source, target, ledger, func(done, total uint64) { shown.Show(done, total, "rows") })
	if stopped, is := errors.AsType[*importer.StoppedError](err); is {
		return fmt.Errorf("%w; run it again", stopped)
	}
	if err != nil {
		return err
	}
	return end(shown, source, ledger.Counts(), "nothing was written")
}

// eventsOfRow is how many events a row that creates a lead with phone and email appends, with its claims.
const eventsOfRow = 4

// capture imports the rows, and writes the outcome of each.
func (i *importCommand) capture(
	ctx context.Context, c cli.Output, source *importer.Source, target importer.Target, stores *service.Stores,
	outcome string,
) error {
	file, err := os.OpenFile(outcome, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%w (--outcome names another file)", err)
	}
	fmt.Fprintf(c.Err, "run %s (to take it back: leadlog import --undo %[1]s --account %s)\n",
		target.Admission.Caller.RequestID, i.Account)
	shown := cli.NewProgress(c.Err, "import")
	ledger := importer.NewOutcomes(func() (io.Writer, error) { return file, truncate(file) })
	err = importer.Run(ctx, source, target, ledger, func(done, total uint64) { shown.Show(done, total, "rows") })
	stores.AnalyzeLog(ctx, eventsOfRow*int64(ledger.Rows()))
	if closed := errors.Join(ledger.Close(), file.Close()); closed != nil {
		return errors.Join(err, closed)
	}
	if unfinished, is := errors.AsType[*command.ImportUnfinishedError](err); is {
		return cli.Usagef("%w: run it again as before, or take it back by leadlog import --undo %s --account %s",
			err, unfinished.RunID, i.Account)
	}
	if err != nil {
		return fmt.Errorf("%w; run it again to resume", err)
	}
	return end(shown, source, ledger.Counts(), "each row is in "+outcome)
}

// truncate empties a file, unless it is a device.
func truncate(file *os.File) error {
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		return file.Truncate(0)
	}
	return nil
}

// end prints how many rows had which outcome.
func end(shown *cli.Progress, source *importer.Source, rows *importer.Tally, where string) error {
	other := ""
	if header, blank := source.OtherLines(); header > 0 {
		other = fmt.Sprintf("; other lines: %d up to the header, %d blank", header, blank)
	}
	shown.End("%s; %s%s", rows, where, other)
	if rows.Bad() > 0 {
		return errRows
	}
	return nil
}

// wire opens the stores and builds the handlers. A dry run works on a draft of the log.
func (i *importCommand) wire(
	ctx context.Context, c cli.Output,
) (*command.Handlers, *command.Directory, *service.Stores, error) {
	var check cli.Checker
	key, err := i.ReadClaimKey(&check, i.ClaimKey)
	if err = errors.Join(err, check.Err()); err != nil {
		return nil, nil, nil, err
	}
	h, err := i.OpenStores(ctx, c)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := projection.CheckLog(ctx, h.Pool, h.Store); err != nil {
		h.Close()
		return nil, nil, nil, err
	}
	if err := h.Store.Vault.Known(ctx); err != nil {
		h.Close()
		return nil, nil, nil, err
	}
	var target eventstore.Store = h.Store
	if i.DryRun {
		target = draft.On(h.Store)
	}
	directory := command.NewDirectory(target, time.Now)
	return command.NewHandlers(command.Options{
		Store: target, Claims: claim.NewNames(key), Directory: directory, Log: h.Log,
	}), directory, h, nil
}
