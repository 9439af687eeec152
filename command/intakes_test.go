package command_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/claim"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/eventstore/storetest"
)

// intakeSecrets is an in-memory store of secrets, in order of Put.
type intakeSecrets struct {
	mu   sync.Mutex
	sets []storedSet
}

type storedSet struct {
	intakeID, eventID string
	secrets           intake.Secrets
}

func (s *intakeSecrets) Put(_ context.Context, intakeID, eventID string, secrets intake.Secrets) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets = append(s.sets, storedSet{intakeID, eventID, secrets})
	return nil
}

func (s *intakeSecrets) Get(_ context.Context, intakeID, eventID string) (intake.Secrets, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, set := range s.sets {
		if set.intakeID == intakeID && set.eventID == eventID {
			return set.secrets, nil
		}
	}
	return intake.Secrets{}, intake.ErrNoSecrets
}

func (s *intakeSecrets) remove(match func(i int, set storedSet) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var remaining []storedSet
	for i, set := range s.sets {
		if !match(i, set) {
			remaining = append(remaining, set)
		}
	}
	s.sets = remaining
	return nil
}

func (s *intakeSecrets) DestroyBefore(_ context.Context, intakeID, eventID string) error {
	of := func(set storedSet) bool { return set.eventID == eventID }
	return s.remove(func(i int, set storedSet) bool {
		return set.intakeID == intakeID && slices.ContainsFunc(s.sets[i+1:], of)
	})
}

func (s *intakeSecrets) Drop(_ context.Context, intakeID, eventID string) error {
	return s.remove(func(_ int, set storedSet) bool { return set.intakeID == intakeID && set.eventID == eventID })
}

func (s *intakeSecrets) Destroy(_ context.Context, intakeID string) error {
	return s.remove(func(_ int, set storedSet) bool { return set.intakeID == intakeID })
}

func (s *intakeSecrets) of(intakeID string) (sets []intake.Secrets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, set := range s.sets {
		if set.intakeID == intakeID {
			sets = append(sets, set.secrets)
		}
	}
	return sets
}

// intakeWorld is a log and the secrets of intakes, which any number of processes share.
type intakeWorld struct {
	log     eventstore.Store
	secrets *intakeSecrets
	now     func() time.Time
}

func newIntakeWorld(t *testing.T) (intakeWorld, process) {
	t.Helper()
	w := intakeWorld{log: storetest.Memory(), secrets: &intakeSecrets{}, now: time.Now}
	p := w.process()
	p.provision(t)
	return w, p
}

func (w intakeWorld) process() process {
	directory := command.NewDirectory(w.log, w.now)
	directory.ServeIntakes(w.secrets)
	return process{store: w.log, directory: directory, Handlers: command.NewHandlers(command.Options{
		Store: w.log, Claims: claim.NewNames(claimKey()), Directory: directory, IntakeSecrets: w.secrets, Log: quiet(),
		Now: w.now,
	})}
}

func (p process) createIntake(t *testing.T, c intake.Update) command.IntakeCreated {
	t.Helper()
	created, err := p.CreateIntake(t.Context(), command.CreateIntake{Caller: owner, Intake: c})
	require.NoError(t, err)
	return created
}

func typeform() intake.Update { return intake.Update{Name: new("Survey"), Kind: new(intake.Typeform)} }

func TestIntake_OldSecretRefusedEverywhere(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	other := w.process()
	created := p.createIntake(t, typeform())
	require.NotEmpty(t, created.Secret)
	cached, err := other.directory.Intake(t.Context(), created.ID)
	require.NoError(t, err)
	require.Equal(t, created.Secret, cached.Secrets.Secret)
	_, err = w.log.Append(t.Context(), cached.Check())
	require.NoError(t, err)

	rotated, err := p.RotateIntakeSecret(t.Context(), command.RotateIntakeSecret{Caller: owner, IntakeID: created.ID})
	require.NoError(t, err)
	require.NotEqual(t, created.Secret, rotated.Secret)
	_, err = w.log.Append(t.Context(), cached.Check())
	require.NotNil(t, eventstore.Conflict(err), "the cache of another process is stale after the response")
	fresh, err := other.directory.ConfirmIntake(t.Context(), created.ID)
	require.NoError(t, err)
	require.Equal(t, rotated.Secret, fresh.Secrets.Secret)
	require.Equal(t, []intake.Secrets{{Secret: rotated.Secret}}, w.secrets.of(created.ID), "the old one is destroyed")
}

