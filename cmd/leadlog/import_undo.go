package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/term"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/worker/importer"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/draft"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

// undo is leadlog import --undo.
func (i *importCommand) undo(ctx context.Context, c cli.Output) error {
	if err := i.onlyUndo(); err != nil {
		return err
	}
	keys, err := i.Keys(i.ClaimKey)
	if err != nil {
		return err
	}
	if i.Path != "" || !event.ValidID(i.Undo) {
		return cli.Usagef("--undo=%q: must be the run of an import, as it was printed, without a file", i.Undo)
	}
	h, err := i.OpenStores(ctx, c)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := projection.CheckLog(ctx, h.Pool, h.Store); err != nil {
		return err
	}
	var target eventstore.Store = h.Store
	if i.DryRun {
		target = draft.On(h.Store)
	}
	handlers := command.NewHandlers(command.Options{Store: target, Claims: claim.NewNames(keys.Claim), Log: h.Log})
	if err := handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	found, err := importer.FindRun(ctx, h.Store, i.Account, i.Undo, 0)
	if errors.Is(err, importer.ErrNoRun) {
		return cli.Usagef("account %s has no import with the run %s", i.Account, i.Undo)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "run %s made %d leads that nothing has changed since; %d others stay\n",
		i.Undo, len(found.Made()), found.Others())
	if i.DryRun {
		fmt.Fprintln(c.Err, "nothing was written")
		printStay(c, found)
		return nil
	}
	if err := i.confirmUndo(ctx, c); err != nil {
		return err
	}
	return i.undoRun(ctx, c, h, handlers, found)
}

// onlyUndo refuses the flags that say how a file is imported.
func (i *importCommand) onlyUndo() error {
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--outcome", i.Outcome != ""}, {"--map", len(i.Map) > 0}, {"--keep", len(i.Keep) > 0}, {"--at", i.At != ""},
		{"--format", i.Format != ""}, {"--delimiter", i.Delimiter != ""}, {"--skip", i.Skip != 0},
		{"--encoding", i.Encoding != ""}, {"--on-duplicate", i.OnDuplicate != "refuse"},
	} {
		if flag.given {
			return cli.Usagef("%s has no meaning with --undo", flag.name)
		}
	}
	return nil
}

func (i *importCommand) confirmUndo(ctx context.Context, c cli.Output) error {
	if i.Yes {
		return nil
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return cli.Usagef("this cannot be undone, and stdin is no terminal to confirm it on: add --yes")
	}
	fmt.Fprint(c.Err, "These leads will be erased. The file can be imported again. Type yes to continue: ")
	return confirmed(ctx, os.Stdin)
}

// undoRun erases the leads, and prints the others.
func (i *importCommand) undoRun(
	ctx context.Context, c cli.Output, h *service.Stores, handlers *command.Handlers, found *importer.Undo,
) error {
	stop, err := h.RunViews(ctx)
	if err != nil {
		return err
	}
	defer stop()
	shown := cli.NewProgress(c.Err, "undo")
	by := command.Caller{Account: i.Account, Actor: command.UndoActor}
	undone, err := found.Run(ctx, handlers, h.Eraser(), by, func(done, total uint64) {
		shown.Show(done, total, "leads")
	})
	if err != nil {
		return fmt.Errorf("%w; run it again for the leads that are not erased", err)
	}
	printStay(c, found)
	shown.End("%d leads erased, %d stay", undone.Leads, undone.Stayed)
	return nil
}

func printStay(c cli.Output, found *importer.Undo) {
	for id, why := range found.Stay() {
		fmt.Fprintf(c.Out, "%s %s\n", id, why)
	}
}
