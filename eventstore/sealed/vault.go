package sealed

import (
	"context"
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
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/sealbox"
)

// ErrOtherKeys means that the sealing keys open none of the persons' keys in the database.
var ErrOtherKeys = errors.New("LEADLOG_SEAL_KEY opens no person's key in the database")

// errDamagedKey means that a person's key cannot be opened: it was changed, or copied from another stream.
var errDamagedKey = fmt.Errorf("%w: its key is damaged", ErrDamaged)

// key seals the events of one stream.
type key struct {
	id      int64
	secret  [sealbox.KeySize]byte
	damaged bool // the secret could not be opened
}

func (k key) aead() (cipher.AEAD, error) {
	if k.damaged {
		return nil, errDamagedKey
	}
	return sealbox.NewCipher(k.secret[:])
}

// commitmentPrefix separates commitments from other hashes of the same bytes.
const commitmentPrefix = "leadlog person key v1\n"

// Commitment returns the SHA-256 of a prefix and a key, in hexadecimal. It stays on the log after the key is destroyed.
func Commitment(secret [sealbox.KeySize]byte) string {
	sum := sha256.Sum256(append([]byte(commitmentPrefix), secret[:]...))
	return hex.EncodeToString(sum[:])
}

// opener is a key that opens the events of one stream. It caches values that many of them share.
type opener struct {
	key
	aead          cipher.AEAD // created when first needed
	ip, userAgent string      // of the previous event
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

// Vault stores the keys of streams about persons, each sealed, in the table person.key, and contents in person.content.
type Vault struct {
	pool    *pgxpool.Pool
	box     *sealbox.Box
	lookUps eventstore.Batcher[string, []key]
	stores  eventstore.Batcher[[]eventstore.Write, struct{}]
}

// NewVault returns a vault in the database of a pool. The box seals the keys; if it has no keys, sealed events can be
// neither read nor written.
func NewVault(pool *pgxpool.Pool, box *sealbox.Box) *Vault {
	v := &Vault{pool: pool, box: box}
	v.lookUps = eventstore.Batcher[string, []key]{
		Query: v.findEach, Concurrency: 2, MaxBatch: 256, Timeout: 30 * time.Second,
	}
	v.stores = eventstore.Batcher[[]eventstore.Write, struct{}]{
		Query: v.storeAll, Concurrency: 2, MaxBatch: 64, Timeout: 30 * time.Second,
	}
	return v
}

// Known returns ErrOtherKeys if there are keys of persons and the box opens none of them. Without this check, a process
// with wrong keys would seal events that no process with the right keys can open.
func (v *Vault) Known(ctx context.Context) error {
	var known bool
	err := v.pool.QueryRow(ctx,
		`SELECT EXISTS (SELECT FROM person.key WHERE sealed_by = ANY ($1)) OR NOT EXISTS (SELECT FROM person.key)`,
		v.box.KeyIDs()).Scan(&known)
	if err != nil {
		return unavailable(ctx, err)
	}
	if !known {
		return ErrOtherKeys
	}
	return nil
}

// create returns a new key of a stream, unsealed and in stored form. The caller stores it. Its id is random and exceeds
// that of the latest key, so that the ids of a stream's keys are in the order in which they were created.
func (v *Vault) create(stream string, latest int64) (key, eventstore.Key, error) {
	var random [keyIDBytes + sealbox.KeySize]byte
	_, _ = rand.Read(random[:]) // never fails
	id := int64(binary.BigEndian.Uint64(random[:keyIDBytes]))
	if id <= latest {
		room := uint64(math.MaxInt64) - uint64(latest)
		id = latest + 1 + int64(uint64(id)%max(1, room/2))
	}
	fresh := key{id: id, secret: [sealbox.KeySize]byte(random[keyIDBytes:])}
	sealed, err := v.box.Seal(fresh.secret[:], owner(stream, fresh.id))
	if err != nil {
		return key{}, eventstore.Key{}, boxError(err)
	}
	return fresh, eventstore.Key{Stream: stream, ID: fresh.id, SealedBy: sealed.KeyID, Sealed: sealed.Data}, nil
}

// owner returns the owner that a key is bound to: a row that is copied to another stream cannot be opened there.
func owner(stream string, id int64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, len(stream)+8), stream...), uint64(id))
}

