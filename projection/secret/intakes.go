// Package secret stores the secrets of webhook endpoints and of intakes, sealed. They are in the views' database and not on the log, because
// a secret must be destroyed when it is replaced, and nothing can be deleted from the log.
package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection/schema"
)

// Intakes stores the secrets of intakes. Each set is stored under the id of the event that sets it, before that event is appended. So a
// reader of the stream always finds the secrets of the revision that it has read.
type Intakes struct {
	pool *pgxpool.Pool
	box  *sealbox.Box
}

// NewIntakes returns a store of secrets that are sealed with a box.
func NewIntakes(pool *pgxpool.Pool, box *sealbox.Box) *Intakes { return &Intakes{pool, box} }

// Put stores the secrets that an event sets.
func (s *Intakes) Put(ctx context.Context, intakeID, eventID string, secrets intake.Secrets) error {
	encoded, err := json.Marshal(secrets)
	if err != nil {
		return err
	}
	sealed, err := s.box.Seal(encoded, []byte(eventID))
	if err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `INSERT INTO secret.intake (event_id, intake_id, key_id, sealed) VALUES ($1, $2, $3, $4)`,
		eventID, intakeID, sealed.KeyID, sealed.Data)
	if err != nil {
		return fmt.Errorf("store secrets of an intake: %w", schema.Unavailable(err))
	}
	return nil
}

// Get returns the secrets that an event set. The errors are those of the database and intake.ErrNoSecrets. The latter is wrapped together
// with sealbox.ErrUnknownKey or sealbox.ErrDamaged if stored secrets cannot be opened.
func (s *Intakes) Get(ctx context.Context, intakeID, eventID string) (secrets intake.Secrets, err error) {
	var sealed sealbox.Sealed
	err = s.pool.QueryRow(ctx, `SELECT key_id, sealed FROM secret.intake WHERE event_id = $1 AND intake_id = $2`, eventID, intakeID).
		Scan(&sealed.KeyID, &sealed.Data)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return secrets, intake.ErrNoSecrets
	case err != nil:
		return secrets, fmt.Errorf("read secrets of an intake: %w", schema.Unavailable(err))
	}
	encoded, err := s.open(eventID, sealed)
	if err != nil {
		return secrets, err
	}
	return secrets, json.Unmarshal(encoded, &secrets)
}

func (s *Intakes) open(eventID string, sealed sealbox.Sealed) ([]byte, error) {
	encoded, err := s.box.Open(sealed, []byte(eventID))
	switch {
	case errors.Is(err, sealbox.ErrUnknownKey):
		return nil, fmt.Errorf("%w: %w: add that key to LEADLOG_SEAL_KEY, after a comma", intake.ErrNoSecrets, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", intake.ErrNoSecrets, err)
	}
	return encoded, nil
}

// Keep destroys the secrets of an intake that were stored before those of an event.
func (s *Intakes) Keep(ctx context.Context, intakeID, eventID string) error {
	return s.destroy(ctx, `DELETE FROM secret.intake WHERE intake_id = $1 AND ordinal < (SELECT ordinal FROM secret.intake WHERE event_id = $2)`,
		intakeID, eventID)
}

// Drop destroys the secrets of an event that was not appended.
func (s *Intakes) Drop(ctx context.Context, intakeID, eventID string) error {
	return s.destroy(ctx, `DELETE FROM secret.intake WHERE intake_id = $1 AND event_id = $2`, intakeID, eventID)
}

// Destroy destroys all secrets of an intake. It is no error if there are none.
func (s *Intakes) Destroy(ctx context.Context, intakeID string) error {
	return s.destroy(ctx, `DELETE FROM secret.intake WHERE intake_id = $1`, intakeID)
}

// DestroyLeft destroys the secrets that a killed process left: those of deleted intakes, and those that were replaced. Secrets that were
// stored later than the ones in the view are kept: they may already be current.
func (s *Intakes) DestroyLeft(ctx context.Context) error {
	return s.destroy(ctx, `
		DELETE FROM secret.intake s USING views.intake i
		 WHERE i.intake_id = s.intake_id
		   AND (i.deleted OR s.ordinal < (SELECT ordinal FROM secret.intake c WHERE c.event_id = i.secret_id))`)
}

func (s *Intakes) destroy(ctx context.Context, statement string, arguments ...any) error {
	if _, err := s.pool.Exec(ctx, statement, arguments...); err != nil {
		return fmt.Errorf("destroy secrets of an intake: %w", schema.Unavailable(err))
	}
	return nil
}

// Run destroys the secrets that killed processes left, until the context is done.
func (s *Intakes) Run(ctx context.Context, log *slog.Logger) {
	work := eventstore.Background{Work: "destroy replaced secrets of intakes", Interval: time.Minute, Log: log}
	work.Run(ctx, func(ctx context.Context) (bool, error) { return false, s.DestroyLeft(ctx) })
}

// Broken returns the intakes for which Get fails, with the reason, without those that the view has seen deleted and those that need no
// secrets. An intake whose secrets are being replaced may be included.
func (s *Intakes) Broken(ctx context.Context) (map[string]error, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT i.intake_id, i.secret_id, s.key_id, s.sealed
		  FROM views.intake i LEFT JOIN secret.intake s ON s.event_id = i.secret_id
		 WHERE NOT deleted AND (settings ->> 'kind' <> 'form' OR coalesce(settings ->> 'challenge', '') <> '')`)
	if err != nil {
		return nil, fmt.Errorf("read secrets of intakes: %w", schema.Unavailable(err))
	}
	broken := map[string]error{}
	var id, eventID string
	var key *string
	var sealed []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &eventID, &key, &sealed}, func() error {
		if key == nil {
			broken[id] = intake.ErrNoSecrets
		} else if _, err := s.open(eventID, sealbox.Sealed{KeyID: *key, Data: sealed}); err != nil {
			broken[id] = err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read secrets of intakes: %w", schema.Unavailable(err))
	}
	return broken, nil
}

// Rewrap seals secrets of older keys again with the current key. Secrets that cannot be opened are kept and returned as the error.
func (s *Intakes) Rewrap(ctx context.Context) error {
	var broken []error
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT event_id, key_id, sealed FROM secret.intake WHERE key_id <> $1 FOR UPDATE`, s.box.Current())
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		var eventID string
		var old sealbox.Sealed
		_, err = pgx.ForEachRow(rows, []any{&eventID, &old.KeyID, &old.Data}, func() error {
			fresh, err := s.box.Rewrap(sealbox.Sealed{KeyID: old.KeyID, Data: bytes.Clone(old.Data)}, []byte(eventID))
			if err != nil {
				broken = append(broken, fmt.Errorf("secrets of an intake, set by event %s: %w", eventID, err))
				return nil
			}
			batch.Queue(`UPDATE secret.intake SET key_id = $2, sealed = $3 WHERE event_id = $1`, eventID, fresh.KeyID, fresh.Data)
			return nil
		})
		if err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("rewrap secrets of intakes: %w", schema.Unavailable(err))
	}
	return errors.Join(broken...)
}
