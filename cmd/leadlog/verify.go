package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/audit"
	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection"
	"github.com/leadlog/leadlog/projection/secret"
	"github.com/leadlog/leadlog/projection/verify"
	"github.com/leadlog/leadlog/query/report"
)

type verifyCommand struct {
	service.SealedDatabase `embed:""`

	Most     int    `default:"10" help:"Maximum number of differences and notes of each kind to print."`
	Heal     bool   `help:"Finish interrupted erasures. The service may be running."`
	ClaimKey string `env:"LEADLOG_CLAIM_KEY" placeholder:"BASE64" help:"With --heal: the HMAC key of claim names."`

	Tree         []string `type:"existingfile" placeholder:"FILE" help:"Checkpoint of the whole log or of an account's audit tree, which must begin with the events of the checkpoint. May be repeated."`
	PublicKey    string   `name:"public-key" env:"LEADLOG_TREE_PUBLIC_KEY" placeholder:"KEY" help:"Public key of the log that must have signed, as printed by leadlog tree-key. Default: that of --tree-key."`
	Head         *string  `placeholder:"FILE" help:"If the log and the views agree, also write a signed checkpoint of the whole log."`
	proofFlags   `embed:""`
	signingFlags `embed:""`
	File         string `arg:"" optional:"" type:"existingfile" help:"Report, which is computed again from the log; or export of token events as JSON lines, which is checked against each --tree without the database."`
}

// Run is leadlog verify.
func (v *verifyCommand) Run(ctx context.Context, c cli.Output) error {
	if v.given() {
		return v.checkProof(c)
	}
	if v.File != "" {
		if is, err := v.isReport(); err != nil || is {
			if err == nil {
				err = v.checkReport(ctx, c)
			}
			return err
		}
	}
	keys, err := v.validate()
	if err != nil {
		return err
	}
	signed, err := v.openCheckpoints(c)
	if err != nil {
		return err
	}
	if v.File != "" {
		return v.checkExport(c, signed)
	}
	seed, err := v.signingSeed()
	if err != nil {
		return err
	}
	service.CollectLess(0)
	h, err := v.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	found, err := v.verify(ctx, c, h, signed)
	for _, difference := range found.differences {
		fmt.Fprintln(c.Out, difference)
	}
	if err != nil {
		return err
	}
	v.note(c, found.unfinished)
	if v.Heal {
		if err := heal(ctx, c, h, keys, found.unfinished); err != nil {
			return err
		}
	}
	if len(found.differences) > 0 {
		return errDiffers
	}
	fmt.Fprintln(c.Out, "the log and the views agree")
	if v.Head == nil {
		return nil
	}
	signer, err := v.signer(ctx, seed, h.Store)
	if err != nil {
		return err
	}
	return writeCheckpoint(c, *v.Head, signer, "", found.head)
}

// validate refuses combinations of flags that exclude each other, and finds the keys that --heal needs.
func (v *verifyCommand) validate() (keys service.Keys, err error) {
	if v.Most < 1 {
		return keys, cli.Usagef("--most=%d: must be 1 or more", v.Most)
	}
	var check cli.Checker
	if service.CheckLogOrigin(&check, v.Origin); check.Err() != nil {
		return keys, check.Err()
	}
	if v.Heal {
		if keys, err = v.Keys(v.ClaimKey); err != nil {
			return keys, err
		}
	}
	switch {
	case v.File != "" && len(v.Tree) == 0:
		return keys, cli.Usagef("an export is checked with a checkpoint: verify --tree head.txt export.ndjson")
	case v.File != "" && v.Head != nil:
		return keys, cli.Usagef("--head does not apply to an export, which is checked without the log")
	}
	return keys, nil
}

// verified is the result of verifying.
type verified struct {
	differences []string
	unfinished  []verify.UnfinishedErasure
	head        tlog.Tree // of the whole log
}

func (v *verifyCommand) verify(
	ctx context.Context, c cli.Output, h *service.Stores, signed []merkle.Checkpoint,
) (found verified, err error) {
	shown := cli.NewProgress(c.Err, "verify")
	origin, err := v.origin(ctx, h.Store)
	if err != nil {
		return found, err
	}
	found.differences, err = verify.Verification{
		URL: h.URL, Pool: h.Pool, Store: h.Store.Forensic(), Sparse: h.Sparse, Signed: signed, Origin: origin,
		Limit:    v.Most,
		Progress: func(done, end eventstore.Position) { shown.Show(uint64(done), uint64(end), "positions") },
		Unerased: func(e verify.UnfinishedErasure) {
			found.unfinished = append(found.unfinished, e)
		}, Unfinished: h.Eraser().Unfinished, HasKeys: h.Store.HasKeys,
		BrokenSecrets: h.BrokenSecrets(), BrokenIntakes: h.BrokenIntakes(),
		LogHead: func(head tlog.Tree) { found.head = head },
	}.Run(ctx)
	shown.Clear()
	return found, err
}

// signingSeed returns the seed of the key that signs for --head. A bad key and a file that cannot be written are
// refused here, before the log is read.
func (v *verifyCommand) signingSeed() ([]byte, error) {
	if v.Head == nil {
		return nil, nil
	}
	var check cli.Checker
	if check.File("--head", *v.Head); check.Err() != nil {
		return nil, check.Err()
	}
	return v.TreeSeed(v.TreeKey)
}

var errDiffers = errors.New("the log and the views differ")

