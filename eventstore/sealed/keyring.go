package sealed

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore/postgres"
)

const (
	// generation is how many keys are remembered before those are let go that were remembered a generation ago, of
	// about 100 bytes each.
	generation = 16384
	// knownFor bounds how long a process that was not told of it remembers a key that was destroyed.
	knownFor = time.Minute
)

// keyring remembers keys that were used lately, of each stream one. It holds no pointers, so that the garbage collector
// has nothing to look for in it.
type keyring struct {
	vault *Vault
	seeds [2]maphash.Seed

	mu              sync.Mutex
	latest, earlier map[name]knownKey
	forgets         uint64 // grows when something is forgotten: what was looked up before is not remembered after
}

// name stands for a stream: 128 bits of a hash that nobody outside can foresee.
type name [2]uint64

type knownKey struct {
	key
	since int64 // nanoseconds since the keyring began to count
	// kept says that the key was in the vault, or has opened something. A new key is not in the vault if its append turns out
	// to be one that was made before, with another key.
	kept bool
}

var counting = time.Now()

func newKeyring(vault *Vault) *keyring {
	return &keyring{
		vault: vault, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		latest: map[name]knownKey{}, earlier: map[name]knownKey{},
	}
}

func (r *keyring) name(stream string) name {
	return name{maphash.String(r.seeds[0], stream), maphash.String(r.seeds[1], stream)}
}

// recall gives the key of a stream, if it is remembered.
func (r *keyring) recall(stream string) (knownKey, bool) {
	n := r.name(stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.latest[n]
	if !ok {
		known, ok = r.earlier[n]
	}
	return known, ok && int64(time.Since(counting))-known.since < int64(knownFor)
}

// moment is taken before a look-up or an append with new keys, so that remember can tell whether something was forgotten
// meanwhile.
func (r *keyring) moment() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forgets
}

// prove says that a key has opened something.
func (r *keyring) prove(stream string, id int64) {
	n := r.name(stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, keys := range []map[name]knownKey{r.latest, r.earlier} {
		if known, ok := keys[n]; ok && known.id == id {
			known.kept = true
			keys[n] = known
		}
	}
}

// remember takes note of a key that was looked up, or made for an append, at a moment. It does not if anything was forgotten
// since. For kept see knownKey.
func (r *keyring) remember(stream string, k key, at uint64, kept bool) {
	n := r.name(stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forgets != at {
		return
	}
	if len(r.latest) >= generation {
		r.latest, r.earlier = r.earlier, r.latest
		clear(r.latest)
	}
	r.latest[n] = knownKey{k, int64(time.Since(counting)), kept}
}

// look asks the vault for the keys of a stream.
func (r *keyring) look(ctx context.Context, stream string) ([]key, error) {
	at := r.moment()
	keys, err := r.vault.findOf(ctx, stream)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		r.remember(stream, keys[len(keys)-1], at, true)
	}
	return keys, nil
}

func (r *keyring) forget(streams ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgets++
	for _, stream := range streams {
		delete(r.latest, r.name(stream))
		delete(r.earlier, r.name(stream))
	}
}

func (r *keyring) forgetAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgets++
	clear(r.latest)
	clear(r.earlier)
}

// listen forgets what any process destroys, until the context ends. What was destroyed while nobody listened is not known,
// so everything is forgotten when listening begins.
func (r *keyring) listen(ctx context.Context, log *slog.Logger) {
	config := r.vault.pool.Config().ConnConfig
	config.RuntimeParams["application_name"] = "leadlog forgotten"
	postgres.Listening{
		Config: config, Channel: channel, Began: r.forgetAll,
		Heard: func(n *pgconn.Notification) { r.forget(n.Payload) },
		Lost: func(err error) {
			log.Warn("nobody tells of persons that are forgotten; trying on", slog.Any("error", err))
		},
	}.Run(ctx)
}