func TestIntake_NotFoundAfterEnd(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	other := w.process()
	for name, end := range map[string]func(id string) error{
		"deleted": func(id string) error {
			_, err := p.DeleteIntake(t.Context(), command.DeleteIntake{Caller: owner, IntakeID: id})
			return err
		},
	} {
		created := p.createIntake(t, typeform())
		cached, err := other.directory.Intake(t.Context(), created.ID)
		require.NoError(t, err)
		require.NoError(t, end(created.ID))
		_, err = p.directory.Intake(t.Context(), created.ID)
		require.ErrorIs(t, err, intake.ErrNotFound, name)
		_, err = w.log.Append(t.Context(), cached.Check())
		require.NotNil(t, eventstore.Conflict(err), name)
		_, err = other.directory.ConfirmIntake(t.Context(), created.ID)
		require.ErrorIs(t, err, intake.ErrNotFound, name)
	}
	_, err := p.directory.Intake(t.Context(), "nonsense")
	require.ErrorIs(t, err, intake.ErrNotFound)
}

func TestIntake_DeletionDestroysSecrets(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	created := p.createIntake(t, typeform())
	_, err := p.DeleteIntake(t.Context(), command.DeleteIntake{
		Caller: command.Caller{Account: "globex"}, IntakeID: created.ID,
	})
	require.ErrorIs(t, err, intake.ErrNotFound)
	require.NotEmpty(t, w.secrets.of(created.ID))
	_, err = p.DeleteIntake(t.Context(), command.DeleteIntake{Caller: owner, IntakeID: created.ID})
	require.NoError(t, err)
	require.Empty(t, w.secrets.of(created.ID))

	require.NoError(t, w.secrets.Put(t.Context(), created.ID, "left", intake.Secrets{
		Secret: "left by a killed process",
	}))
	_, err = p.DeleteIntake(t.Context(), command.DeleteIntake{Caller: owner, IntakeID: created.ID})
	require.ErrorIs(t, err, intake.ErrNotFound)
	require.Empty(t, w.secrets.of(created.ID))
}

func TestIntake_ChangeAppendsOnlyDifferences(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	created := p.createIntake(t, typeform())
	change := func(c intake.Update) command.IntakeChanged {
		changed, err := p.ChangeIntake(t.Context(), command.ChangeIntake{
			Caller: owner, IntakeID: created.ID, Change: c,
		})
		require.NoError(t, err)
		return changed
	}
	same := change(intake.Update{Name: new("Survey"), Secret: new(created.Secret)})
	require.Equal(t, created.Position, same.Position)
	renamed := change(intake.Update{Name: new("Poll")})
	require.Greater(t, renamed.Position, same.Position)
	require.Equal(t, created.Intake.SecretID, renamed.Intake.SecretID)
	given := change(intake.Update{Secret: new("theirs")})
	require.NotEqual(t, created.Intake.SecretID, given.Intake.SecretID)
	require.Equal(t, []intake.Secrets{{Secret: "theirs"}}, w.secrets.of(created.ID))
}

func TestIntake_LogHasNoSecrets(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	created := p.createIntake(t, intake.Update{
		Name: new("Ads"), Kind: new(intake.MetaLeadAds), AppSecret: new("hunter2"), VerifyToken: new("hunter2"),
		AccessToken: new("hunter2"),
	})
	_, err := p.ChangeIntake(t.Context(), command.ChangeIntake{
		Caller: owner, IntakeID: created.ID, Change: intake.Update{AccessToken: new("hunter22")},
	})
	require.NoError(t, err)
	for _, stream := range []string{event.IntakeStream(created.ID)} {
		for recorded, err := range w.log.Read(t.Context(), stream, 0) {
			require.NoError(t, err)
			require.False(t, strings.Contains(string(recorded.Data), "hunter"), "%s", recorded.Type)
		}
	}
}

func TestIntake_LostSecrets(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	created := p.createIntake(t, typeform())
	require.NoError(t, w.secrets.Destroy(t.Context(), created.ID))
	_, err := w.process().directory.Intake(t.Context(), created.ID)
	require.ErrorIs(t, err, intake.ErrNoSecrets)
	_, err = p.ChangeIntake(t.Context(), command.ChangeIntake{
		Caller: owner, IntakeID: created.ID, Change: intake.Update{Name: new("Poll")},
	})
	require.NoError(t, err)
	rotated, err := p.RotateIntakeSecret(t.Context(), command.RotateIntakeSecret{Caller: owner, IntakeID: created.ID})
	require.NoError(t, err)
	found, err := p.directory.Intake(t.Context(), created.ID)
	require.NoError(t, err)
	require.Equal(t, rotated.Secret, found.Secrets.Secret)
}

