package command

import (
	"context"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// DeleteIntake is the command that deletes an intake.
type DeleteIntake struct {
	Caller   Caller
	IntakeID string
}

// DeleteIntake ends an intake of the caller's account, frees its slot and destroys its secrets. Called again, for
// example because the first answer was lost, it destroys secrets that are still there. The errors are
// intake.ErrNotFound and those of the store.
func (h *Handlers) DeleteIntake(ctx context.Context, cmd DeleteIntake) (position eventstore.Position, err error) {
	if !event.ValidID(cmd.IntakeID) {
		return 0, intake.ErrNotFound
	}
	stream := event.IntakeStream(cmd.IntakeID)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := h.intakes.Load(ctx, h.store, stream)
		if err != nil {
			return err
		}
		deleted, err := state.Delete(cmd.Caller.Account)
		if err != nil {
			if state.Deleted && state.Account == cmd.Caller.Account {
				h.destroyIntakeSecrets(ctx, cmd.IntakeID)
			}
			return err
		}
		end, err := h.write(cmd.Caller, stream, expect, h.after(state.UpdatedAt), deleted)
		if err != nil {
			return err
		}
		release, err := h.releaseSlot(ctx, cmd.Caller, intakeSlots, state.Slot, cmd.IntakeID)
		if err != nil {
			return err
		}
		position, err = h.store.Append(ctx, append(release, end)...)
		return err
	})
	if h.directory != nil {
		h.directory.forgetIntake(cmd.IntakeID)
	}
	if err != nil {
		return 0, err
	}
	h.destroyIntakeSecrets(ctx, cmd.IntakeID)
	return position, nil
}
