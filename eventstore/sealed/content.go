package sealed

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
)

// The log never gets smaller, so members that are declared as content, the bodies of posts, are not on it. They are
// sealed with the key of their stream and stored in the table person.content, with the append of their event or, for a
// log in another database, before it. The sealed part of the event has the SHA-256 of the ciphertext, which is also its
// name in the table. Rows are deleted with their key.
//
// Content is read by Read and Last. Subscriptions leave it out, because no view uses it.

// contentLabel separates content from sealed parts of events, which are authenticated with longer texts.
const contentLabel = "content"

func sealContent(k key, members []byte) (*eventstore.Content, error) {
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	sealed := aead.Seal(make([]byte, 0, len(members)+aead.Overhead()), nil, members, []byte(contentLabel))
	hash := sha256.Sum256(sealed)
	return &eventstore.Content{KeyID: k.id, Hash: hash[:], Sealed: sealed}, nil
}

// openContent adds content to the data of an opened event. It reports whether the content is unchanged.
func openContent(o *opener, hash, sealed []byte, r *eventstore.Recorded) bool {
	sum := sha256.Sum256(sealed)
	members, err := o.aead.Open(nil, nil, sealed, []byte(contentLabel))
	if err != nil || string(sum[:]) != string(hash) {
		return false
	}
	data := make([]byte, 0, len(r.Data)+len(members)+1)
	data = append(data, r.Data[:len(r.Data)-1]...)
	if len(data) > 1 {
		data = append(data, ',')
	}
	r.Data = append(append(data, members...), '}')
	return true
}

// contentRef names content.
type contentRef struct {
	stream string
	keyID  int64
	hash   string
}

// content returns sealed content, or nil if there is none.
func (v *Vault) content(ctx context.Context, of contentRef) (sealed []byte, err error) {
	err = v.pool.QueryRow(ctx, `SELECT sealed FROM person.content WHERE stream = $1 AND key_id = $2 AND hash = $3`,
		of.stream, of.keyID, []byte(of.hash)).Scan(&sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return sealed, unavailable(ctx, err)
}

// unchanged returns which of the contents exist and have their hash.
func (v *Vault) unchanged(ctx context.Context, refs []contentRef) (map[contentRef]bool, error) {
	streams, keys, hashes := make([]string, len(refs)), make([]int64, len(refs)), make([][]byte, len(refs))
	for i, r := range refs {
		streams[i], keys[i], hashes[i] = r.stream, r.keyID, []byte(r.hash)
	}
	rows, err := v.pool.Query(ctx, `
		SELECT c.* FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS asked (stream, key_id, hash)
		 CROSS JOIN LATERAL (
		       SELECT stream, key_id, hash FROM person.content
		        WHERE stream = asked.stream COLLATE "C" AND key_id = asked.key_id AND hash = asked.hash
		        AND sha256(sealed) = hash OFFSET 0) AS c`,
		pgx.QueryExecModeCacheDescribe, streams, keys, hashes)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	found := make(map[contentRef]bool, len(refs))
	var stream string
	var keyID int64
	var hash []byte
	_, err = pgx.ForEachRow(rows, []any{&stream, &keyID, &hash}, func() error {
		found[contentRef{stream, keyID, string(hash)}] = true
		return nil
	})
	return found, unavailable(ctx, err)
}

// sweepBatch is how many contents are looked up at a time.
const sweepBatch = 500

// Sweep deletes content that was stored before a time for an append whose event is not on the log, because it was
// refused or its process was killed. Only a log in another database has such content. The time must be long enough ago
// for every append of then to have ended.
func (s *Store) Sweep(ctx context.Context, before time.Time) (deleted int, err error) {
	for {
		rows, err := s.vault.pool.Query(ctx,
			`SELECT stream FROM person.content WHERE pending < $1 ORDER BY pending LIMIT $2`, before, sweepBatch)
		if err != nil {
			return deleted, unavailable(ctx, err)
		}
		streams, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return deleted, unavailable(ctx, err)
		}
		for _, stream := range streams {
			n, err := s.sweep(ctx, stream, before)
			if err != nil {
				return deleted, err
			}
			deleted += n
		}
		if len(streams) < sweepBatch {
			return deleted, nil
		}
	}
}

// sweep deletes the content of a stream that none of its events has, and keeps the rest for good.
func (s *Store) sweep(ctx context.Context, stream string, before time.Time) (deleted int, err error) {
	stored, err := s.vault.find(ctx, []string{stream})
	if err != nil {
		return 0, err
	}
	keys, hashes := openers(stored[stream]), [][]byte{}
	for recorded, err := range s.Store.Read(ctx, stream, 0) {
		if err != nil {
			return 0, err
		}
		v, _, sealed := openEnvelope(recorded.Data, nil)
		if !sealed {
			continue
		}
		hash, err := openWith(keys, v, &recorded)
		if err != nil {
			return 0, err
		}
		if hash != nil {
			hashes = append(hashes, hash)
		}
	}
	err = pgx.BeginFunc(ctx, s.vault.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE person.content SET pending = NULL WHERE stream = $1 AND hash = ANY ($2)`,
			stream, hashes)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `DELETE FROM person.content WHERE stream = $1 AND pending < $2`, stream, before)
		deleted = int(tag.RowsAffected())
		return err
	})
	return deleted, unavailable(ctx, err)
}
