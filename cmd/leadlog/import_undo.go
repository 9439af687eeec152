package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
	"github.com/leadlog/leadlog/cmd/leadlog/service"
	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection"
)

// undo is leadlog import --undo. It erases the leads that only the run made and that nothing has changed since, as
// forget does.
func (i *importCommand) undo(ctx context.Context, c cli.Output) error {
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
	handlers := command.NewHandlers(command.Options{Store: h.Store, Claims: claim.NewNames(keys.Claim), Log: h.Log})
	if err := handlers.FixClaimKey(ctx); err != nil {
		return err
	}
	run, err := i.find(ctx, h.Store)
	if err != nil {
		return err
	}
	if run.started == "" {
		return cli.Usagef("account %s has no import with the run %s", i.Account, i.Undo)
	}
	made := run.made()
	fmt.Fprintf(c.Err, "run %s made %d leads that nothing has changed since; %d others stay\n",
		i.Undo, len(made), len(run.leads)-len(made))
	if err := i.confirmUndo(ctx, c); err != nil {
		return err
	}
	return i.takeBack(ctx, c, h, handlers, run, made)
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

// erasedAtOnce is how many leads are erased concurrently. Most of an erasure's time is waiting for the views.
const erasedAtOnce = 32

// takeBack erases the leads, prints the others, and records the end.
func (i *importCommand) takeBack(
	ctx context.Context, c cli.Output, h *service.Stores, handlers *command.Handlers, run importRun, made []string,
) error {
	stop, err := h.RunViews(ctx)
	if err != nil {
		return err
	}
	defer stop()
	caller := command.Caller{Account: i.Account, Actor: command.UndoActor}
	erasure, eraser := handlers.Erasure(caller), h.Eraser()
	shown := cli.NewProgress(c.Err, "undo")
	done := make(chan struct{})
	erasing, erasingCtx := errgroup.WithContext(ctx)
	erasing.SetLimit(erasedAtOnce + 1)
	erasing.Go(func() error {
		for erased := range len(made) {
			select {
			case <-done:
				shown.Show(uint64(erased)+1, uint64(len(made)), "leads")
			case <-erasingCtx.Done():
				return nil
			}
		}
		return nil
	})
	for _, id := range made {
		erasing.Go(func() error {
			if erasingCtx.Err() != nil {
				return nil // after the first error
			}
			if _, err := eraser.EraseLead(erasingCtx, erasure, id); err != nil && !errors.Is(err, lead.ErrNotFound) {
				return fmt.Errorf("lead %s: %w; run it again for those that are not erased", id, err)
			}
			select {
			case done <- struct{}{}:
			case <-erasingCtx.Done():
			}
			return nil
		})
	}
	if err := erasing.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w; run it again for the leads that are not erased", ctx.Err())
	}
	erased := len(made)
	kept := 0
	for _, id := range slices.Sorted(maps.Keys(run.leads)) {
		if why := run.leads[id].why(); why != "" {
			kept++
			fmt.Fprintf(c.Out, "%s %s\n", id, why)
		}
	}
	undone := event.ImportUndone{RunID: i.Undo, Leads: erased, Stayed: kept}
	if err := handlers.UndoImport(ctx, caller, run.started, undone); err != nil {
		return fmt.Errorf("the leads are erased, but the end is not recorded: %w; run it again", err)
	}
	shown.End("%d leads erased, %d stay", erased, kept)
	return nil
}

// importRun is what the log has of a run.
type importRun struct {
	started string // the stream of its start
	leads   map[string]*importedLead
}

// importedLead is a lead that a run has made or merged into.
type importedLead struct {
	before  bool // it was there before the run
	erased  bool
	changed time.Time // by others since; zero: never
	by      string    // who changed it last
}

// why returns why the lead stays; empty: it does not.
func (l importedLead) why() string {
	switch {
	case l.erased:
		return ""
	case l.before:
		return "was there before the import"
	case !l.changed.IsZero():
		return "was changed by " + l.by + " at " + l.changed.UTC().Format(time.RFC3339)
	}
	return ""
}

// made returns the leads that only the run made, in order.
func (r importRun) made() (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(r.leads)) {
		if l := r.leads[id]; !l.erased && l.why() == "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// find reads the log for what a run has appended, and for what others have changed in its leads.
func (i *importCommand) find(ctx context.Context, store eventstore.Store) (importRun, error) {
	run := importRun{leads: map[string]*importedLead{}}
	head, err := store.Head(ctx)
	if err != nil || head == 0 {
		return run, err
	}
	filter := eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix, event.RecordPrefix}}
	for page, err := range eventstore.ReadTo(ctx, store, 0, head, filter) {
		if err != nil {
			return run, err
		}
		for _, e := range page.Events {
			if e.Metadata.Account == i.Account {
				run.add(e, i.Undo)
			}
		}
	}
	return run, nil
}

func (r *importRun) add(e eventstore.Recorded, runID string) {
	own := e.Metadata.RequestID == runID && e.Metadata.Actor == command.ImportActor
	switch id := event.LeadID(e.Stream); {
	case e.Type == event.ImportStarted{}.EventType():
		if own {
			r.started = e.Stream
		}
	case e.Type == event.LeadErased{}.EventType():
		if l := r.leads[id]; l != nil {
			l.erased = true
		}
	case own && e.Type == event.LeadCreated{}.EventType():
		r.leads[id] = &importedLead{}
	case own && e.Type == event.LeadMerged{}.EventType():
		if r.leads[id] == nil {
			r.leads[id] = &importedLead{before: true}
		}
	case r.leads[id] != nil:
		r.leads[id].changed, r.leads[id].by = e.At, e.Metadata.Actor
	}
}
