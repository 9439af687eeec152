package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
	"github.com/leadlog/leadlog/projection"
)

type importCommand struct {
	service.SealedDatabase `embed:""`

	File      string            `arg:"" placeholder:"FILE" help:"CSV with a header, or JSON lines."`
	Account   string            `required:"" placeholder:"ID" help:"Account that the leads are for."`
	DryRun    bool              `help:"Say which rows would be refused, and why, and write nothing."`
	Map       map[string]string `mapsep:"none" placeholder:"COLUMN=FIELD" help:"What a CSV column is: name, firstName, lastName, phone, email, status, leadTemperature, opportunityValue, visitorId, metadata.KEY, customFields.KEY, or nothing to leave it out. May be repeated."`
	Format    string            `enum:",csv,ndjson" default:"" placeholder:"FORMAT" help:"csv or ndjson. Default: by the file's name, or by how it begins."`
	Delimiter string            `placeholder:"CHARACTER" help:"What separates the cells of a CSV file, such as ; or tab. Default: found out from the header."`
	Encoding  string            `placeholder:"NAME" help:"Encoding of a CSV file, such as windows-1251. Default: found out among UTF-8, UTF-16 and Windows-1252."`
	Outcome   string            `placeholder:"FILE" help:"Where to write what became of each row. Default: FILE.outcome.csv beside the file."`
	ClaimKey  string            `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"32 bytes: the HMAC key of claim names, as the service has it."`
}

// errRows ends an import of which some rows were refused. The reasons are in the outcome or were printed.
var errRows = errors.New("some rows were not imported")

// Run is leadlog import. Rows take the same path as captures over HTTP, without the rate limit.
func (i *importCommand) Run(ctx context.Context, c cli.Output) error {
	source, err := i.open()
	if err != nil {
		return err
	}
	defer source.close()
	outcome := cmp.Or(i.Outcome, i.File+".outcome.csv")
	if sameFile(source.file, outcome) {
		return cli.Usagef("--outcome=%q: must be another file than the one to import, which it would overwrite", outcome)
	}
	source.describe(c.Err)
	handlers, directory, release, err := i.wire(ctx, c)
	if err != nil {
		return err
	}
	defer release()
	caller := command.Caller{
		Account: i.Account, Actor: "system:import", Credential: "system:import", RequestID: ulid.Make().String(), ReadsLeads: true,
	}
	admission, err := directory.Admit(ctx, caller)
	if errors.Is(err, command.ErrFeatureDisabled) {
		if found, failed := directory.ConfirmAccount(ctx, i.Account); failed == nil && !found.State.Provisioned {
			return noAccount(i.Account)
		}
		return fmt.Errorf("account %s: %w", i.Account, err)
	}
	if err != nil {
		return err
	}
	if err := handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	if i.DryRun {
		return importAll(ctx, c, handlers, source, admission, &dryRun{out: c.Out, born: map[string]int{}})
	}
	outcomes, err := createOutcomes(outcome)
	if err != nil {
		return err
	}
	err = importAll(ctx, c, handlers, source, admission, outcomes)
	return errors.Join(err, outcomes.close())
}

// wire opens the stores and builds the handlers. A dry run works on a draft of the log.
func (i *importCommand) wire(ctx context.Context, c cli.Output) (*command.Handlers, *command.Directory, func(), error) {
	var check cli.Checker
	key, err := i.ReadClaimKey(&check, i.ClaimKey)
	if err = errors.Join(err, check.Err()); err != nil {
		return nil, nil, nil, err
	}
	h, err := i.OpenStores(ctx, c)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := projection.Belong(ctx, h.Pool, h.Store); err != nil {
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
	}), directory, h.Close, nil
}

// importAll captures every row of the source, adds each result to the ledger, and shows its progress.
func importAll(
	ctx context.Context, c cli.Output, handlers *command.Handlers, source *importSource, admission command.Admission, into ledger,
) error {
	rows := into.rows()
	shown := cli.NewProgress(c.Err, into.name())
	var broken error // of reading the file
	arrivals := func(ctx context.Context) iter.Seq[command.Arriving] {
		return func(yield func(command.Arriving) bool) {
			for row, err := range source.rows() {
				if err != nil {
					broken = err
					return
				}
				if ctx.Err() != nil || !yield(row.arriving(admission)) {
					return
				}
			}
		}
	}
	for arrived := range handlers.CaptureLeads(ctx, arrivals, into.flush) {
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
	shown.End("%s; %s", rows, into.end())
	if rows.refused+rows.bad > 0 {
		return errRows
	}
	return nil
}

// arriving turns a row into a capture.
func (r importRow) arriving(admission command.Admission) command.Arriving {
	return command.Arriving{Line: r.line, Bytes: r.bytes, Read: func(context.Context) (command.CaptureLead, error) {
		return command.CaptureLead{Admission: admission, Body: r.body, Source: r.source, IdempotencyKey: r.key}, r.err
	}}
}

// openRegular opens a file that can be read more than once.
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

// sameFile reports whether a path leads to this open file.
func sameFile(file *os.File, path string) bool {
	own, err := file.Stat()
	if err != nil {
		return false
	}
	other, err := os.Stat(path)
	return err == nil && os.SameFile(own, other)
}
