package sealed

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/leadlog/leadlog/eventstore/postgres"
)

const (
	// generation is how many keys are remembered before those are let go that were remembered a generation ago, of
	// about 100 bytes each.
	generation = 16384
	// knownFor bounds how long a process that was not told of it remembers a key that was destroyed.
	knownFor = time.Minute
)

// keyring caches recently used keys, one for each stream. It has no pointers, so the garbage collector need not scan it.
type keyring struct {
	vault *Vault
	seeds [2]maphash.Seed

	mu              sync.Mutex
	latest, earlier map[name]knownKey
	forgets         uint64 // grows when something is forgotten: what was looked up before is not remembered after
}

// name identifies a stream by 128 bits of a hash with a random seed.
type name [2]uint64

type knownKey struct {
	key
	since int64 // nanoseconds since the keyring began to count
	// kept says that the key was read from the vault, or has opened something. A new key is not in the vault if its append turns
	// out to be the repetition of an earlier one, which used another key.
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

// recall returns the key of a stream, if it is cached.
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

// moment must be called before a lookup or an append with new keys, so that remember knows whether a key was forgotten meanwhile.
func (r *keyring) moment() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forgets
}

// prove records that a key has opened something.
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

// remember caches a key that was read, or made for an append, at a moment, unless any key was forgotten since. For kept see
// knownKey.
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

// look reads the keys of a stream from the vault.
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

// listen drops keys from the cache that any process destroys, until the context ends. It drops all keys when listening begins,
// because it does not know what was destroyed before, and when it cannot read what was destroyed.
func (r *keyring) listen(ctx context.Context, log *slog.Logger) {
	config := r.vault.pool.Config().ConnConfig
	config.RuntimeParams["application_name"] = "leadlog forgotten"
	point := "0"
	drop := func() {
		streams, now, err := r.vault.destroyed(ctx, point)
		if err != nil {
			r.forgetAll()
			return
		}
		if point = now; len(streams) > 0 {
			r.forget(streams...)
		}
	}
	postgres.Listening{
		Config: config, Channel: channel, Poll: time.Second,
		Began: func() { drop(); r.forgetAll() },
		Heard: drop,
		Lost: func(err error) {
			log.Warn("LISTEN connection for erased persons lost, reconnecting", slog.Any("error", err))
		},
	}.Run(ctx)
}