// unseal opens a key. A damaged key is no error until an event needs it, so that a reader of many streams gets the
// others.
func (v *Vault) unseal(stored eventstore.Key) (key, error) {
	secret, err := v.box.Open(sealedKey(stored), owner(stored.Stream, stored.ID))
	if errors.Is(err, sealbox.ErrDamaged) || err == nil && len(secret) != sealbox.KeySize {
		return key{id: stored.ID, damaged: true}, nil
	}
	if err != nil {
		return key{}, boxError(err)
	}
	return key{id: stored.ID, secret: [sealbox.KeySize]byte(secret)}, nil
}

func sealedKey(k eventstore.Key) sealbox.Sealed {
	return sealbox.Sealed{KeyID: k.SealedBy, Data: k.Sealed}
}

// boxError adds instructions for the operator to an error of the box.
func boxError(err error) error {
	switch {
	case errors.Is(err, sealbox.ErrNoKey):
		return fmt.Errorf("personal data are sealed: %w: set LEADLOG_SEAL_KEY", err)
	case errors.Is(err, sealbox.ErrUnknownKey):
		return fmt.Errorf("a person's key is %w: add that key to LEADLOG_SEAL_KEY, after a comma", err)
	}
	return err
}

// store inserts the keys and contents of an append before it, for a log in another database. It inserts no content
// whose key was destroyed.
func (v *Vault) store(ctx context.Context, writes []eventstore.Write) error {
	if !slices.ContainsFunc(writes, func(w eventstore.Write) bool { return w.Key != nil || len(w.Contents) > 0 }) {
		return nil
	}
	_, err := v.stores.Do(ctx, writes)
	return unavailable(ctx, err)
}

// storeAll inserts the keys and contents of several appends in one transaction. A key may be stored already, by a
// transaction whose answer was lost.
func (v *Vault) storeAll(ctx context.Context, appends [][]eventstore.Write) ([]struct{}, error) {
	var streams, sealedBy []string
	var ids []int64
	var sealed [][]byte
	contents := &pgx.Batch{}
	for _, w := range slices.Concat(appends...) {
		if k := w.Key; k != nil {
			streams, ids = append(streams, k.Stream), append(ids, k.ID)
			sealedBy, sealed = append(sealedBy, k.SealedBy), append(sealed, k.Sealed)
		}
		for _, c := range w.Contents {
			contents.Queue(`INSERT INTO person.content (stream, key_id, hash, sealed, pending)
				SELECT stream, id, $3, $4, now() FROM person.key WHERE stream = $1
				AND id = $2 FOR KEY SHARE ON CONFLICT DO NOTHING`, w.Stream, c.KeyID, c.Hash, c.Sealed)
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(`INSERT INTO person.key (stream, id, sealed_by, sealed)
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bytea[]) ON CONFLICT DO NOTHING`,
		streams, ids, sealedBy, sealed)
	batch.QueuedQueries = append(batch.QueuedQueries, contents.QueuedQueries...)
	return make([]struct{}, len(appends)), v.pool.SendBatch(ctx, batch).Close()
}

// channel is notified when keys were destroyed. Any role may listen and notify, so notifications are empty, and the
// streams are in a table.
const channel = "leadlog_forgotten"

// Destroy deletes the keys of streams permanently, and notifies all processes that may have cached them. It is no error
// if there are none: an earlier call may have deleted them without waiting for a synchronous standby. This call also
// writes, so it waits.
func (v *Vault) Destroy(ctx context.Context, streams ...string) error {
	return v.destroyBy(ctx, streams, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM person.key WHERE stream = ANY ($1)`, streams)
		return err
	})
}

// destroy deletes the given keys of a stream.
func (v *Vault) destroy(ctx context.Context, stream string, ids []int64) error {
	return v.destroyBy(ctx, []string{stream}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM person.key WHERE stream = $1 AND id = ANY ($2)`, stream, ids)
		return err
	})
}

// destroyBy deletes keys of streams with remove, and notifies all processes. The notification is not part of the
// transaction, because it fails if a listener, of any role, has not read for long. Processes also poll for destroyed
// keys.
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

// destroyed returns the streams whose keys were destroyed by transactions that were running at a snapshot or later, and
// a new snapshot.
func (v *Vault) destroyed(ctx context.Context, since string) (streams []string, now string, err error) {
	err = v.pool.QueryRow(ctx, `
		SELECT ARRAY(SELECT stream FROM person.destroyed WHERE tx >= $1::text::xid8),
		  pg_snapshot_xmin(pg_current_snapshot())::text`,
		since).Scan(&streams, &now)
	return streams, now, unavailable(ctx, err)
}

