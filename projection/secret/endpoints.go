package secret

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection/schema"
)

// ErrNoSecret means that an endpoint has no secret.
var ErrNoSecret = errors.New("no signing secret of this endpoint")

// Endpoints stores the signing secrets and the custom headers of webhook endpoints, sealed.
type Endpoints struct {
	pool *pgxpool.Pool
	box  *sealbox.Box
}

// NewEndpoints returns a store of secrets that are sealed with a box.
func NewEndpoints(pool *pgxpool.Pool, box *sealbox.Box) *Endpoints { return &Endpoints{pool, box} }

// Put stores the secret with which an endpoint is registered.
func (s *Endpoints) Put(ctx context.Context, webhookID, secret string) error {
	return s.Restore(ctx, webhookID, secret, 0)
}

// Restore stores the secret of an endpoint that has none, or an earlier one. Revision is that of the fact that set it.
func (s *Endpoints) Restore(ctx context.Context, webhookID, secret string, revision eventstore.Revision) error {
	sealed, err := s.box.Seal([]byte(secret), []byte(webhookID))
	if err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `
		INSERT INTO secret.webhook AS w (webhook_id, revision, key_id, sealed) VALUES ($1, $2, $3, $4)
		    ON CONFLICT (webhook_id) DO UPDATE SET revision = excluded.revision, key_id = excluded.key_id, sealed = excluded.sealed
		 WHERE w.revision <= excluded.revision`, webhookID, revision, sealed.KeyID, sealed.Data)
	if err != nil {
		return fmt.Errorf("store a signing secret: %w", schema.Unavailable(err))
	}
	return nil
}

// Headers are the custom headers of an endpoint, and the only URL that they may be sent to.
type Headers struct {
	URL    string            `json:"url"`
	Values map[string]string `json:"values"`
}

// Names are sorted.
func (h Headers) Names() []string { return slices.Sorted(maps.Keys(h.Values)) }

