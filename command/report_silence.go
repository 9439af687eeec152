package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/intake"
)

// ReportSilence records that an intake fell silent, or that something arrived at one that was, given its latest arrival; zero: there
// was none. It records nothing if neither is so. The fact is appended to the intake's own stream at the revision it was decided on,
// so it is there once, however many processes watch the intake. The errors are those of the store.
func (h *Handlers) ReportSilence(ctx context.Context, intakeID string, arrived time.Time) error {
	watcher := Caller{Actor: "system:silence"}
	_, err := h.decideIntake(ctx, watcher, intakeID, func(state intake.State, at time.Time) (decidedIntake, error) {
		if resumed, due := state.Resume(arrived); due {
			return decidedIntake{fact: resumed}, nil
		}
		if silent, due := state.FallSilent(arrived, at); due {
			return decidedIntake{fact: silent}, nil
		}
		return decidedIntake{}, nil
	})
	return err
}
