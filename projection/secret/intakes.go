package secret

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection/schema"
)

// Intakes has the secrets of intakes. Each set is stored under the id of the event that sets it, before that event is
// appended. So a reader of the stream always finds the secrets of the revision that it has read.
type Intakes struct{ *Store }

// Put stores the secrets that an event sets.
func (s Intakes) Put(ctx context.Context, intakeID, eventID string, secrets intake.Secrets) error {
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

// Get returns the secrets that an event set. The errors are those of the database and intake.ErrNoSecrets. The latter
// is wrapped together with sealbox.ErrUnknownKey or sealbox.ErrDamaged if stored secrets cannot be opened.
func (s Intakes) Get(ctx context.Context, intakeID, eventID string) (secrets intake.Secrets, err error) {
	var sealed sealbox.Sealed
	err = s.pool.QueryRow(ctx, `SELECT key_id, sealed FROM secret.intake WHERE event_id = $1 AND intake_id = $2`,
		eventID, intakeID).
		Scan(&sealed.KeyID, &sealed.Data)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return secrets, intake.ErrNoSecrets
	case err != nil:
		return secrets, fmt.Errorf("read secrets of an intake: %w", schema.Unavailable(err))
	}
	encoded, err := s.open(eventID, sealed)
	if err != nil {
		return secrets, fmt.Errorf("%w: %w", intake.ErrNoSecrets, err)
	}
	return secrets, json.Unmarshal(encoded, &secrets)
}

// DestroyBefore destroys the secrets of an intake that were stored before those of an event.
func (s Intakes) DestroyBefore(ctx context.Context, intakeID, eventID string) error {
	return s.destroy(ctx,
		`DELETE FROM secret.intake WHERE intake_id = $1
			AND ordinal < (SELECT ordinal FROM secret.intake WHERE event_id = $2)`,
		intakeID, eventID)
}

// Drop destroys the secrets of an event that was not appended.
func (s Intakes) Drop(ctx context.Context, intakeID, eventID string) error {
	return s.destroy(ctx, `DELETE FROM secret.intake WHERE intake_id = $1 AND event_id = $2`, intakeID, eventID)
}

// Destroy destroys all secrets of an intake. It is no error if there are none.
func (s Intakes) Destroy(ctx context.Context, intakeID string) error {
	return s.destroy(ctx, `DELETE FROM secret.intake WHERE intake_id = $1`, intakeID)
}

// DestroyLeft destroys the secrets that a killed process left: those of deleted intakes, and those that were replaced.
// Secrets that were stored later than the ones in the view are kept: they may already be current.
func (s Intakes) DestroyLeft(ctx context.Context) error {
	return s.destroy(ctx, `
		DELETE FROM secret.intake s USING views.intake i
		 WHERE i.intake_id = s.intake_id
		   AND (i.deleted OR s.ordinal < (SELECT ordinal FROM secret.intake c WHERE c.event_id = i.secret_id))`)
}

// Broken returns the intakes for which Get fails, with the reason, without those that the view has seen deleted and
// those that need no secrets. An intake whose secrets are being replaced may be included.
func (s Intakes) Broken(ctx context.Context) (map[string]error, error) {
	return s.broken(ctx, intake.ErrNoSecrets, `
		SELECT i.intake_id, i.secret_id, s.key_id, s.sealed
		  FROM views.intake i LEFT JOIN secret.intake s ON s.event_id = i.secret_id
		 WHERE NOT deleted AND (settings ->> 'kind' <> 'form' OR coalesce(settings ->> 'challenge', '') <> '')`)
}
