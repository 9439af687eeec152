package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/intake"
)

// ReportSilence records that an intake fell silent, or that an arrival ended its silence. Arrived is the time of its
// latest arrival, zero if there was none. Without a change it records nothing. The fact is appended at the revision of
// the intake that it was decided on, so it is recorded once, however many processes watch the intake. The errors are
// those of the store.
func (h *Handlers) ReportSilence(ctx context.Context, intakeID string, arrived time.Time) error {
	watcher := Caller{Actor: "system:silence"}
	_, err := h.decideIntake(ctx, watcher, intakeID, func(state intake.State, at time.Time) (decidedIntake, error) {
		if resumed, due := state.Resume(arrived); due {
			return decidedIntake{fact: resumed}, nil
		}
		if silent, due := state.ReportSilence(arrived, at); due {
			return decidedIntake{fact: silent}, nil
		}
		return decidedIntake{}, nil
	})
	return err
}
