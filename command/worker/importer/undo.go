package importer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/worker/forget"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ErrNoRun means that an account has no import with a run.
var ErrNoRun = errors.New("the account has no such import")

// Undo takes an import back: it erases the leads that only its run made and that nothing has changed since.
type Undo struct {
	runID  string
	stream string // of its start
	leads  map[string]*importedLead
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

// FindRun reads the log after a position for what a run has appended, and for what others have changed in its leads.
// The errors are ErrNoRun and those of the log.
func FindRun(
	ctx context.Context, store eventstore.Store, account, runID string, after eventstore.Position,
) (*Undo, error) {
	u := &Undo{runID: runID, leads: map[string]*importedLead{}}
	head, err := store.Head(ctx)
	if err != nil {
		return nil, err
	}
	filter := eventstore.Filter{StreamPrefixes: []string{event.LeadPrefix, event.RecordPrefix}}
	if head > after {
		for page, err := range eventstore.ReadTo(ctx, store, after, head, filter) {
			if err != nil {
				return nil, err
			}
			for _, e := range page.Events {
				if e.Metadata.Account == account {
					u.add(e)
				}
			}
		}
	}
	if u.stream == "" {
		return nil, ErrNoRun
	}
	return u, nil
}

func (u *Undo) add(e eventstore.Recorded) {
	of := e.Metadata.RequestID == u.runID
	own := of && e.Metadata.Actor == command.ImportActor
	switch id := event.LeadID(e.Stream); {
	case e.Type == event.ImportStarted{}.EventType():
		if of {
			u.stream = e.Stream
		}
	case e.Type == event.LeadErased{}.EventType():
		if l := u.leads[id]; l != nil {
			l.erased = true
		}
	case own && e.Type == event.LeadCreated{}.EventType():
		u.leads[id] = &importedLead{}
	case own && e.Type == event.LeadMerged{}.EventType():
		if u.leads[id] == nil {
			u.leads[id] = &importedLead{before: true}
		}
	case u.leads[id] != nil:
		u.leads[id].changed, u.leads[id].by = e.At, e.Metadata.Actor
	}
}

// Made returns the leads that will be erased, in order.
func (u *Undo) Made() (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(u.leads)) {
		if l := u.leads[id]; !l.erased && l.why() == "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// Stay yields the leads that stay, in order, and why.
func (u *Undo) Stay() iter.Seq2[string, string] {
	return func(yield func(id, why string) bool) {
		for _, id := range slices.Sorted(maps.Keys(u.leads)) {
			if why := u.leads[id].why(); why != "" && !yield(id, why) {
				return
			}
		}
	}
}

// Others is how many leads of the run are not erased now: they stay, or were erased before.
func (u *Undo) Others() int { return len(u.leads) - len(u.Made()) }

// erasedAtOnce is how many leads are erased concurrently. Most of an erasure's time is waiting for the views.
const erasedAtOnce = 32

// Run erases the leads, which need running views, and records the end. By is who takes the import back. After an error
// it can be repeated.
func (u *Undo) Run(
	ctx context.Context, handlers *command.Handlers, eraser forget.Eraser, by command.Caller,
	progress func(done, total uint64),
) (event.ImportUndone, error) {
	made := u.Made()
	erasing := by
	erasing.Actor = command.UndoActor
	erasure := handlers.Erasure(erasing)
	done := make(chan struct{})
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(erasedAtOnce + 1)
	group.Go(func() error {
		for erased := range len(made) {
			select {
			case <-done:
				progress(uint64(erased)+1, uint64(len(made)))
			case <-groupCtx.Done():
				return nil
			}
		}
		return nil
	})
	for _, id := range made {
		group.Go(func() error {
			if groupCtx.Err() != nil {
				return nil // after the first error
			}
			if _, err := eraser.EraseLead(groupCtx, erasure, id); err != nil && !errors.Is(err, lead.ErrNotFound) {
				return fmt.Errorf("lead %s: %w", id, err)
			}
			select {
			case done <- struct{}{}:
			case <-groupCtx.Done():
			}
			return nil
		})
	}
	undone := event.ImportUndone{RunID: u.runID, Leads: len(made)}
	if err := group.Wait(); err != nil {
		return undone, err
	}
	if ctx.Err() != nil {
		return undone, context.Cause(ctx)
	}
	for range u.Stay() {
		undone.Stayed++
	}
	if err := handlers.UndoImport(ctx, by, u.stream, undone); err != nil {
		return undone, fmt.Errorf("the leads are erased, but the end is not recorded: %w", err)
	}
	return undone, nil
}
