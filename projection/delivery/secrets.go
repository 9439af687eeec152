// Package delivery sends events to webhook endpoints. It owns the queue and the record of deliveries and the signing secrets.
//
// [FanOut] reads the log and writes a row for each event that an endpoint is to get, in the transaction that moves its checkpoint.
// A [Courier] takes rows that are due and sends them, signed as the Standard Webhooks specification says. Attempts that fail are
// repeated on a schedule, and each endpoint has a lane of its own, so that none waits for another. A [Replayer] queues again what
// owners ask to replay, and [Days] drops old partitions of the record.
package delivery

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/projection/schema"
)

var (
	// ErrNoSecret says that an endpoint has no secret, or no longer has one.
	ErrNoSecret = errors.New("no signing secret of this endpoint")

	// ErrUnknownKey says that a secret is sealed with a key that was not given.
	ErrUnknownKey = errors.New("the signing secret is sealed with a key that is not among the settings: add that key")

	// ErrDamaged says that a sealed secret does not open: it was changed, or copied from another endpoint.
	ErrDamaged = errors.New("the sealed signing secret is damaged")
)

// KeySize is the length of a sealing key in bytes.
const KeySize = 32

// Secrets stores the signing secrets of webhook endpoints, sealed with AES-256-GCM. They are in the views' database and not on the
// log, because a secret must be destroyed when its endpoint is deleted, and nothing can be deleted from the log.
type Secrets struct {
	pool    *pgxpool.Pool
	keys    map[string]cipher.AEAD // by key id
	current string
}