// isReport reports whether the file is a report, and not an export.
func (v *verifyCommand) isReport() (bool, error) {
	file, err := os.Open(v.File)
	if err != nil {
		return false, err
	}
	defer file.Close()
	return report.Is(file)
}

var errNotThatReport = errors.New("the log yields a different report")

// checkReport makes a report again from the log.
func (v *verifyCommand) checkReport(ctx context.Context, c cli.Output) error {
	if len(v.Tree) > 0 || v.Head != nil || v.Heal {
		return cli.Usagef("%s is a report, and must be the only argument: verify %[1]s", v.File)
	}
	text, err := os.ReadFile(v.File)
	if err != nil {
		return err
	}
	f, err := report.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", v.File, err)
	}
	service.CollectLess(0)
	h, err := v.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	shown := cli.NewProgress(c.Err, "verify")
	difference, err := reading(h, shown).Verify(ctx, f)
	shown.Clear()
	if err != nil {
		return err
	}
	if difference != "" {
		fmt.Fprintln(c.Out, difference)
		return errNotThatReport
	}
	fmt.Fprintf(c.Out, "account %s: the log gives this report, as of position %d\n", f.Account, f.AsOf)
	return nil
}

var errNotProven = errors.New("the export is not what the checkpoint was signed for")

// checkExport compares an export of token events with checkpoints. It needs no database.
func (v *verifyCommand) checkExport(c cli.Output, signed []merkle.Checkpoint) error {
	for i, one := range signed {
		if one.Account == "" {
			return cli.Usagef("%s: is a checkpoint of the whole log, which is checked on its database: verify "+
				"--tree %[1]s", v.Tree[i])
		}
		if one.Origin != signed[0].Origin {
			return fmt.Errorf("%s: is of %s, and %s of %s", v.Tree[i], one.Origin, v.Tree[0], signed[0].Origin)
		}
	}
	file, err := os.Open(v.File)
	if err != nil {
		return err
	}
	defer file.Close()
	shown := cli.NewProgress(c.Err, "verify export")
	findings, events, err := audit.Check{
		Checkpoints: signed, Limit: v.Most,
		Progress: func(events, size int64) { shown.Show(uint64(events), uint64(size), "events") },
	}.Export(file)
	shown.Clear()
	for _, finding := range findings {
		fmt.Fprintln(c.Out, finding)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", v.File, err)
	}
	if len(findings) > 0 {
		return errNotProven
	}
	fmt.Fprintf(c.Out, "account %s: all %d token events are present, in order, as signed\n", signed[0].Account, events)
	return nil
}

// note prints which erasures are not finished. These are no differences.
func (v *verifyCommand) note(c cli.Output, unfinished []verify.UnfinishedErasure) {
	for _, e := range unfinished[:min(v.Most, len(unfinished))] {
		fmt.Fprintln(c.Out, "note:", e.Message)
	}
	if more := len(unfinished) - v.Most; more > 0 {
		fmt.Fprintf(c.Out, "note: %d more like these\n", more)
	}
	if len(unfinished) > 0 && !v.Heal {
		fmt.Fprintln(c.Out,
			"note: an erasure in progress looks the same; leadlog verify --heal finishes those left by "+
				"killed processes")
	}
}

// heal finishes the unfinished erasures, and prints each. It refuses a claim key that is not the log's.
func heal(
	ctx context.Context, c cli.Output, h *service.Stores, keys service.Keys, unfinished []verify.UnfinishedErasure,
) error {
	if err := projection.CheckLog(ctx, h.Pool, h.Store); err != nil {
		return err
	}
	if len(unfinished) == 0 {
		return nil
	}
	handlers := command.NewHandlers(command.Options{
		Store: h.Store, Claims: claim.NewNames(keys.Claim),
		Secrets: secret.Endpoints{Store: secret.New(h.Pool, h.Store.Box)}, Log: h.Log,
	})
	if err := handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	for _, e := range unfinished {
		if err := finishErasure(ctx, c, h, handlers, e); err != nil {
			return err
		}
	}
	return nil
}

// finishErasure completes the erasure of a lead, a visitor or an arrival that a process began and did not finish.
func finishErasure(
	ctx context.Context, c cli.Output, h *service.Stores, handlers *command.Handlers, e verify.UnfinishedErasure,
) error {
	stop, err := h.RunViews(ctx)
	if err != nil {
		return err
	}
	defer stop()
	caller := command.Caller{Account: e.Account, Actor: "system:claims"}
	if e.Visitor != "" {
		if _, err := h.Eraser().ForgetVisitor(ctx, handlers.Erasure(caller), e.Visitor, true); err != nil {
			return fmt.Errorf("forget %s: %w", e.Visitor, err)
		}
		fmt.Fprintf(c.Out, "healed: %s: its erasure is finished\n", e.Visitor)
		return nil
	}
	if e.Arrival != "" {
		if err := h.Eraser().ExpireArrival(ctx, handlers.Erasure(caller), e.Arrival); err != nil {
			return fmt.Errorf("delete arrival %s: %w", e.Arrival, err)
		}
		fmt.Fprintf(c.Out, "healed: arrival-%s: its erasure is finished\n", e.Arrival)
		return nil
	}
	if _, err := h.Eraser().EraseLead(ctx, handlers.Erasure(caller), e.Lead); err != nil {
		return fmt.Errorf("erase lead %s: %w", e.Lead, err)
	}
	fmt.Fprintf(c.Out, "healed: lead-%s: its erasure is finished\n", e.Lead)
	return nil
}