const (
	rewrapBatch  = 500 // keys in a transaction
	rewrapErrors = 10  // maximum number of errors that Rewrap returns
)

// Rewrap seals keys of older sealing keys again with the current one, and returns their number. Without an error, these
// keys no longer need the older ones. Keys that cannot be opened are kept unchanged and returned as the error. It may
// run beside a live service, and be interrupted at any time.
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

// rewrapAfter rewraps a batch of the keys after one. It returns the keys of the batch, and an error for each that
// cannot be opened.
func (v *Vault) rewrapAfter(
	ctx context.Context, after eventstore.Key,
) (old []eventstore.Key, failed []error, err error) {
	err = pgx.BeginFunc(ctx, v.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx,
			selectKeys+` WHERE sealed_by <> $1 AND (stream, id) > ($2, $3) ORDER BY stream, id LIMIT $4 FOR UPDATE`,
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
			batch.Queue(`UPDATE person.key SET sealed_by = $3, sealed = $4 WHERE stream = $1 AND id = $2`, k.Stream,
				k.ID, sealed.KeyID, sealed.Data)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	return old, failed, err
}

const selectKeys = `SELECT stream, id, sealed_by, sealed FROM person.key`

// selectEach uses the index for each stream. Without the lateral join, PostgreSQL scans the whole table for some
// thousand streams, again and again during a replay.
const selectEach = `SELECT k.* FROM unnest($1::text[]) AS asked (stream)
	CROSS JOIN LATERAL (` + selectKeys + ` WHERE stream = asked.stream COLLATE "C" ORDER BY id OFFSET 0) AS k`

// selectFew is planned and executed in a fifth of the time of selectEach.
const selectFew = selectKeys + ` WHERE stream = ANY ($1)`

// maxFew is up to how many streams selectFew is used for. It scans a table that is not much larger.
const maxFew = 50

// selectRange reads keys that are adjacent in the index, which takes a fifth of the time of separate lookups.
const selectRange = selectKeys + ` WHERE stream BETWEEN $1 AND $2 ORDER BY stream, id LIMIT $3`

// minRange is the number of new leads from which their keys are read as a range.
const minRange = 50

// findMany reads and opens the keys of streams. Leads that were created in sequence have consecutive names, so the keys
// of new leads are read as a range.
func (v *Vault) findMany(ctx context.Context, newLeads, others []string) (found map[string][]key, err error) {
	if len(newLeads) < minRange {
		newLeads, others = nil, append(others, newLeads...)
	}
	found = make(map[string][]key, len(newLeads)+len(others))
	rest, err := v.findRange(ctx, newLeads, found)
	if err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(append(others, rest...), func(stream string) bool { return len(found[stream]) > 0 })
	if len(others) == 0 {
		return found, nil
	}
	slices.Sort(others)
	more, err := v.find(ctx, slices.Compact(others))
	maps.Copy(found, more)
	return found, err
}

// findRange opens the keys of streams by reading all keys between the first and the last stream, at most twice as many
// as streams. It returns the streams that it has not reached.
func (v *Vault) findRange(ctx context.Context, streams []string, found map[string][]key) (rest []string, err error) {
	if len(streams) == 0 {
		return nil, nil
	}
	slices.Sort(streams)
	limit := 2 * len(streams)
	stored, err := v.query(ctx, selectRange, streams[0], streams[len(streams)-1], limit)
	if err != nil {
		return nil, err
	}
	if len(stored) == limit { // the last stream may have more keys
		end := stored[limit-1].Stream
		stored = slices.DeleteFunc(stored, func(k eventstore.Key) bool { return k.Stream == end })
		from, _ := slices.BinarySearch(streams, end)
		rest = streams[from:]
	}
	return rest, v.unsealAll(stored, streams, found)
}

// unsealAll opens the stored keys that belong to the streams. Both are sorted by stream.
func (v *Vault) unsealAll(stored []eventstore.Key, streams []string, found map[string][]key) error {
	i := 0
	for _, k := range stored {
		for i < len(streams) && streams[i] < k.Stream {
			i++
		}
		if i == len(streams) || streams[i] != k.Stream {
			continue
		}
		opened, err := v.unseal(k)
		if err != nil {
			return err
		}
		found[k.Stream] = append(found[k.Stream], opened)
	}
	return nil
}

// query plans each call: a cached plan from when the table was small would compare every key with every stream.
func (v *Vault) query(ctx context.Context, query string, arguments ...any) ([]eventstore.Key, error) {
	rows, err := v.pool.Query(ctx, query, append([]any{pgx.QueryExecModeCacheDescribe}, arguments...)...)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	stored, err := pgx.CollectRows(rows, scanKey)
	return stored, unavailable(ctx, err)
}

// find opens the keys of streams in any order.
func (v *Vault) find(ctx context.Context, streams []string) (map[string][]key, error) {
	each := selectEach
	if len(streams) <= maxFew {
		each = selectFew
	}
	stored, err := v.query(ctx, each, streams)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]key, len(stored))
	for _, k := range stored {
		opened, err := v.unseal(k)
		if err != nil {
			return nil, err
		}
		found[k.Stream] = append(found[k.Stream], opened)
	}
	return found, nil
}