// NewSecrets returns a store of secrets that seals with the current key and also opens what the earlier keys have sealed.
func NewSecrets(pool *pgxpool.Pool, current []byte, earlier ...[]byte) (*Secrets, error) {
	s := &Secrets{pool: pool, keys: map[string]cipher.AEAD{}, current: keyID(current)}
	for _, key := range append([][]byte{current}, earlier...) {
		if len(key) != KeySize {
			return nil, fmt.Errorf("a sealing key has %d bytes, needed are %d", len(key), KeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		sealer, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		s.keys[keyID(key)] = sealer
	}
	return s, nil
}

// keyID names a key without giving it away.
func keyID(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

// Put stores an endpoint's secret in place of any before.
func (s *Secrets) Put(ctx context.Context, webhookID, secret string) error {
	// Bound to the endpoint: a row copied to another endpoint does not open there.
	sealed := s.keys[s.current].Seal(nil, nil, []byte(secret), []byte(webhookID))
	_, err := s.pool.Exec(ctx, `
		INSERT INTO secret.webhook (webhook_id, key_id, sealed) VALUES ($1, $2, $3)
		    ON CONFLICT (webhook_id) DO UPDATE SET key_id = excluded.key_id, sealed = excluded.sealed`,
		webhookID, s.current, sealed)
	if err != nil {
		return fmt.Errorf("keep a signing secret: %w", schema.Unavailable(err))
	}
	return nil
}

// mostEarlier is how many replaced secrets still sign; of more, the oldest are dropped at once. Each makes every delivery longer.
const mostEarlier = 4

// Rotate stores a secret in place of the current one, which still signs until previousUntil. Kept is false when there is none to
// replace, for example after Destroy. If rotations arrive here in another order than they were decided in, the one with the latest
// previousUntil is current, and the secret of an earlier one also signs until then, if it can be opened here.
func (s *Secrets) Rotate(ctx context.Context, webhookID, secret string, previousUntil time.Time) (kept bool, err error) {
	sealed := s.keys[s.current].Seal(nil, nil, []byte(secret), []byte(webhookID))
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The row's lock puts rotations and the destruction one after the other.
		locked, err := tx.Exec(ctx, `SELECT FROM secret.webhook WHERE webhook_id = $1 FOR UPDATE`, webhookID)
		if err != nil || locked.RowsAffected() == 0 {
			return err
		}
		kept = true
		late, err := tx.Exec(ctx, `
			INSERT INTO secret.earlier (webhook_id, key_id, sealed, until)
			SELECT $1, $2, $3, max(until) FROM secret.earlier WHERE webhook_id = $1 HAVING max(until) > $4`,
			webhookID, s.current, sealed, previousUntil)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		if late.RowsAffected() == 0 {
			batch.Queue(`
				INSERT INTO secret.earlier (webhook_id, key_id, sealed, until)
				SELECT webhook_id, key_id, sealed, $2 FROM secret.webhook WHERE webhook_id = $1`, webhookID, previousUntil)
			batch.Queue(`UPDATE secret.webhook SET key_id = $2, sealed = $3, created_at = now() WHERE webhook_id = $1`, webhookID, s.current, sealed)
		}
		batch.Queue(`
			DELETE FROM secret.earlier WHERE webhook_id = $1 AND (key_id <> ALL ($3) OR ctid NOT IN (
			       SELECT ctid FROM secret.earlier WHERE webhook_id = $1 ORDER BY until DESC LIMIT $2))`,
			webhookID, mostEarlier, slices.Collect(maps.Keys(s.keys)))
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return false, fmt.Errorf("rotate a signing secret: %w", schema.Unavailable(err))
	}
	return kept, nil
}

// Get returns the secrets that sign for an endpoint: the current one, then the replaced ones that have not expired, the latest
// first. The errors are ErrNoSecret, ErrUnknownKey, ErrDamaged and those of the database.
func (s *Secrets) Get(ctx context.Context, webhookID string) ([]string, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT key_id, sealed, NULL AS until FROM secret.webhook WHERE webhook_id = $1
		 UNION ALL
		SELECT key_id, sealed, until FROM secret.earlier
		 WHERE webhook_id = $1 AND until > now() AND EXISTS (SELECT FROM secret.webhook WHERE webhook_id = $1)
		 ORDER BY until DESC NULLS FIRST`, webhookID)
	if err != nil {
		return nil, fmt.Errorf("read a signing secret: %w", schema.Unavailable(err))
	}
	var secrets []string
	var key string
	var sealed []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &sealed, nil}, func() error {
		secret, err := s.unseal(webhookID, key, sealed)
		secrets = append(secrets, secret)
		return err
	})
	switch {
	case errors.Is(err, ErrUnknownKey), errors.Is(err, ErrDamaged):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("read a signing secret: %w", schema.Unavailable(err))
	case len(secrets) == 0:
		return nil, ErrNoSecret
	}
	return secrets, nil
}

// Broken returns, with the reason, the endpoints for which Get fails, of those that the fan-out has not seen deleted. An endpoint
// that is just being deleted may be among them.
func (s *Secrets) Broken(ctx context.Context) (map[string]error, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT e.webhook_id, key_id, sealed FROM delivery.endpoint e LEFT JOIN secret.webhook USING (webhook_id) WHERE NOT deleted
		 UNION ALL
		SELECT e.webhook_id, key_id, sealed FROM delivery.endpoint e JOIN secret.earlier USING (webhook_id)
		 WHERE NOT deleted AND until > now()`)
	if err != nil {
		return nil, fmt.Errorf("read signing secrets: %w", schema.Unavailable(err))
	}
	broken := map[string]error{}
	var id string
	var key *string
	var sealed []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &sealed}, func() error {
		if key == nil {
			broken[id] = ErrNoSecret
		} else if _, err := s.unseal(id, *key, sealed); err != nil {
			broken[id] = err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read signing secrets: %w", schema.Unavailable(err))
	}
	return broken, nil
}

func (s *Secrets) unseal(webhookID, key string, sealed []byte) (string, error) {
	sealer, known := s.keys[key]
	if !known {
		return "", fmt.Errorf("%w (it is key %s)", ErrUnknownKey, key)
	}
	secret, err := sealer.Open(nil, nil, sealed, []byte(webhookID))
	if err != nil {
		return "", fmt.Errorf("%w (webhook %s, key %s)", ErrDamaged, webhookID, key)
	}
	return string(secret), nil
}

// Run destroys replaced secrets when they expire, and secrets left behind by deleted endpoints, until the context ends.
func (s *Secrets) Run(ctx context.Context, log *slog.Logger) {
	for ctx.Err() == nil {
		if err := errors.Join(s.DestroyExpired(ctx), s.DestroyLeft(ctx)); err != nil && ctx.Err() == nil {
			log.Warn("signing secrets whose time is up not destroyed", slog.Any("error", err))
		}
		_ = eventstore.Sleep(ctx, time.Minute)
	}
}

// DestroyExpired deletes the replaced secrets that have expired.
func (s *Secrets) DestroyExpired(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM secret.earlier WHERE until <= now()`); err != nil {
		return fmt.Errorf("destroy replaced signing secrets: %w", schema.Unavailable(err))
	}
	return nil
}

// DestroyLeft deletes the secrets of endpoints that the fan-out has seen deleted, where a process died before it had done so.
func (s *Secrets) DestroyLeft(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, `
		SELECT webhook_id FROM delivery.endpoint
		 WHERE deleted AND (webhook_id IN (SELECT webhook_id FROM secret.webhook) OR webhook_id IN (SELECT webhook_id FROM secret.earlier))`)
	if err != nil {
		return fmt.Errorf("find secrets of deleted endpoints: %w", schema.Unavailable(err))
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("find secrets of deleted endpoints: %w", schema.Unavailable(err))
	}
	for _, webhookID := range left {
		if err := s.Destroy(ctx, webhookID); err != nil {
			return err
		}
	}
	return nil
}

// Destroy deletes an endpoint's secrets. It is not an error if there are none.
func (s *Secrets) Destroy(ctx context.Context, webhookID string) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The current one first, whose row a rotation locks: what that replaced is seen after it.
		for _, table := range []string{"webhook", "earlier"} {
			if _, err := tx.Exec(ctx, `DELETE FROM secret.`+table+` WHERE webhook_id = $1`, webhookID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("destroy a signing secret: %w", schema.Unavailable(err))
	}
	return nil
}

// Reseal seals again with the current key what earlier ones have sealed. Secrets that cannot be opened stay, and are the error.
func (s *Secrets) Reseal(ctx context.Context) error {
	var broken []error
	for _, table := range []string{"webhook", "earlier"} {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			failed, err := s.reseal(ctx, tx, pgx.Identifier{"secret", table}.Sanitize())
			broken = append(broken, failed...)
			return err
		})
		if err != nil {
			return fmt.Errorf("seal signing secrets anew: %w", schema.Unavailable(err))
		}
	}
	return errors.Join(broken...)
}

// reseal takes a whole table: secrets are as many as endpoints.
func (s *Secrets) reseal(ctx context.Context, tx pgx.Tx, table string) (broken []error, err error) {
	rows, err := tx.Query(ctx, `SELECT webhook_id, key_id, sealed FROM `+table+` WHERE key_id <> $1 FOR UPDATE`, s.current)
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	var id, key string
	var sealed []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &key, &sealed}, func() error {
		secret, err := s.unseal(id, key, sealed)
		if err != nil {
			broken = append(broken, err)
			return nil
		}
		batch.Queue(`UPDATE `+table+` SET key_id = $3, sealed = $4 WHERE webhook_id = $1 AND sealed = $2`,
			id, bytes.Clone(sealed), s.current, s.keys[s.current].Seal(nil, nil, []byte(secret), []byte(id)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return broken, tx.SendBatch(ctx, batch).Close()
}
