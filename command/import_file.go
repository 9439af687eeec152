package command

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ImportActor and UndoActor are the actors of the rows of an import, and of the erasures that take it back.
const (
	ImportActor = "system:import"
	UndoActor   = "system:undo"
)

// Import is the import of one file into an account, whose events are on one stream. Its run is the request id of its
// caller.
type Import struct {
	h      *Handlers
	caller Caller
	stream string
}

// ImportUnfinishedError means that an earlier import of the same file, which read it in another way, was interrupted.
type ImportUnfinishedError struct{ RunID string }

func (e *ImportUnfinishedError) Error() string {
	return fmt.Sprintf("an import of this file was interrupted that read its columns in another way (run %s)", e.RunID)
}

// StartImport records that the import of a file begins. File and reading are digests of its content and of how it is
// read. The log has no digest of the content, by which the rows of erased persons could be found by trying: a keyed
// hash of it names the stream. The errors are *ImportUnfinishedError and those of the store.
func (h *Handlers) StartImport(ctx context.Context, caller Caller, file, reading string) (*Import, error) {
	name := h.claims.Tag(caller.Account, "import\x00"+file)
	i := &Import{h, caller.ofRecord(), event.RecordStream(hex.EncodeToString(name))}
	return i, i.append(ctx, func(before event.ImportStarted) error {
		if before.RunID != "" && before.Reading != reading {
			return &ImportUnfinishedError{before.RunID}
		}
		return nil
	}, event.ImportStarted{RunID: caller.RequestID, Reading: reading})
}

// Finish records that the import has ended.
func (i *Import) Finish(ctx context.Context, outcome event.ImportFinished) error {
	return i.append(ctx, func(event.ImportStarted) error { return nil }, outcome)
}

// UndoImport records that an import was taken back. Stream is that of its start.
func (h *Handlers) UndoImport(ctx context.Context, caller Caller, stream string, undone event.ImportUndone) error {
	i := &Import{h, caller.ofRecord(), stream}
	return i.append(ctx, func(event.ImportStarted) error { return nil }, undone)
}

// append adds an event, unless check has an error for the import of the stream that has begun and not ended.
func (i *Import) append(ctx context.Context, check func(unfinished event.ImportStarted) error, data event.Data) error {
	return i.h.transact.Do(ctx, []string{i.stream}, func(ctx context.Context) error {
		unfinished, expect, err := eventstore.Load(ctx, i.h.store, i.stream, evolveImport)
		if err != nil {
			return err
		}
		if err := check(unfinished); err != nil {
			return err
		}
		write, err := i.h.write(i.caller, i.stream, expect, i.h.timestamp(), data)
		if err != nil {
			return err
		}
		_, err = i.h.store.Append(ctx, write)
		return err
	})
}

// DeliveredLead returns the lead that an intake captured an arrival into, by the sender's id of the arrival; empty if
// it did not.
func (h *Handlers) DeliveredLead(ctx context.Context, account, intakeID, deliveryID string) (string, error) {
	name := h.claims.Stream(account, claim.Delivery, intakeID+"/"+deliveryID)
	held, _, err := eventstore.Load(ctx, h.store, name, claim.Evolve)
	if err != nil || held.Bound.Stream == "" {
		return "", err
	}
	found, _, err := eventstore.Load(ctx, h.store, held.Bound.Stream, arrival.Evolve)
	if err != nil || found.State != arrival.Captured {
		return "", err
	}
	return found.LeadID, nil
}

// IntakesOfKind returns the ids of an account's intakes of a kind.
func (h *Handlers) IntakesOfKind(ctx context.Context, account, kind string) (ids []string, err error) {
	for slot := range intake.MaxPerAccount + 1 { // slot 0 is that of demo data
		held, _, err := eventstore.Load(ctx, h.store, h.claims.Slot(account, claim.IntakeSlot, slot), claim.Evolve)
		if err != nil {
			return nil, err
		}
		if held.Holder == "" {
			continue
		}
		found, _, err := eventstore.Load(ctx, h.store, event.IntakeStream(held.Holder), intake.Evolve)
		if err != nil {
			return nil, err
		}
		if found.Settings.Kind == kind {
			ids = append(ids, held.Holder)
		}
	}
	return ids, nil
}

// evolveImport folds to the import that has begun and not ended.
func evolveImport(s event.ImportStarted, fact event.Fact) event.ImportStarted {
	switch data := fact.Data.(type) {
	case event.ImportStarted:
		return data
	case event.ImportFinished, event.ImportUndone:
		return event.ImportStarted{}
	}
	return s
}
