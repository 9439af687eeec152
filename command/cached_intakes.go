package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore/event"
)

// Intake is a cached intake at which something may arrive, with what proves its senders. It may be stale: what arrives
// is appended with its Check. It is shared, and never changed.
type Intake struct {
	*Cached[intake.State]
	ID      string
	Secrets intake.Secrets
	Mapping *intake.Mapping
}

// ServeIntakes lets the directory return intakes, with secrets from this store.
func (d *Directory) ServeIntakes(secrets IntakeSecrets) { d.secrets = secrets }

// CachesIntake reports whether an intake is cached.
func (d *Directory) CachesIntake(id string) bool { return d.intakes.Contains(id) }

// IntakeGone reports whether an intake is known as deleted.
func (d *Directory) IntakeGone(id string) bool { return d.gone.Contains(id) }

// Intake returns an intake from the cache, or reads it from the log when it is not there. The error is
// intake.ErrNotFound if nothing may arrive at it; then it has been read from the log.
func (d *Directory) Intake(ctx context.Context, id string) (*Intake, error) {
	if cached, ok := d.intakes.Get(id); ok {
		return cached, nil
	}
	return d.ConfirmIntake(ctx, id)
}

// ConfirmIntake reads an intake and its secrets. It is for refusals, which must not rest on the cache alone, and for
// when an append finds the cached intake stale. An intake that has not changed is returned as it was cached. The errors
// are intake.ErrNotFound, intake.ErrNoSecrets if the secrets are lost, and those of the store and of IntakeSecrets.
func (d *Directory) ConfirmIntake(ctx context.Context, id string) (*Intake, error) {
	if !event.ValidID(id) {
		return nil, intake.ErrNotFound
	}
	for last := ""; ; {
		cached, err := d.loadIntake(ctx, event.IntakeStream(id))
		if err != nil {
			return nil, err
		}
		if !cached.State.Admits() {
			d.intakes.Remove(id)
			if cached.State.Deleted {
				d.gone.Add(id, struct{}{})
			}
			return nil, intake.ErrNotFound
		}
		if known, ok := d.intakes.Peek(id); ok && known.expect == cached.expect {
			return known, nil
		}
		found := &Intake{Cached: cached, ID: id}
		if found.Mapping, err = intake.Compile(cached.State.Settings); err != nil {
			return nil, fmt.Errorf("intake %s: %w", id, err)
		}
		if cached.State.NeedsSecrets() {
			found.Secrets, err = d.secrets.Get(ctx, id, cached.State.SecretID)
		}
		switch {
		case err == nil:
			d.intakes.Add(id, found)
			return found, nil
		case errors.Is(err, intake.ErrNoSecrets) && last != cached.State.SecretID:
			last = cached.State.SecretID // a rotation may have replaced them after the stream was read
		default:
			return nil, err
		}
	}
}

func (d *Directory) loadIntake(ctx context.Context, stream string) (*Cached[intake.State], error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	state, expect, err := d.folds.Load(ctx, d.store, stream)
	return &Cached[intake.State]{State: state, stream: stream, expect: expect}, err
}

// forgetIntake drops an intake from the cache.
func (d *Directory) forgetIntake(id string) { d.intakes.Remove(id) }
