package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/intake"
)

// ReportIntake records one change of an intake: it fell silent or fails, an arrival ended its silence, or a capture its
// failure. Without a change it records nothing. The fact is appended at the revision of the intake that it was decided
// on, so it is recorded once, however many processes watch the intake. The errors are those of the store.
func (h *Handlers) ReportIntake(ctx context.Context, watched intake.Watched) error {
	watcher := Caller{Actor: "system:intakes"}
	_, err := h.decideIntake(ctx, watcher, watched.ID, func(
		state intake.State, at time.Time,
	) (decidedIntake, error) {
		if watched.Run != nil {
			if recovered, due := state.Recover(*watched.Run); due {
				return decidedIntake{fact: recovered}, nil
			}
			if failing, due := state.ReportFailing(*watched.Run); due {
				return decidedIntake{fact: failing}, nil
			}
			return decidedIntake{}, nil
		}
		if resumed, due := state.Resume(watched.ArrivedAt); due {
			return decidedIntake{fact: resumed}, nil
		}
		if silent, due := state.ReportSilence(watched.ArrivedAt, at); due {
			return decidedIntake{fact: silent}, nil
		}
		return decidedIntake{}, nil
	})
	return err
}
