package sealed

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
)

// KeySize is the length of a key in bytes, of those that seal keys too.
const KeySize = 32

// ErrUnknownKey says that a person's key is sealed with a key that was not given.
var ErrUnknownKey = errors.New("a person's key is sealed with a key that is not in LEADLOG_SEAL_KEY: add that key, after a comma")

// ErrOtherKeys says that none of the keys given has sealed what is in the database.
var ErrOtherKeys = errors.New("LEADLOG_SEAL_KEY opens no key of a person that is in the database")

// ErrNoKey says that something is sealed and no key was given.
var ErrNoKey = errors.New("what people told about themselves is sealed: set LEADLOG_SEAL_KEY")

// errDamagedKey says that a key does not open: it was changed, or moved here from another stream.
var errDamagedKey = fmt.Errorf("%w, or rather its key is damaged", ErrDamaged)

// key is what the events of one stream are sealed with.
type key struct {
	id      int64
	secret  [KeySize]byte
	damaged bool // there is no secret
}

func (k key) aead() (cipher.AEAD, error) {
	if k.damaged {
		return nil, errDamagedKey
	}
	return newAEAD(k.secret[:])
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
	sealers map[string]cipher.AEAD
	current string // empty: there is none
	lookUps eventstore.Batcher[string, []key]
}

// NewVault returns a vault in the database of a pool. The first of the sealing keys seals new keys; the others only open what they
// have sealed. Without any, sealed events can be neither read nor written.
func NewVault(pool *pgxpool.Pool, sealing ...[]byte) (*Vault, error) {
	v := &Vault{pool: pool, sealers: map[string]cipher.AEAD{}}
	v.lookUps = eventstore.Batcher[string, []key]{Ask: v.findEach, Concurrency: 2, MaxBatch: 256, Timeout: 30 * time.Second}
	for i, k := range sealing {
		if len(k) != KeySize {
			return nil, fmt.Errorf("a sealing key has %d bytes, needed are %d", len(k), KeySize)
		}
		aead, err := newAEAD(k)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(k)
		name := hex.EncodeToString(sum[:4])
		v.sealers[name] = aead
		if i == 0 {
			v.current = name
		}
	}
	return v, nil
}

func newAEAD(secret []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Known returns ErrOtherKeys when there are keys of persons and none of them is sealed with a key that was given. Without this
// check, a process with wrong keys would seal events that no process with the right ones can open.
func (v *Vault) Known(ctx context.Context) error {
	var known bool
	err := v.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM person.key WHERE sealed_by = ANY ($1)) OR NOT EXISTS (SELECT FROM person.key)`,
		slices.Collect(maps.Keys(v.sealers))).Scan(&known)
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
	if v.current == "" {
		return key{}, eventstore.Key{}, ErrNoKey
	}
	var random [keyIDBytes + KeySize]byte
	_, _ = rand.Read(random[:]) // never fails
	fresh := key{id: int64(binary.BigEndian.Uint64(random[:keyIDBytes])), secret: [KeySize]byte(random[keyIDBytes:])}
	kept := eventstore.Key{Stream: stream, ID: fresh.id, SealedBy: v.current}
	kept.Sealed = v.sealers[v.current].Seal(nil, nil, fresh.secret[:], owner(stream, fresh.id))
	return fresh, kept, nil
}

// owner is what a key is bound to: a row that is moved to another stream does not open there.
func owner(stream string, id int64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, len(stream)+8), stream...), uint64(id))
}

// unseal opens a key. That one is damaged shows where it is needed, so that who reads many streams gets the others.
func (v *Vault) unseal(kept eventstore.Key) (key, error) {
	secret, err := v.secret(kept)
	if errors.Is(err, errDamagedKey) {
		return key{id: kept.ID, damaged: true}, nil
	}
	if err != nil {
		return key{}, err
	}
	return key{id: kept.ID, secret: [KeySize]byte(secret)}, nil
}

func (v *Vault) secret(kept eventstore.Key) ([]byte, error) {
	sealer, known := v.sealers[kept.SealedBy]
	switch {
	case v.current == "":
		return nil, ErrNoKey
	case !known:
		return nil, fmt.Errorf("%w (it is key %s)", ErrUnknownKey, kept.SealedBy)
	}
	secret, err := sealer.Open(nil, nil, kept.Sealed, owner(kept.Stream, kept.ID))
	if err != nil || len(secret) != KeySize {
		return nil, fmt.Errorf("%w: stream %s, sealed by key %s", errDamagedKey, kept.Stream, kept.SealedBy)
	}
	return secret, nil
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
	resealed   = 500 // keys that are sealed anew at a time
	resealTold = 10  // errors about keys that cannot be opened, before no more are told
)

// Reseal seals again with the current key whatever earlier ones have sealed, and returns how many keys that were. Without an error,
// the earlier keys are no longer needed for them. Keys that cannot be opened stay unchanged and are reported as the error. It may
// run beside a live service, and be interrupted at any time.
func (v *Vault) Reseal(ctx context.Context) (n int, err error) {
	var told []error
	for last := (eventstore.Key{ID: math.MinInt64}); ; {
		old, failed, err := v.resealSome(ctx, last)
		if err != nil {
			return n, unavailable(ctx, err)
		}
		n += len(old) - len(failed)
		told = append(told, failed[:min(len(failed), resealTold-len(told))]...)
		if len(old) < resealed {
			return n, errors.Join(told...)
		}
		last = old[len(old)-1]
	}
}

// resealSome does so with the keys behind one. It returns those that it looked at, and why some could not be opened.
func (v *Vault) resealSome(ctx context.Context, after eventstore.Key) (old []eventstore.Key, failed []error, err error) {
	err = pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectKeys+` WHERE sealed_by <> $1 AND (stream, id) > ($2, $3) ORDER BY stream, id LIMIT $4 FOR UPDATE`,
			v.current, after.Stream, after.ID, resealed)
		if err != nil {
			return err
		}
		if old, err = pgx.CollectRows(rows, scanKey); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		for _, k := range old {
			secret, err := v.secret(k)
			if err != nil {
				failed = append(failed, err)
				continue
			}
			sealed := v.sealers[v.current].Seal(nil, nil, secret, owner(k.Stream, k.ID))
			batch.Queue(`UPDATE person.key SET sealed_by = $3, sealed = $4 WHERE stream = $1 AND id = $2`, k.Stream, k.ID, v.current, sealed)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	return old, failed, err
}

// unavailable marks errors of the database, but for those of ours.
func unavailable(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrUnknownKey) || errors.Is(err, ErrNoKey) {
		return err
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("%w: keys of persons: %w", eventstore.ErrUnavailable, err)
}
