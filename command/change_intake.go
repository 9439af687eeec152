package command

import (
	"context"
	"log/slog"
	"time"

	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// ChangeIntake is the command that changes the settings or secrets of an intake.
type ChangeIntake struct {
	Caller   Caller
	IntakeID string
	Change   intake.Update
}

// IntakeChanged is the answer: the intake as it is after the change.
type IntakeChanged struct {
	Intake   intake.State
	Position eventstore.Position
	Warnings []field.Warning // about secrets that went with a change of their target
}

// ChangeIntake decides on a change of an intake of the caller's account and appends it. From the answer on, every
// process decides on arrivals by the new settings and secrets. When nothing changes, nothing is appended. The errors
// are intake.ErrNotFound, field.Errors and those of the store and of IntakeSecrets.
func (h *Handlers) ChangeIntake(ctx context.Context, cmd ChangeIntake) (IntakeChanged, error) {
	var warnings []field.Warning
	answer, err := h.decideIntake(ctx, cmd.Caller, cmd.IntakeID, func(
		state intake.State, _ time.Time,
	) (decided decidedIntake, err error) {
		warnings = nil
		secrets, err := h.ownSecrets(ctx, cmd.Caller, cmd.IntakeID, state)
		if err != nil {
			return decided, err
		}
		changed, after, err := state.Change(cmd.Caller.Account, cmd.Change, secrets, h.privateTargets)
		if err != nil || changed == nil {
			return decided, err
		}
		decided.fact = *changed
		if after != secrets {
			decided.secrets = &after
		}
		if secrets.AccessToken != "" && after.AccessToken == "" && cmd.Change.AccessToken == nil {
			warnings = append(warnings, field.Warning{Field: "accessToken", Code: field.SecretRemoved,
				Message: "was removed, because graphUrl has changed: send it again to use it there"})
		}
		return decided, nil
	})
	answer.Warnings = warnings
	return answer, err
}

// ownSecrets returns the secrets of an intake of the caller's account.
func (h *Handlers) ownSecrets(
	ctx context.Context, caller Caller, id string, state intake.State,
) (intake.Secrets, error) {
	if _, err := state.Delete(caller.Account); err != nil { // nothing is read of another account's
		return intake.Secrets{}, err
	}
	return h.secretsOf(ctx, id, state)
}

// decidedIntake is what was decided on an intake: a fact, or none, and the secrets that it sets, if any.
type decidedIntake struct {
	fact    event.Data
	secrets *intake.Secrets
}

// decideIntake calls decide with an intake and the time, stores the secrets and appends the fact that it returns, if
// any. After a conflict it does so again. The errors are intake.ErrNotFound, those of decide and those of the store and
// of IntakeSecrets.
func (h *Handlers) decideIntake(ctx context.Context, caller Caller, id string,
	decide func(intake.State, time.Time) (decidedIntake, error)) (answer IntakeChanged, err error) {
	if !event.ValidID(id) {
		return answer, intake.ErrNotFound
	}
	stream := event.IntakeStream(id)
	err = h.transact.Do(ctx, []string{stream}, func(ctx context.Context) error {
		state, expect, err := h.intakes.Load(ctx, h.store, stream)
		if err != nil {
			return err
		}
		at := h.after(state.UpdatedAt)
		decided, err := decide(state, at)
		if err != nil {
			return err
		}
		answer = IntakeChanged{Intake: state}
		if decided.fact == nil {
			answer.Position, err = h.store.Head(ctx)
			return err
		}
		caller := caller
		caller.Account = state.Account // the fact belongs to the intake's account, whatever the caller's is
		write, err := h.write(caller, stream, expect, at, decided.fact)
		if err != nil {
			return err
		}
		set := write.Events[0].ID
		if decided.secrets != nil {
			if err := h.intakeSecrets.Put(ctx, id, set.String(), *decided.secrets); err != nil {
				return err
			}
		}
		answer.Intake = intake.Evolve(state, event.Fact{
			ID: set, Stream: stream, At: at, Metadata: caller.metadata(), Data: decided.fact,
		})
		answer.Position, err = h.store.Append(ctx, write)
		switch {
		case decided.secrets == nil:
		case err == nil:
			h.tidySecrets(ctx, id, h.intakeSecrets.DestroyBefore, set.String())
		case eventstore.Conflict(err) != nil:
			h.tidySecrets(ctx, id, h.intakeSecrets.Drop, set.String())
		}
		return err
	})
	if h.directory != nil {
		h.directory.forgetIntake(id)
	}
	return answer, err
}

// tidySecrets destroys secrets that no longer count. A failure is only logged: nothing is accepted by them, and they
// are destroyed with the next.
func (h *Handlers) tidySecrets(
	ctx context.Context, id string, destroy func(ctx context.Context, intakeID, eventID string) error, eventID string,
) {
	if err := destroy(context.WithoutCancel(ctx), id, eventID); err != nil {
		h.log.Warn("replaced secrets of an intake not destroyed", slog.String("intakeId", id), slog.Any("error", err))
	}
}
