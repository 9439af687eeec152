package secret

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealbox"
	"github.com/leadlog/leadlog/projection/schema"
)

// ErrNoSecret means that an endpoint has no secret.
var ErrNoSecret = errors.New("no signing secret of this endpoint")

// Endpoints has the signing secrets and the custom headers of webhook endpoints.
type Endpoints struct{ *Store }

// Put stores the secret with which an endpoint is registered.
func (s Endpoints) Put(ctx context.Context, webhookID, secret string) error {
	return s.Restore(ctx, webhookID, secret, 0)
}

// Restore stores the secret of an endpoint that has none, or an earlier one. Revision is that of the fact that set it.
func (s Endpoints) Restore(ctx context.Context, webhookID, secret string, revision eventstore.Revision) error {
	sealed, err := s.box.Seal([]byte(secret), []byte(webhookID))
	if err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `
		INSERT INTO secret.webhook AS w (webhook_id, revision, key_id, sealed) VALUES ($1, $2, $3, $4)
		    ON CONFLICT (webhook_id) DO UPDATE SET revision = excluded.revision, key_id = excluded.key_id,
		    sealed = excluded.sealed
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

// SetHeaders stores the values of an endpoint's custom headers for its URL, unless later ones are stored. Revision is
// that of the fact that set them: the times of two facts may be equal, or from clocks that differ. Kept is false when
// the endpoint has no secret, for example after Destroy.
func (s Endpoints) SetHeaders(
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
			    ON CONFLICT (webhook_id) DO UPDATE SET revision = excluded.revision, key_id = excluded.key_id,
			    sealed = excluded.sealed
			 WHERE h.revision < excluded.revision`, webhookID, revision, sealed.KeyID, sealed.Data)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("store headers of an endpoint: %w", schema.Unavailable(err))
	}
	return kept, nil
}

// maxEarlier is how many replaced secrets still sign; the oldest of more are deleted. Each adds a signature to every
// delivery.
const maxEarlier = 4

// Rotate replaces the current secret, which still signs until previousUntil. Revision is that of the fact. Kept is
// false when there is no secret to replace, for example after Destroy. If rotations are stored in another order than
// they were decided in, the secret of the last decision is current, and that of an earlier one signs as long as the one
// that the last replaced, if the box can open it.
func (s Endpoints) Rotate(
	ctx context.Context, webhookID, secret string, previousUntil time.Time, revision eventstore.Revision,
) (kept bool, err error) {
	sealed, err := s.box.Seal([]byte(secret), []byte(webhookID))
	if err != nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The row's lock serializes rotations and the destruction.
		var current eventstore.Revision
		err := tx.QueryRow(ctx, `SELECT revision FROM secret.webhook WHERE webhook_id = $1 FOR UPDATE`,
			webhookID).Scan(&current)
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
				SELECT webhook_id, key_id, sealed, $2 FROM secret.webhook
				WHERE webhook_id = $1`, webhookID, previousUntil)
			batch.Queue(`UPDATE secret.webhook SET revision = $2, key_id = $3, sealed = $4, created_at = now()
				WHERE webhook_id = $1`,
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

// Get returns the signing secrets of an endpoint: the current one, then the replaced ones that have not expired, the
// latest first. The errors are ErrNoSecret, sealbox.ErrUnknownKey, sealbox.ErrDamaged and those of the database.
func (s Endpoints) Get(ctx context.Context, webhookID string) ([]string, error) {
	found, err := s.GetAll(ctx, []string{webhookID})
	if err != nil {
		return nil, err
	}
	return found[webhookID].Secrets, found[webhookID].Err
}

// GetAll is Get for several endpoints in one query. The error is that of the database.
func (s Endpoints) GetAll(ctx context.Context, webhookIDs []string) (map[string]Signing, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT webhook_id, key_id, sealed, NULL::timestamptz AS until, false AS header FROM secret.webhook
		WHERE webhook_id = ANY ($1)
		 UNION ALL
		SELECT webhook_id, key_id, sealed, NULL::timestamptz, true FROM secret.header WHERE webhook_id = ANY ($1)
		 UNION ALL
		SELECT webhook_id, key_id, sealed, until, false FROM secret.earlier
		JOIN (SELECT webhook_id FROM secret.webhook) AS current USING (webhook_id)
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
		secret, err := s.open(id, sealed)
		switch {
		case err != nil:
			of = Signing{Err: fmt.Errorf("signing secret of webhook %s: %w", id, err)}
		case header:
			of.Err = json.Unmarshal(secret, &of.Headers)
		default:
			of.Secrets = append(of.Secrets, string(secret))
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

// Broken returns the endpoints for which Get fails, with the reason, without those that the fan-out has seen deleted.
// An endpoint that is being deleted may be included.
func (s Endpoints) Broken(ctx context.Context) (map[string]error, error) {
	return s.broken(ctx, ErrNoSecret, `
		SELECT e.webhook_id, e.webhook_id, key_id, sealed FROM delivery.endpoint e LEFT JOIN secret.webhook
		USING (webhook_id) WHERE NOT deleted
		 UNION ALL
		SELECT e.webhook_id, e.webhook_id, key_id, sealed FROM delivery.endpoint e JOIN secret.header USING (webhook_id)
		WHERE NOT deleted
		 UNION ALL
		SELECT e.webhook_id, e.webhook_id, key_id, sealed FROM delivery.endpoint e JOIN secret.earlier
		USING (webhook_id)
		 WHERE NOT deleted AND until > now()`)
}

// DestroyExpired deletes the replaced secrets that have expired.
func (s Endpoints) DestroyExpired(ctx context.Context) error {
	return s.destroy(ctx, `DELETE FROM secret.earlier WHERE until <= now()`)
}

// DestroyLeft deletes the secrets of deleted endpoints that a killed process left.
func (s Endpoints) DestroyLeft(ctx context.Context) error {
	rows, err := s.pool.Query(ctx, `
		SELECT webhook_id FROM delivery.endpoint
		 WHERE deleted AND (webhook_id IN (SELECT webhook_id FROM secret.webhook)
		   OR webhook_id IN (SELECT webhook_id FROM secret.earlier))`)
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
func (s Endpoints) Destroy(ctx context.Context, webhookID string) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// The current secret is deleted first. A rotation locks its row, so a secret that it replaced is visible after
		// that.
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
