package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
)

type importCommand struct {
	sealedDatabase `embed:""`

	File      string            `arg:"" placeholder:"FILE" help:"CSV with a header, or JSON lines."`
	Account   string            `required:"" placeholder:"ID" help:"Whose the leads are to be."`
	DryRun    bool              `help:"Say what is wrong with which row, and write nothing."`
	Map       map[string]string `mapsep:"none" placeholder:"COLUMN=FIELD" help:"What a CSV column is: name, firstName, lastName, phone, email, status, leadTemperature, opportunityValue, visitorId, metadata.KEY, customFields.KEY, or nothing to leave it out. May be repeated."`
	Format    string            `enum:",csv,ndjson" default:"" placeholder:"FORMAT" help:"csv or ndjson. Default: by the file's name, or by how it begins."`
	Delimiter string            `placeholder:"CHARACTER" help:"Between the cells of CSV; tab may be written out. Default: found out from the header."`
	Encoding  string            `placeholder:"NAME" help:"Of CSV, such as windows-1251. Default: found out; UTF-8, UTF-16 and Windows-1252 are."`
	Outcome   string            `placeholder:"FILE" help:"Where to write what became of each row. Default: FILE.outcome.csv beside the file."`
	ClaimKey  string            `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"32 bytes: the HMAC key of claim names, as the service has it."`
}

// errRows says that some rows were not taken in. What is wrong with them has been told.
var errRows = errors.New("some rows were not imported")

// Run is leadlog import. It goes the way of a capture over HTTP, but for the rate limit.
func (i *importCommand) Run(ctx context.Context, c console) error {
	source, err := i.open()
	if err != nil {
		return err
	}
	defer source.close()
	source.describe(c.err)
	handlers, directory, release, err := i.wire(ctx, c)
	if err != nil {
		return err
	}
	defer release()
	caller := command.Caller{
		Account: i.Account, Actor: "system:import", Credential: "system:import", RequestID: ulid.Make().String(),
	}
	admission, err := directory.Admit(ctx, caller)
	if errors.Is(err, command.ErrFeatureDisabled) {
		return fmt.Errorf("account %s: %w", i.Account, err)
	}
	if err != nil {
		return err
	}
	if i.DryRun {
		return dryRun(ctx, c, source, admission)
	}
	if err := handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	outcomes, err := createOutcomes(cmp.Or(i.Outcome, i.File+".outcome.csv"))
	if err != nil {
		return err
	}
	err = importAll(ctx, c, handlers, source, admission, outcomes)
	return errors.Join(err, outcomes.close())
}

// wire opens the log alone: an import needs no view.
func (i *importCommand) wire(ctx context.Context, c console) (*command.Handlers, *command.Directory, func(), error) {
	if err := i.fillClaimKey(&i.ClaimKey); err != nil {
		return nil, nil, nil, err
	}
	var check checker
	i.database.check(&check)
	key := check.key("LEADLOG_CLAIM_KEY", i.ClaimKey)
	sealing, err := i.sealKeys(&check)
	if err = errors.Join(err, check.err()); err != nil {
		return nil, nil, nil, err
	}
	log := plainLogger(c)
	views, events, private, err := i.database.open(ctx, log)
	if err != nil {
		return nil, nil, nil, err
	}
	pool, err := pgxpool.New(ctx, views)
	if err != nil {
		leave(private, log)
		return nil, nil, nil, fmt.Errorf("LEADLOG_DATABASE_URL: %w", err)
	}
	store, err := openSealedLog(ctx, events, pool, sealing, log)
	if err != nil {
		pool.Close()
		leave(private, log)
		return nil, nil, nil, err
	}
	release := func() { store.Close(); pool.Close(); leave(private, log) }
	directory, err := command.NewDirectory(store, time.Now)
	if err != nil {
		release()
		return nil, nil, nil, err
	}
	return command.NewHandlers(command.Options{
		Store: store, Claims: claim.NewNames(key), Directory: directory, Log: log,
	}), directory, release, nil
}

// dryRun tells of every row that no capture would take, whatever is on the log.
func dryRun(ctx context.Context, c console, source *importSource, admission command.Admission) error {
	settings := admission.Account.State
	rules := lead.Rules{Region: settings.Region, Stages: settings.Stages}
	shown := newProgress(c.err, "import, dry run")
	var done, bad uint64
	for row, err := range source.rows() {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if err := row.check(rules); err != nil {
			bad++
			fmt.Fprintf(c.out, "line %d: %s\n", row.line, printable(reason(err)))
		}
		done++
		shown.show(done, source.total, "rows")
	}
	shown.end("%d rows, %d of them bad; nothing was written", done, bad)
	if bad > 0 {
		return errRows
	}
	return nil
}

// check reads a row as an arrival. A stage that the account does not have is told as wrong: only a lead that is there
// could still have it.
func (r importRow) check(rules lead.Rules) error {
	if r.err != nil {
		return r.err
	}
	arrival, err := lead.ParseArrival(r.body, rules, lead.Client{})
	if err == nil && arrival.UnknownStatus != "" {
		return field.Errors{{Field: "status", Message: fmt.Sprintf("%q is no stage of the account", arrival.UnknownStatus)}}
	}
	return err
}

// importAll imports what the source has and tells how far it is.
func importAll(
	ctx context.Context, c console, handlers *command.Handlers, source *importSource, admission command.Admission, outcomes *outcomes,
) error {
	shown := newProgress(c.err, "import")
	var broken error // reading the file
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
	for arrived := range handlers.CaptureLeads(ctx, arrivals, outcomes.flush) {
		if err := outcomes.add(arrived); err != nil && ctx.Err() == nil {
			return fmt.Errorf("line %d: %w; run it again to go on from here", arrived.Line, err)
		}
		shown.show(outcomes.total(), source.total, "rows")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %d rows; run it again to go on from here", outcomes.total())
	}
	if broken != nil {
		return broken
	}
	shown.end("%s; each row is in %s", outcomes, outcomes.path)
	if outcomes.refused+outcomes.bad > 0 {
		return errRows
	}
	return nil
}

// arriving makes a row a capture.
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
