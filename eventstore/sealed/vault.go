package sealed

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealbox"
)

// ErrOtherKeys means that the sealing keys open none of the persons' keys in the database.
var ErrOtherKeys = errors.New("LEADLOG_SEAL_KEY opens no person's key in the database")

// errDamagedKey means that a person's key does not open: it was changed, or moved here from another stream.
var errDamagedKey = fmt.Errorf("%w: its key is damaged", ErrDamaged)

// key is what the events of one stream are sealed with.
type key struct {
	id      int64
	secret  [sealbox.KeySize]byte
	damaged bool // there is no secret
}

func (k key) aead() (cipher.AEAD, error) {
	if k.damaged {
		return nil, errDamagedKey
	}
	return sealbox.NewCipher(k.secret[:])
}

// opener is a key at work: many events of one stream are opened with it. It remembers what they have in common.
type opener struct {
	key
	aead          cipher.AEAD // made when it is first needed
	ip, userAgent string      // of the event before
}

func openers(keys []key) []opener {
	all := make([]opener, len(keys))
	for i, k := range keys {
		all[i].key = k
	}
	return all
}

func (o *opener) prepare() (err error) {
	if o.aead == nil {
		o.aead, err = o.key.aead()
	}
	return err
}

// Vault stores the keys of streams that are about a person, each sealed, in the table person.key.
type Vault struct {
	pool    *pgxpool.Pool
	box     *sealbox.Box
	lookUps eventstore.Batcher[string, []key]
}

// NewVault returns a vault in the database of a pool. The box seals the keys; if it has none itself, sealed events can be neither
// read nor written.
func NewVault(pool *pgxpool.Pool, box *sealbox.Box) *Vault {
	v := &Vault{pool: pool, box: box}
	v.lookUps = eventstore.Batcher[string, []key]{Ask: v.findEach, Concurrency: 2, MaxBatch: 256, Timeout: 30 * time.Second}
	return v
}

// Known returns ErrOtherKeys when there are keys of persons and none of them is sealed with a key that was given. Without this
// check, a process with wrong keys would seal events that no process with the right ones can open.
func (v *Vault) Known(ctx context.Context) error {
	var known bool
	err := v.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM person.key WHERE sealed_by = ANY ($1)) OR NOT EXISTS (SELECT FROM person.key)`,
		v.box.KeyIDs()).Scan(&known)
	if err != nil {
		return unavailable(ctx, err)
	}
	if !known {
		return ErrOtherKeys
	}
	return nil
}

// mint makes a new key of a stream. It is kept by nobody yet.
func (v *Vault) mint(stream string) (key, eventstore.Key, error) {
	var random [keyIDBytes + sealbox.KeySize]byte
	_, _ = rand.Read(random[:]) // never fails
	fresh := key{id: int64(binary.BigEndian.Uint64(random[:keyIDBytes])), secret: [sealbox.KeySize]byte(random[keyIDBytes:])}
	sealed, err := v.box.Seal(fresh.secret[:], owner(stream, fresh.id))
	if err != nil {
		return key{}, eventstore.Key{}, boxError(err)
	}
	return fresh, eventstore.Key{Stream: stream, ID: fresh.id, SealedBy: sealed.KeyID, Sealed: sealed.Data}, nil
}

// owner is what a key is bound to: a row that is moved to another stream does not open there.
func owner(stream string, id int64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, len(stream)+8), stream...), uint64(id))
}

// unseal opens a key. A damaged key is no error before an event needs it, so that a reader of many streams gets the others.
func (v *Vault) unseal(kept eventstore.Key) (key, error) {
	secret, err := v.box.Open(sealedKey(kept), owner(kept.Stream, kept.ID))
	if errors.Is(err, sealbox.ErrDamaged) || err == nil && len(secret) != sealbox.KeySize {
		return key{id: kept.ID, damaged: true}, nil
	}
	if err != nil {
		return key{}, boxError(err)
	}
	return key{id: kept.ID, secret: [sealbox.KeySize]byte(secret)}, nil
}

func sealedKey(k eventstore.Key) sealbox.Sealed {
	return sealbox.Sealed{KeyID: k.SealedBy, Data: k.Sealed}
}

// boxError adds to an error of the box what the operator can do about it.
func boxError(err error) error {
	switch {
	case errors.Is(err, sealbox.ErrNoKey):
		return fmt.Errorf("personal data are sealed: %w: set LEADLOG_SEAL_KEY", err)
	case errors.Is(err, sealbox.ErrUnknownKey):
		return fmt.Errorf("a person's key is %w: add that key to LEADLOG_SEAL_KEY, after a comma", err)
	}
	return err
}

// keep writes keys down before the append that uses them, for a log that is somewhere else.
func (v *Vault) keep(ctx context.Context, keys []*eventstore.Key) error {
	batch := &pgx.Batch{}
	for _, k := range keys {
		batch.Queue(`INSERT INTO person.key (stream, id, sealed_by, sealed) VALUES ($1, $2, $3, $4)`, k.Stream, k.ID, k.SealedBy, k.Sealed)
	}
	return unavailable(ctx, v.pool.SendBatch(ctx, batch).Close())
}

// channel is notified when keys were destroyed. Every role may listen and notify, so notifications are empty: whose keys they were is
// in a table.
const channel = "leadlog_forgotten"

// Destroy deletes the keys of streams for good, and notifies every process that may have them in memory. It is not an error if
// there are none: an earlier call may have deleted them without waiting for a synchronous standby. This one writes too, so it waits.
func (v *Vault) Destroy(ctx context.Context, streams ...string) error {
	return v.destroyBy(ctx, streams, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM person.key WHERE stream = ANY ($1)`, streams)
		return err
	})
}

