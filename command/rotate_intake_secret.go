package command

import (
	"context"
	"time"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore"
)

// RotateIntakeSecret is the command that replaces the secret of an intake.
type RotateIntakeSecret struct {
	Caller   Caller
	IntakeID string
	Secret   *string       // chosen by the caller; nil or empty: a random one
	Overlap  time.Duration // how long the present secret still holds
}

// IntakeSecretRotated is the answer. Only this one and that of the creation contain the secret.
type IntakeSecretRotated struct {
	Intake   intake.State
	Secret   string
	Position eventstore.Position
}

// RotateIntakeSecret gives an intake of the caller's account another secret. From the answer on, or from the end of the
// overlap, every process refuses the one before.
// The errors are intake.ErrNotFound, field.Errors and those of the store and of IntakeSecrets.
func (h *Handlers) RotateIntakeSecret(
	ctx context.Context, cmd RotateIntakeSecret,
) (answer IntakeSecretRotated, err error) {
	changed, err := h.decideIntake(ctx, cmd.Caller, cmd.IntakeID, func(
		state intake.State, now time.Time,
	) (decided decidedIntake, err error) {
		secrets, err := h.ownSecrets(ctx, cmd.Caller, cmd.IntakeID, state)
		if err != nil {
			return decided, err
		}
		rotated, after, err := state.Rotate(cmd.Caller.Account, intake.Rotation{
			Secret: cmd.Secret, Overlap: cmd.Overlap, New: h.newIntakeSecret, Now: now,
		}, secrets)
		answer.Secret = after.Secret
		return decidedIntake{rotated, &after}, err
	})
	if err != nil {
		return IntakeSecretRotated{}, err
	}
	answer.Intake, answer.Position = changed.Intake, changed.Position
	return answer, nil
}