// SetHeaders stores the values of an endpoint's custom headers for its URL, unless later ones are stored. Revision is that of the fact that
// set them: the times of two facts may be equal, or from clocks that differ. Kept is false when the endpoint has no secret, for example
// after Destroy.
func (s *Endpoints) SetHeaders(
	ctx context.Context, webhookID, url string, headers map[string]string, revision eventstore.Revision,
) (kept bool, err error) {
	encoded, err := json.Marshal(Headers{URL: url, Values: headers})
	if err != nil {
		return false, err
	}
	sealed, err := s.box.Seal(encoded, []byte(webhookID))
	if err != nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		locked, err := tx.Exec(ctx, `SELECT FROM secret.webhook WHERE webhook_id = $1 FOR SHARE`, webhookID)
		if kept = err == nil && locked.RowsAffected() > 0; !kept {
			return err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO secret.header AS h (webhook_id, revision, key_id, sealed) VALUES ($1, $2, $3, $4)
			    ON CONFLICT (webhook_id) DO UPDATE SET revision = excluded.revision, key_id = excluded.key_id, sealed = excluded.sealed
			 WHERE h.revision < excluded.revision`, webhookID, revision, sealed.KeyID, sealed.Data)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("store headers of an endpoint: %w", schema.Unavailable(err))
	}
	return kept, nil
}

// maxEarlier is how many replaced secrets still sign; the oldest of more are deleted. Each adds a signature to every delivery.
const maxEarlier = 4

// Rotate replaces the current secret, which still signs until previousUntil. Revision is that of the fact. Kept is false when there is no
// secret to replace, for example after Destroy. If rotations are stored in another order than they were decided in, the secret of the last
// decision is current, and that of an earlier one signs as long as the one that the last replaced, if the box can open it.
func (s *Endpoints) Rotate(
	ctx context.Context, webhookID, secret string, previousUntil time.Time, revision eventstore.Revision,
) (kept bool, err error) {
	sealed, err := s.box.Seal([]byte(secret), []byte(webhookID))
	if err != nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The row's lock serializes rotations and the destruction.
		var current eventstore.Revision
		err := tx.QueryRow(ctx, `SELECT revision FROM secret.webhook WHERE webhook_id = $1 FOR UPDATE`, webhookID).Scan(&current)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		kept = true
		batch := &pgx.Batch{}
		if revision < current {
			batch.Queue(`
				INSERT INTO secret.earlier (webhook_id, key_id, sealed, until)
				SELECT $1, $2, $3, coalesce(max(until), $4) FROM secret.earlier WHERE webhook_id = $1`,
				webhookID, sealed.KeyID, sealed.Data, previousUntil)
		} else {
			batch.Queue(`
				INSERT INTO secret.earlier (webhook_id, key_id, sealed, until)
				SELECT webhook_id, key_id, sealed, $2 FROM secret.webhook WHERE webhook_id = $1`, webhookID, previousUntil)
			batch.Queue(`UPDATE secret.webhook SET revision = $2, key_id = $3, sealed = $4, created_at = now() WHERE webhook_id = $1`,
				webhookID, revision, sealed.KeyID, sealed.Data)
		}
		batch.Queue(`
			DELETE FROM secret.earlier WHERE webhook_id = $1 AND (key_id <> ALL ($3) OR ctid NOT IN (
			       SELECT ctid FROM secret.earlier WHERE webhook_id = $1 ORDER BY until DESC LIMIT $2))`,
			webhookID, maxEarlier, s.box.KeyIDs())
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return false, fmt.Errorf("rotate a signing secret: %w", schema.Unavailable(err))
	}
	return kept, nil
}

// Signing is the signing secrets of an endpoint with its custom headers, or the error that prevents signing.
type Signing struct {
	Secrets []string
	Headers Headers
	Err     error
}

// Get returns the signing secrets of an endpoint: the current one, then the replaced ones that have not expired, the latest first. The
// errors are ErrNoSecret, sealbox.ErrUnknownKey, sealbox.ErrDamaged and those of the database.
func (s *Endpoints) Get(ctx context.Context, webhookID string) ([]string, error) {
	found, err := s.GetAll(ctx, []string{webhookID})
	if err != nil {
		return nil, err
	}
	return found[webhookID].Secrets, found[webhookID].Err
}

// GetAll is Get for several endpoints in one query. The error is that of the database.
func (s *Endpoints) GetAll(ctx context.Context, webhookIDs []string) (map[string]Signing, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT webhook_id, key_id, sealed, NULL::timestamptz AS until, false AS header FROM secret.webhook WHERE webhook_id = ANY ($1)
		 UNION ALL
		SELECT webhook_id, key_id, sealed, NULL::timestamptz, true FROM secret.header WHERE webhook_id = ANY ($1)
		 UNION ALL
		SELECT webhook_id, key_id, sealed, until, false FROM secret.earlier JOIN (SELECT webhook_id FROM secret.webhook) AS current USING (webhook_id)
		 WHERE webhook_id = ANY ($1) AND until > now()
		 ORDER BY until DESC NULLS FIRST`, webhookIDs)
	if err != nil {
		return nil, fmt.Errorf("read signing secrets: %w", schema.Unavailable(err))
	}
	found := make(map[string]Signing, len(webhookIDs))
	var id string
	var sealed sealbox.Sealed
	var header bool
	_, err = pgx.ForEachRow(rows, []any{&id, &sealed.KeyID, &sealed.Data, nil, &header}, func() error {
		of := found[id]
		if of.Err != nil {
			return nil
		}
		secret, err := s.unseal(id, sealed)
		switch {
		case err != nil:
			of = Signing{Err: err}
		case header:
			of.Err = json.Unmarshal([]byte(secret), &of.Headers)
		default:
			of.Secrets = append(of.Secrets, secret)
		}
		found[id] = of
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read signing secrets: %w", schema.Unavailable(err))
	}
	for _, id := range webhookIDs {
		if _, ok := found[id]; !ok {
			found[id] = Signing{Err: ErrNoSecret}
		}
	}
	return found, nil
}

// Broken returns the endpoints for which Get fails, with the reason, without those that the fan-out has seen deleted. An endpoint that is
// being deleted may be included.
func (s *Endpoints) Broken(ctx context.Context) (map[string]error, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT e.webhook_id, key_id, sealed FROM delivery.endpoint e LEFT JOIN secret.webhook USING (webhook_id) WHERE NOT deleted
		 UNION ALL
		SELECT e.webhook_id, key_id, sealed FROM delivery.endpoint e JOIN secret.header USING (webhook_id) WHERE NOT deleted
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
		} else if _, err := s.unseal(id, sealbox.Sealed{KeyID: *key, Data: sealed}); err != nil {
			broken[id] = err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read signing secrets: %w", schema.Unavailable(err))
	}
	return broken, nil
}