// destroyBy destroys keys of streams by a function, and notifies every process. The notification is no part of the transaction, since
// it fails when a listener, which may be of any role, has not read for long. Processes find what was destroyed without it, later.
func (v *Vault) destroyBy(ctx context.Context, streams []string, remove func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		if err := remove(tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM person.destroyed WHERE at < now() - interval '1 hour'`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO person.destroyed (stream) SELECT unnest($1::text[])`, streams)
		return err
	})
	if err == nil {
		_, _ = v.pool.Exec(ctx, `NOTIFY `+channel)
	}
	return unavailable(ctx, err)
}

// destroyed returns the streams whose keys were destroyed by transactions that had not ended at a point, and the present point.
func (v *Vault) destroyed(ctx context.Context, since string) (streams []string, now string, err error) {
	err = v.pool.QueryRow(ctx, `
		SELECT ARRAY(SELECT stream FROM person.destroyed WHERE tx >= $1::text::xid8), pg_snapshot_xmin(pg_current_snapshot())::text`,
		since).Scan(&streams, &now)
	return streams, now, unavailable(ctx, err)
}

const (
	rewrapBatch  = 500 // keys of one transaction
	rewrapErrors = 10  // errors that Rewrap returns at most
)

// Rewrap seals again with the current key what older ones sealed, and returns the number of keys. Without an error, the older keys
// are no longer needed for them. Keys that do not open stay unchanged and are reported as the error. It may run beside a live
// service, and be interrupted at any time.
func (v *Vault) Rewrap(ctx context.Context) (n int, err error) {
	var reported []error
	for last := (eventstore.Key{ID: math.MinInt64}); ; {
		old, failed, err := v.rewrapAfter(ctx, last)
		if err != nil {
			return n, unavailable(ctx, err)
		}
		n += len(old) - len(failed)
		reported = append(reported, failed[:min(len(failed), rewrapErrors-len(reported))]...)
		if len(old) < rewrapBatch {
			return n, errors.Join(reported...)
		}
		last = old[len(old)-1]
	}
}

// rewrapAfter rewraps a batch of the keys behind one. It returns the keys it read, and an error for each that does not open.
func (v *Vault) rewrapAfter(ctx context.Context, after eventstore.Key) (old []eventstore.Key, failed []error, err error) {
	err = pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectKeys+` WHERE sealed_by <> $1 AND (stream, id) > ($2, $3) ORDER BY stream, id LIMIT $4 FOR UPDATE`,
			v.box.Current(), after.Stream, after.ID, rewrapBatch)
		if err != nil {
			return err
		}
		if old, err = pgx.CollectRows(rows, scanKey); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		for _, k := range old {
			sealed, err := v.box.Rewrap(sealedKey(k), owner(k.Stream, k.ID))
			if err != nil {
				failed = append(failed, fmt.Errorf("key of stream %s: %w", k.Stream, boxError(err)))
				continue
			}
			batch.Queue(`UPDATE person.key SET sealed_by = $3, sealed = $4 WHERE stream = $1 AND id = $2`, k.Stream, k.ID, sealed.KeyID, sealed.Data)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	return old, failed, err
}

// unavailable marks errors of the database, but for those of ours.
func unavailable(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, sealbox.ErrUnknownKey) || errors.Is(err, sealbox.ErrNoKey) {
		return err
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("%w: keys of persons: %w", eventstore.ErrUnavailable, err)
}
