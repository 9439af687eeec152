package command

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
)

// IntakeSecrets stores the secrets of intakes, sealed, outside of the log. Each set is stored under the id of the event
// that sets it, before that event is appended.
type IntakeSecrets interface {
	// Put stores the secrets that an event sets.
	Put(ctx context.Context, intakeID, eventID string, secrets intake.Secrets) error
	// Get returns the secrets that an event set. The error wraps intake.ErrNoSecrets if they are not there or cannot be
	// opened.
	Get(ctx context.Context, intakeID, eventID string) (intake.Secrets, error)
	// DestroyBefore destroys the secrets of an intake that were stored before those of an event.
	DestroyBefore(ctx context.Context, intakeID, eventID string) error
	// Drop destroys the secrets of an event that was not appended.
	Drop(ctx context.Context, intakeID, eventID string) error
	// Destroy destroys all secrets of an intake. It is not an error if there are none.
	Destroy(ctx context.Context, intakeID string) error
}

// CreateIntake is the command that creates an intake of the caller's account.
type CreateIntake struct {
	Caller Caller
	Intake intake.Update // nil fields get their defaults
	// Demo reports whether the intake is that of demo data. An account has at most one: if it exists, the answer has
	// only its ID.
	Demo bool
}

// IntakeCreated is the answer. Only this one and that of a rotation contain the secret.
type IntakeCreated struct {
	ID       string
	Intake   intake.State
	Secret   string // that was made; empty if the caller gave one, or none is needed
	Position eventstore.Position
}

// CreateIntake creates an intake and takes a free slot of the account for it, in one append. The secrets are stored
// before that, because secrets without an intake do no harm. The errors are field.Errors, ErrFeatureDisabled,
// intake.ErrLimit and those of the store and of IntakeSecrets.
func (h *Handlers) CreateIntake(ctx context.Context, cmd CreateIntake) (answer IntakeCreated, err error) {
	created, secrets, made, err := intake.Create(cmd.Intake, h.newIntakeSecret, h.privateTargets)
	if err != nil {
		return answer, err
	}
	created.Demo = cmd.Demo
	// creators of one account queue by this name
	queue := []string{h.claims.Slot(cmd.Caller.Account, claim.IntakeSlot, 0)}
	err = h.transact.Do(ctx, queue, func(ctx context.Context) (err error) {
		answer, err = h.createIntake(ctx, cmd.Caller, created, secrets)
		return err
	})
	if made && err == nil {
		answer.Secret = secrets.Secret
	}
	return answer, err
}

// createIntake makes one attempt, with an id of its own.
func (h *Handlers) createIntake(
	ctx context.Context, caller Caller, created event.IntakeCreated, secrets intake.Secrets,
) (IntakeCreated, error) {
	plan, err := h.directory.ConfirmAccount(ctx, caller.Account)
	if err != nil {
		return IntakeCreated{}, err
	}
	if !plan.State.Has(account.FeatureAPI) {
		return IntakeCreated{}, ErrFeatureDisabled
	}
	free, err := h.freeIntakeSlot(ctx, caller.Account, created.Demo)
	if err != nil {
		return IntakeCreated{}, err
	}
	if free.holder != "" {
		return IntakeCreated{ID: free.holder}, nil
	}
	id, err := h.newID()
	if err != nil {
		return IntakeCreated{}, err
	}
	answer := IntakeCreated{ID: id.String()}
	take, err := h.claimSlot(caller, intakeSlots, free, answer.ID)
	if err != nil {
		return IntakeCreated{}, err
	}
	created.Slot = free.number
	at := h.timestamp()
	stream := event.IntakeStream(answer.ID)
	first, err := h.write(caller, stream, eventstore.NoStream, at, created)
	if err != nil {
		return IntakeCreated{}, err
	}
	set := first.Events[0].ID
	answer.Intake = intake.Evolve(intake.State{}, event.Fact{
		ID: set, Stream: stream, At: at, Metadata: caller.metadata(), Data: created,
	})
	if answer.Intake.NeedsSecrets() {
		if err := h.intakeSecrets.Put(ctx, answer.ID, set.String(), secrets); err != nil {
			return IntakeCreated{}, err
		}
	}
	if answer.Position, err = h.store.Append(ctx, plan.Check(), take, first); eventstore.Conflict(err) != nil {
		h.destroyIntakeSecrets(ctx, answer.ID)
	}
	return answer, err
}

// freeIntakeSlot returns a slot for a new intake. That of demo data is always slot 0, which another may hold.
func (h *Handlers) freeIntakeSlot(ctx context.Context, account string, demo bool) (slot, error) {
	if !demo {
		return h.free(ctx, intakeSlots, account)
	}
	read, err := h.look(ctx, intakeSlots, account, 0, 1)
	return read[0], err
}

func (h *Handlers) newIntakeSecret() (string, error) {
	key := make([]byte, secretBytes)
	if _, err := io.ReadFull(h.random, key); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(key), nil
}

// destroyIntakeSecrets destroys the secrets of an intake that is gone. A failure is only logged: nothing is accepted by
// them.
func (h *Handlers) destroyIntakeSecrets(ctx context.Context, id string) {
	if err := h.intakeSecrets.Destroy(context.WithoutCancel(ctx), id); err != nil {
		h.log.Warn("secrets of a deleted intake not destroyed", slog.String("intakeId", id), slog.Any("error", err))
	}
}

var intakeSlots = slots{kind: claim.IntakeSlot, count: intake.MaxPerAccount, full: intake.ErrLimit}

// intakeFolds are the rules by which intakes are folded. The stream of one whose silences are short grows long.
var intakeFolds = eventstore.FoldRules[intake.State]{
	Evolve:    intake.Evolve,
	Cacheable: func(intake.State) bool { return true }, // it contains no personal data
	Long:      128, Memory: 1 << 20,
}

// secretsOf returns an intake's secrets. None are returned when they are lost, for example after a restore of an older
// backup, so that its owner can set others.
func (h *Handlers) secretsOf(ctx context.Context, id string, state intake.State) (intake.Secrets, error) {
	if !state.NeedsSecrets() {
		return intake.Secrets{}, nil
	}
	secrets, err := h.intakeSecrets.Get(ctx, id, state.SecretID)
	if errors.Is(err, intake.ErrNoSecrets) {
		h.log.Warn("the secrets of an intake are lost", slog.String("intakeId", id), slog.Any("error", err))
		return intake.Secrets{}, nil
	}
	return secrets, err
}
