package sealed

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/leadlog/leadlog/eventstore/postgres"
)

const (
	cachedKeys = 16384 // of about 200 bytes each
	// keyTTL bounds how long a process that missed a notification caches a destroyed key.
	keyTTL = time.Minute
)

// keyCache caches the latest key of recently used streams, to save lookups for appends and reads.
type keyCache struct {
	vault *Vault

	mu   sync.Mutex
	keys *simplelru.LRU[string, cachedKey] // by stream
	// incremented by each removal: a key that was looked up before a removal is not cached after it
	removals uint64
}

type cachedKey struct {
	key
	since time.Time
	// stored means that the key was read from the vault, or has opened an event. A new key is not in the vault if its
	// append was a repetition of an earlier one with another key.
	stored bool
}

func newKeyCache(vault *Vault) *keyCache {
	keys, err := simplelru.NewLRU[string, cachedKey](cachedKeys, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &keyCache{vault: vault, keys: keys}
}

// get returns the cached key of a stream.
func (c *keyCache) get(stream string) (cachedKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.keys.Get(stream)
	return known, ok && time.Since(known.since) < keyTTL
}

// version must be read before a lookup, or before an append with new keys, and passed to add.
func (c *keyCache) version() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removals
}

// add caches a key that was looked up or created at a version of the cache, unless a key was removed since. For stored
// see cachedKey.
func (c *keyCache) add(stream string, k key, version uint64, stored bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removals == version {
		c.keys.Add(stream, cachedKey{k, time.Now(), stored})
	}
}

// confirm records that a key has opened an event, so it is in the vault.
func (c *keyCache) confirm(stream string, id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.keys.Peek(stream); ok && known.id == id {
		known.stored = true
		c.keys.Add(stream, known)
	}
}

// lookUp reads the keys of a stream from the vault, and caches the latest one.
func (c *keyCache) lookUp(ctx context.Context, stream string) ([]key, error) {
	version := c.version()
	keys, err := c.vault.findOf(ctx, stream)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		c.add(stream, keys[len(keys)-1], version, true)
	}
	return keys, nil
}

func (c *keyCache) remove(streams ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removals++
	for _, stream := range streams {
		c.keys.Remove(stream)
	}
}

func (c *keyCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removals++
	c.keys.Purge()
}

// listen removes keys that any process destroys from the cache, until the context is done. It clears the cache when
// listening starts, because earlier notifications were missed, and when it cannot read which keys were destroyed.
func (c *keyCache) listen(ctx context.Context, log *slog.Logger) {
	config := c.vault.pool.Config().ConnConfig
	config.RuntimeParams["application_name"] = "leadlog forgotten"
	since := "0"
	drop := func() {
		streams, now, err := c.vault.destroyed(ctx, since)
		if err != nil {
			c.clear()
			return
		}
		if since = now; len(streams) > 0 {
			c.remove(streams...)
		}
	}
	postgres.Listener{
		Config: config, Channel: channel, Poll: time.Second,
		OnListen:   func() { drop(); c.clear() },
		OnNotified: drop,
		OnLost: func(err error) {
			log.Warn("LISTEN connection for erased persons lost, reconnecting", slog.Any("error", err))
		},
	}.Run(ctx)
}