// findOf opens the keys of one stream. Concurrent calls share a query.
func (v *Vault) findOf(ctx context.Context, stream string) ([]key, error) {
	keys, err := v.lookUps.Do(ctx, stream)
	if err != nil && ctx.Err() != nil {
		err = unavailable(ctx, err)
	}
	return keys, err
}

func (v *Vault) findEach(ctx context.Context, streams []string) ([][]key, error) {
	found, err := v.find(ctx, streams)
	if err != nil {
		return nil, err
	}
	each := make([][]key, len(streams))
	for i, stream := range streams {
		each[i] = found[stream]
	}
	return each, nil
}

func scanKey(row pgx.CollectableRow) (k eventstore.Key, err error) {
	err = row.Scan(&k.Stream, &k.ID, &k.SealedBy, &k.Sealed)
	return k, err
}

// CopyKeys makes the keys and contents in one database equal to those in another, for a log that is moved: its events
// are copied sealed, and the location of the log determines that of its keys. Keys that the source lacks are deleted,
// because their persons were erased. If both are the same database, nothing changes. Appends must have stopped.
func CopyKeys(ctx context.Context, from, to *pgxpool.Pool) error {
	return unavailable(ctx, pgx.BeginFunc(ctx, to, func(tx pgx.Tx) error {
		if err := copyTable(ctx, from, tx, "key", "stream", "id", "sealed_by", "sealed"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM person.key k
			WHERE NOT EXISTS (SELECT FROM pg_temp.moved_key m WHERE m.stream = k.stream AND m.id = k.id)`)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO person.key SELECT * FROM pg_temp.moved_key
			ON CONFLICT (stream, id) DO UPDATE SET sealed_by = excluded.sealed_by, sealed = excluded.sealed`)
		if err != nil {
			return err
		}
		if err := copyTable(ctx, from, tx, "content", "stream", "key_id", "hash", "sealed", "pending"); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO person.content SELECT * FROM pg_temp.moved_content
			ON CONFLICT (stream, key_id, hash) DO UPDATE SET sealed = excluded.sealed, pending = excluded.pending`)
		return err
	}))
}

// copyTable copies a table of the schema person to a temporary one, whose name begins with moved.
func copyTable(ctx context.Context, from *pgxpool.Pool, tx pgx.Tx, table string, columns ...string) error {
	rows, err := from.Query(ctx, `SELECT `+strings.Join(columns, ", ")+` FROM person.`+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	moved := pgx.Identifier{"pg_temp", "moved_" + table}
	_, err = tx.Exec(ctx,
		`CREATE TEMP TABLE moved_`+table+` (LIKE person.`+table+` INCLUDING INDEXES INCLUDING STORAGE) ON COMMIT DROP`)
	if err != nil {
		return err
	}
	_, err = tx.CopyFrom(ctx, moved, columns, pgx.CopyFromFunc(func() ([]any, error) {
		if !rows.Next() {
			return nil, rows.Err()
		}
		return rows.Values()
	}))
	if err == nil {
		_, err = tx.Exec(ctx, `ANALYZE `+moved.Sanitize())
	}
	return err
}

// unavailable wraps errors of the database in eventstore.ErrUnavailable. It returns errors of the box unchanged.
func unavailable(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, sealbox.ErrUnknownKey) || errors.Is(err, sealbox.ErrNoKey) {
		return err
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("%w: keys of persons: %w", eventstore.ErrUnavailable, err)
}
