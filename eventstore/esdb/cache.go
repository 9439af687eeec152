package esdb

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache is an LRU cache that is bounded in bytes. Its methods are safe for concurrent use.
type cache[K comparable, V any] struct {
	limit int
	size  func(K, V) int // of an entry, in bytes

	mu    sync.Mutex
	known *simplelru.LRU[K, V]
	bytes int
}

// entryBytes is the approximate size of an entry without its key and value.
const entryBytes = 128

func newCache[K comparable, V any](limit int, size func(K, V) int) *cache[K, V] {
	c := &cache[K, V]{limit: limit, size: size}
	var err error
	c.known, err = simplelru.NewLRU(math.MaxInt, func(key K, value V) { c.bytes -= c.size(key, value) + entryBytes })
	if err != nil {
		panic(err) // the size is positive
	}
	return c
}

func (c *cache[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.Get(key)
}

// add adds or replaces an entry, and evicts the least recently used ones over the limit.
func (c *cache[K, V]) add(key K, value V) {
	c.update(key, func(V, bool) V { return value })
}

// update replaces an entry with the result of change.
func (c *cache[K, V]) update(key K, change func(old V, known bool) V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value := change(c.known.Get(key))
	c.known.Remove(key) // so that its bytes are subtracted
	c.known.Add(key, value)
	c.bytes += c.size(key, value) + entryBytes
	for c.bytes > c.limit && c.known.Len() > 0 {
		c.known.RemoveOldest()
	}
}

func (c *cache[K, V]) remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Remove(key)
}
