// Package delivery sends events to webhook endpoints.
//
// [FanOut] reads the log and writes a row for each event that an endpoint is to get, in the transaction that moves its
// checkpoint. A [Courier] takes up rows that are due and sends them: signed as the Standard Webhooks specification has
// it, again on a schedule when they fail, and each endpoint in a lane of its own, so that none waits for another.
package delivery

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/projection/schema"
)

var (
	// ErrNoSecret says that an endpoint has no secret, or not any more.
	ErrNoSecret = errors.New("no signing secret of this endpoint")

	// ErrUnknownKey says that a secret is sealed with a key that was not given.
	ErrUnknownKey = errors.New("the signing secret is sealed with a key that is not among the settings: add the earlier key")

	// ErrDamaged says that a sealed secret does not open: it was changed, or moved here from another endpoint.
	ErrDamaged = errors.New("the sealed signing secret is damaged")
)

// KeySize is the length of a sealing key in bytes.
const KeySize = 32

// Secrets keeps the signing secrets of webhook endpoints, sealed with AES-256-GCM. They stand beside the read models and
// not on the log: a secret must be forgotten when its endpoint goes, and a log forgets nothing.
type Secrets struct {
	pool    *pgxpool.Pool
	keys    map[string]cipher.AEAD // by key id
	current string
}

// NewSecrets seals with the current key and opens what the earlier ones sealed.
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

// Put keeps an endpoint's secret in place of any before.
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

// Get opens an endpoint's secret. The errors are ErrNoSecret, ErrUnknownKey, ErrDamaged and those of the database.
func (s *Secrets) Get(ctx context.Context, webhookID string) (string, error) {
	var key string
	var sealed []byte
	err := s.pool.QueryRow(ctx, `SELECT key_id, sealed FROM secret.webhook WHERE webhook_id = $1`, webhookID).Scan(&key, &sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", ErrNoSecret
	}
	if err != nil {
		return "", fmt.Errorf("read a signing secret: %w", schema.Unavailable(err))
	}
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

// Destroy forgets an endpoint's secret for good. That there is none is no error.
func (s *Secrets) Destroy(ctx context.Context, webhookID string) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM secret.webhook WHERE webhook_id = $1`, webhookID); err != nil {
		return fmt.Errorf("destroy a signing secret: %w", schema.Unavailable(err))
	}
	return nil
}
