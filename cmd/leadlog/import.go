package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/term"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/importer"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/contact"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
	"github.com/leadlog/leadlog/projection"
)

type importCommand struct {
	service.SealedDatabase `embed:""`

	Account       string `required:"" placeholder:"ID" help:"Account that the leads are for."`
	OnDuplicate   string `enum:"refuse,merge" default:"refuse" placeholder:"WHAT" help:"What happens to a row of a person whom an earlier import or another list has brought: refuse or merge."`
	Undo          string `placeholder:"RUN" help:"Take back an import, by the run that it printed: erase the leads that only it made and that were not changed since."`
	Yes           bool   `help:"Do not ask before the first row, and import although columns with contacts become custom fields."`
	DryRun        bool   `help:"Print which rows would be refused, and why, and write nothing."`
	importer.File `embed:""`
	Outcome       string `placeholder:"FILE" help:"Where to write the outcome of each row. Default: FILE.outcome.csv in the same directory."`
	ClaimKey      string `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"32 bytes: the HMAC key of claim names, the same as that of the service."`
}

// Run is leadlog import. Rows are processed like captures over HTTP, without the rate limit.
func (i *importCommand) Run(ctx context.Context, c cli.Output) error {
	if i.Undo != "" {
		return i.undo(ctx, c)
	}
	source, err := i.File.Open()
	if err != nil {
		return err
	}
	defer source.Close()
	outcome := cmp.Or(i.Outcome, i.Path+".outcome.csv")
	if source.Is(outcome) {
		return cli.Usagef("--outcome=%q: must be another file than the one to import, which it would overwrite",
			outcome)
	}
	handlers, directory, stores, err := i.wire(ctx, c)
	if err != nil {
		return err
	}
	defer stores.Close()
	caller := command.Caller{
		Account: i.Account, Actor: command.ImportActor, Credential: command.ImportActor,
		RequestID: ulid.Make().String(), ReadsLeads: true,
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
	rules := lead.RulesOf(admission.Account.State, contact.File)
	if err := source.Survey(c.Err, rules, time.Now(), i.Yes); err != nil {
		return err
	}
	target := importer.Target{Handlers: handlers, Admission: admission, Merge: i.OnDuplicate == "merge"}
	if kind := source.Provider(); kind != "" {
		if target.Intakes, err = handlers.IntakesOfKind(ctx, i.Account, kind); err != nil {
			return err
		}
	}
	if i.DryRun {
		return importer.Run(ctx, c.Err, source, target, importer.NewDryRun(c.Out))
	}
	if err := i.confirm(ctx, c); err != nil {
		return err
	}
	outcomes, err := importer.CreateOutcomes(outcome)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "run %s (to take it back: leadlog import --undo %[1]s --account %s)\n",
		caller.RequestID, i.Account)
	err = importer.Run(ctx, c.Err, source, target, outcomes)
	stores.AnalyzeLog(ctx, eventsOfRow*int64(outcomes.Rows()))
	return errors.Join(err, outcomes.Close())
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

// eventsOfRow is how many events a row that creates a lead with phone and email appends, with its claims.
const eventsOfRow = 4

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
