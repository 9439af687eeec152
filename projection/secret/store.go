// Package secret stores the secrets of webhook endpoints and of intakes, sealed. They are in the views' database and
// not on the log, because a secret must be destroyed when it is replaced, and nothing can be deleted from the log.
package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection/schema"
)

// Store stores sealed secrets. [Endpoints] and [Intakes] have its secrets by their owners.
type Store struct {
	pool *pgxpool.Pool
	box  *sealbox.Box
}

// New returns a store of secrets that are sealed with a box.
func New(pool *pgxpool.Pool, box *sealbox.Box) *Store { return &Store{pool, box} }

// open opens a secret that is bound to an id.
func (s *Store) open(id string, sealed sealbox.Sealed) ([]byte, error) {
	secret, err := s.box.Open(sealed, []byte(id))
	if errors.Is(err, sealbox.ErrUnknownKey) {
		err = fmt.Errorf("%w: add that key to LEADLOG_SEAL_KEY, after a comma", err)
	}
	return secret, err
}

// destroy deletes secrets.
func (s *Store) destroy(ctx context.Context, statement string, arguments ...any) error {
	if _, err := s.pool.Exec(ctx, statement, arguments...); err != nil {
		return fmt.Errorf("destroy secrets: %w", schema.Unavailable(err))
	}
	return nil
}

// broken returns the owners whose secrets are missing or cannot be opened, with the reason. The query returns the
// owner, the id that the secret is bound to, and the sealed secret, which is NULL if it is missing.
func (s *Store) broken(ctx context.Context, missing error, query string) (map[string]error, error) {
	rows, err := s.pool.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", schema.Unavailable(err))
	}
	broken := map[string]error{}
	var owner, id string
	var key *string
	var sealed []byte
	_, err = pgx.ForEachRow(rows, []any{&owner, &id, &key, &sealed}, func() error {
		if key == nil {
			broken[owner] = missing
		} else if _, err := s.open(id, sealbox.Sealed{KeyID: *key, Data: sealed}); err != nil {
			broken[owner] = err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", schema.Unavailable(err))
	}
	return broken, nil
}

// Run destroys expired secrets, and those that killed processes left, until the context is done.
func (s *Store) Run(ctx context.Context, log *slog.Logger) {
	work := eventstore.Background{Work: "destroy expired secrets", Interval: time.Minute, Log: log}
	work.Run(ctx, func(ctx context.Context) (bool, error) {
		return false, errors.Join(Endpoints{s}.DestroyExpired(ctx), Endpoints{s}.DestroyLeft(ctx),
			Intakes{s}.DestroyLeft(ctx))
	})
}

// Rewrap seals secrets of older keys again with the current key. Secrets that cannot be opened are kept and returned as
// the error.
func (s *Store) Rewrap(ctx context.Context) error {
	var broken []error
	for _, of := range []struct{ table, bound string }{
		{"secret.webhook", "webhook_id"}, {"secret.header", "webhook_id"}, {"secret.earlier", "webhook_id"},
		{"secret.intake", "event_id"},
	} {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			failed, err := s.rewrap(ctx, tx, of.table, of.bound)
			broken = append(broken, failed...)
			return err
		})
		if err != nil {
			return fmt.Errorf("rewrap secrets: %w", schema.Unavailable(err))
		}
	}
	return errors.Join(broken...)
}

// rewrap rewraps a table in one transaction: there are few secrets. Bound is the column with the ids that they are
// bound to.
func (s *Store) rewrap(ctx context.Context, tx pgx.Tx, table, bound string) (broken []error, err error) {
	rows, err := tx.Query(ctx, `SELECT `+bound+`, key_id, sealed FROM `+table+` WHERE key_id <> $1 FOR UPDATE`,
		s.box.Current())
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	var id string
	var old sealbox.Sealed
	_, err = pgx.ForEachRow(rows, []any{&id, &old.KeyID, &old.Data}, func() error {
		fresh, err := s.box.Rewrap(old, []byte(id))
		if err != nil {
			broken = append(broken, fmt.Errorf("%s of %s: %w", table, id, err))
			return nil
		}
		batch.Queue(`UPDATE `+table+` SET key_id = $3, sealed = $4 WHERE `+bound+` = $1 AND sealed = $2`,
			id, bytes.Clone(old.Data), fresh.KeyID, fresh.Data)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return broken, tx.SendBatch(ctx, batch).Close()
}