func (s *Endpoints) unseal(webhookID string, sealed sealbox.Sealed) (string, error) {
	secret, err := s.box.Open(sealed, []byte(webhookID))
	switch {
	case errors.Is(err, sealbox.ErrUnknownKey):
		return "", fmt.Errorf("the signing secret is %w: add that key to LEADLOG_SEAL_KEY, after a comma", err)
	case err != nil:
		return "", fmt.Errorf("the signing secret of webhook %s is %w", webhookID, err)
	}
	return string(secret), nil
}

// Run destroys expired secrets, and secrets left by deleted endpoints, until the context is done.
func (s *Endpoints) Run(ctx context.Context, log *slog.Logger) {
	work := eventstore.Background{Work: "destroy expired signing secrets", Interval: time.Minute, Log: log}
	work.Run(ctx, func(ctx context.Context) (bool, error) {
		return false, errors.Join(s.DestroyExpired(ctx), s.DestroyLeft(ctx))
	})
}

// DestroyExpired deletes the replaced secrets that have expired.
func (s *Endpoints) DestroyExpired(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, `DELETE FROM secret.earlier WHERE until <= now()`); err != nil {
		return fmt.Errorf("destroy replaced signing secrets: %w", schema.Unavailable(err))
	}
	return nil
}

// DestroyLeft deletes the secrets of deleted endpoints that a killed process left.
func (s *Endpoints) DestroyLeft(ctx context.Context) error {
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

// Destroy deletes an endpoint's secrets and custom headers. It is no error if there are none.
func (s *Endpoints) Destroy(ctx context.Context, webhookID string) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The current secret is deleted first. A rotation locks its row, so a secret that it replaced is visible after that.
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

// Rewrap seals secrets of older keys again with the current key. Secrets that cannot be opened are kept and returned as the error.
func (s *Endpoints) Rewrap(ctx context.Context) error {
	var broken []error
	for _, table := range []string{"webhook", "header", "earlier"} {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			failed, err := s.rewrap(ctx, tx, pgx.Identifier{"secret", table}.Sanitize())
			broken = append(broken, failed...)
			return err
		})
		if err != nil {
			return fmt.Errorf("rewrap signing secrets: %w", schema.Unavailable(err))
		}
	}
	return errors.Join(broken...)
}

// rewrap rewraps a table in one transaction: there are only as many secrets as endpoints.
func (s *Endpoints) rewrap(ctx context.Context, tx pgx.Tx, table string) (broken []error, err error) {
	rows, err := tx.Query(ctx, `SELECT webhook_id, key_id, sealed FROM `+table+` WHERE key_id <> $1 FOR UPDATE`, s.box.Current())
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	var id string
	var old sealbox.Sealed
	_, err = pgx.ForEachRow(rows, []any{&id, &old.KeyID, &old.Data}, func() error {
		fresh, err := s.box.Rewrap(old, []byte(id))
		if err != nil {
			broken = append(broken, fmt.Errorf("signing secret of webhook %s: %w", id, err))
			return nil
		}
		batch.Queue(`UPDATE `+table+` SET key_id = $3, sealed = $4 WHERE webhook_id = $1 AND sealed = $2`,
			id, bytes.Clone(old.Data), fresh.KeyID, fresh.Data)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return broken, tx.SendBatch(ctx, batch).Close()
}