// A form has no secret that could be rotated.
func TestIntake_FormNeedsNoSecrets(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	created := p.createIntake(t, intake.Update{Name: new("Form"), Kind: new(intake.Form)})
	require.NoError(t, w.secrets.Destroy(t.Context(), created.ID))
	_, err := w.process().directory.Intake(t.Context(), created.ID)
	require.NoError(t, err)

	change := func(challenge intake.Challenge) {
		t.Helper()
		_, err := p.ChangeIntake(t.Context(), command.ChangeIntake{
			Caller: owner, IntakeID: created.ID, Change: intake.Update{Challenge: &challenge},
		})
		require.NoError(t, err)
	}
	change(intake.Challenge{Provider: "turnstile", Secret: "hunter2"})
	found, err := p.directory.Intake(t.Context(), created.ID)
	require.NoError(t, err)
	require.Equal(t, "hunter2", found.Secrets.Challenge)
	require.NoError(t, w.secrets.Destroy(t.Context(), created.ID))
	_, err = w.process().directory.Intake(t.Context(), created.ID)
	require.ErrorIs(t, err, intake.ErrNoSecrets)
	change(intake.Challenge{Provider: "turnstile", Secret: "hunter22"})
	found, err = w.process().directory.Intake(t.Context(), created.ID)
	require.NoError(t, err)
	require.Equal(t, "hunter22", found.Secrets.Challenge)
	change(intake.Challenge{})
	require.NoError(t, w.secrets.Destroy(t.Context(), created.ID))
	_, err = w.process().directory.Intake(t.Context(), created.ID)
	require.NoError(t, err)
}

func TestIntake_ConcurrentRotations(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	created := p.createIntake(t, typeform())
	var rotations errgroup.Group
	for range 8 {
		other := w.process()
		rotations.Go(func() error {
			_, err := other.RotateIntakeSecret(t.Context(), command.RotateIntakeSecret{
				Caller: owner, IntakeID: created.ID,
			})
			return err
		})
	}
	require.NoError(t, rotations.Wait())
	found, err := w.process().directory.Intake(t.Context(), created.ID)
	require.NoError(t, err)
	require.Equal(t, []intake.Secrets{found.Secrets}, w.secrets.of(created.ID),
		"only the secrets of the last rotation remain")
}

func TestIntake_Limit(t *testing.T) {
	t.Parallel()
	_, p := newIntakeWorld(t)
	first := p.createIntake(t, typeform())
	for range intake.MaxPerAccount - 1 {
		p.createIntake(t, typeform())
	}
	_, err := p.CreateIntake(t.Context(), command.CreateIntake{Caller: owner, Intake: typeform()})
	require.ErrorIs(t, err, intake.ErrLimit)
	_, err = p.DeleteIntake(t.Context(), command.DeleteIntake{Caller: owner, IntakeID: first.ID})
	require.NoError(t, err)
	p.createIntake(t, typeform())
}

func TestIntake_NeedsFeature(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	w.process().configure(t, account.Settings{})
	_, err := p.CreateIntake(t.Context(), command.CreateIntake{Caller: owner, Intake: typeform()})
	require.ErrorIs(t, err, command.ErrFeatureDisabled)
}

func TestReportSilence_ConcurrentProcesses(t *testing.T) {
	t.Parallel()
	w, p := newIntakeWorld(t)
	expecting := typeform()
	expecting.ExpectEvery = new("1h")
	created := p.createIntake(t, expecting)
	w.now = func() time.Time { return created.Intake.CreatedAt.Add(2 * time.Hour) }
	arrived := created.Intake.CreatedAt.Add(30 * time.Minute)
	watch := func(at time.Time) {
		var watchers errgroup.Group
		for range 4 {
			other := w.process()
			watchers.Go(func() error { return other.ReportIntake(t.Context(), intake.Watched{ID: created.ID, ArrivedAt: at}) })
		}
		require.NoError(t, watchers.Wait())
	}
	facts := func() (types []string) {
		for recorded, err := range w.log.Read(t.Context(), event.IntakeStream(created.ID), 1) {
			require.NoError(t, err)
			types = append(types, recorded.Type)
		}
		return types
	}
	watch(arrived)
	watch(arrived)
	require.Equal(t, []string{"intake.silent.v1"}, facts())
	watch(w.now())
	watch(w.now())
	require.Equal(t, []string{"intake.silent.v1", "intake.resumed.v1"}, facts())
}
